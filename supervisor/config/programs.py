"""Turns [program.NAME] into a spec that is ready to start: a built-in game, or any command of the user.

A built-in program's settings; a later source overrides an earlier one: the table's default < [level] < preset <
[training] < [program.NAME] < `RL_*` environment. All of them become flags of its command line, so `ps` and `config` show
the settings that really run.

The digest covers only settings whose change needs a restart. It does not cover the interpreter's path or a default that
an upgrade brings, because an upgrade in place leaves workers untouched. Nor does it cover a number of threads that is
computed from the number of slots. Those values take effect at the next start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

from supervisor.config import background, command_keys, figures, foreign_names, scripts, secrets
from supervisor.config.overlaps import includes, may_meet
from supervisor.config.scripts import Options
from supervisor.config.seeds import expanded
from supervisor.config.tables import FIGURE_KEYS, Setting, choices, given, program_settings, read, settings_of
from supervisor.config.validation import DEFAULT, DERIVED, ENVIRONMENT, Origin, Section, Validation, label, shown
from supervisor.keys import Declaration
from supervisor.model.settings import A_NAME, NAME, SERVICE, Level, Paths, ProgramSpec, Progress
from supervisor.policy.box.lost_gpu import CPU
from supervisor.policy.script import placeholders
from supervisor.records import Record
from workers import contract
from workers.options import (
    AUTO,
    EXTRA_GAMES,
    GAMES,
    OPTIONS,
    Value,
    batch_limit,
    check_together,
    nearest,
    preset_values,
    valid_batch,
)

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_DEVICE: Final = Declaration(OPTIONS["device"].help, form="auto, cpu, cuda or cuda:N", pattern="auto|cpu|cuda(:[0-9]{1,2})?")
_OPTIONS: Final = {name: Setting.plain(each) for name, each in OPTIONS.items()} | {
    "device": Setting(OPTIONS["device"], _DEVICE, OPTIONS["device"].default)
}
_NAMES_GPU: Final = re.compile(r"[0-9]|GPU-|MIG-")
_ENV_NAME: Final = re.compile(r"[^=\0]+")
_LOGIN: Final = re.compile(r"://[^/@\s]*:[^/@\s]*@")  # a URL with a password in it
_THREAD_CAPS: Final = ("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_KNOWN_GAMES: Final = (*GAMES, *EXTRA_GAMES)
_HOW: Final = 'for a built-in game set game = "NAME", for a program of your own set command = ["python", "train.py"]'
_FIELDS: Final = tuple(each.name for each in fields(ProgramSpec))
SET_BY_US: Final = frozenset(value for key, value in vars(contract).items() if key.startswith("ENV_"))  # for each attempt
_ROOT: Final = Path(__file__).resolve().parents[2]


class Defaults(Record):
    """The values that every built-in program starts from, and the values that override them."""

    level: Level
    threads: int
    load: Options  # [level]'s environments, batch and threads
    given: Options  # [training]
    overrides: Options  # RL_*
    environ: Mapping[str, str]
    paths: Paths | None = None  # None: they are wrong, and their error is reported elsewhere


def programs(validation: Validation, tables: Mapping[str, Any], defaults: Defaults) -> tuple[ProgramSpec, ...]:
    """Every valid program. The others have errors in the validation."""
    specs = []
    for name, table in expanded(validation, tables, defaults.overrides).items():
        section = Section(validation, ("program", name), table)
        if not re.fullmatch(NAME, name):
            section.refuse(None, f": a program's name is {A_NAME}")
        elif name == "all":
            section.refuse(None, ": `all` means every program; choose another name")
        elif not isinstance(table, dict):
            section.refuse(None, f"must be a section, [program.{name}], not {shown(table)}")
        else:
            spec = (_command_program if "command" in table else _builtin_program)(section, defaults)
            if spec is not None:
                specs.append(_with_visible_gpus(spec, defaults.environ))
    _check_shared_checkpoints(validation, specs)
    figures.check_shared(validation, specs)
    return tuple(sorted(specs, key=lambda spec: (spec.priority, spec.name)))


def _check_shared_checkpoints(validation: Validation, specs: Sequence[ProgramSpec]) -> None:
    """Refuse programs of which one matches all checkpoints of another: it would resume from them. Warn of other overlaps."""
    of: dict[str, str] = {}  # the first program of each pattern
    for spec in specs:
        if not spec.checkpoint_glob or not (spec.directory or spec.checkpoint_glob.startswith("/")):
            continue  # in its own run directory
        place = os.path.normpath(str(Path(spec.directory) / spec.checkpoint_glob))
        path = ("program", spec.name, "checkpoint_glob")
        met = [known for known in of if known == place or may_meet(known, place)]
        same = next((known for known in met if includes(known, place) or includes(place, known)), None)
        if same is not None:
            what = f"are the checkpoints of {of[same]}, too" if same == place else f"and {same} of {of[same]} meet"
            message = f": {place} {what}, and each would resume from the other's"
            validation.refuse(path, f"{message}; put {{name}} into it, or give each a directory")
        elif met:
            message = f"{place} can match checkpoints of {of[met[0]]} ({met[0]}), and each would resume from the other's"
            validation.warn(validation.at(*path), f"{label(*path)}: {message}; give each a directory of its own")
        of.setdefault(place, spec.name)


def _with_visible_gpus(spec: ProgramSpec, environ: Mapping[str, str]) -> ProgramSpec:
    """The spec with its visible GPUs, from its own environment or the daemon's, unless `gpu` has set them already.

    Its own environment is an explicit word: it asks for GPUs, or wants none.
    """
    env = dict(spec.env)
    if spec.gpu is not None and (env.get("CUDA_DEVICE_ORDER"), env.get(_VISIBLE)) == ("PCI_BUS_ID", str(spec.gpu)):
        return spec
    own = env.get(_VISIBLE)
    if own is None:
        return replace(spec, visible=environ.get(_VISIBLE))
    if _NAMES_GPU.match(own.strip()):
        return replace(spec, visible=own, asks_gpu=f'env.CUDA_VISIBLE_DEVICES = "{own}"')
    return replace(spec, visible=own, when_no_gpu=CPU)


def _common(section: Section, *, builtin: bool) -> dict[str, Any]:
    """The keys that every program may have. Those of `env` are noted one by one: it may hold secrets."""
    plain = {key: setting for key, setting in program_settings(command=False).items() if key != "env"}
    values = read(section, plain)
    parts = {name: kind(**{key: values.pop(key) for key in settings_of(kind)}) for kind, name in ProgramSpec.FIELDS.items()}
    return values | parts | {"env": _env(section, builtin=builtin)}


def _env(section: Section, *, builtin: bool) -> dict[str, str]:
    """The program's own environment variables. Values that look secret never reach a message."""
    table, env = section.body.get("env", {}), {}
    if not isinstance(table, dict):
        section.refuse("env", f'must be a table of strings, {{ NAME = "value" }}, not {shown(table)}')
        return {}
    inner = Section(section.validation, (*section.path, "env"), table)
    for variable, value in table.items():
        secret = secrets.NAME.search(variable) is not None
        if not _ENV_NAME.fullmatch(variable):
            inner.refuse(variable, ": a variable's name is not empty and holds neither = nor NUL")
        elif variable in SET_BY_US:
            inner.refuse(variable, f": {variable} is set by extralife for each attempt; remove it")
        elif builtin and variable.startswith("RL_"):
            known = {option.env_name: f"{option.name} = ..." for option in OPTIONS.values()}
            instead = known.get(variable, "the key of that name")
            inner.refuse(variable, f": a built-in program takes no RL_* of its own; set {instead} instead")
        elif not isinstance(value, str) or "\0" in value:
            inner.refuse(variable, f'must be a string without NUL, such as "1"{"" if secret else f", not {shown(value)}"}')
        elif builtin or scripts.used_in(inner, variable, value, secret=secret) is not None:
            env[variable] = value
            inner.note(variable, "***" if secret or _LOGIN.search(value) else value)
    return env


def _gpu_env(section: Section, common: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Variables that show CUDA a single GPU, counted in bus order like NVML and nvidia-smi. CUDA's own order is by speed."""
    if common["gpu"] is None:
        return {}
    if _VISIBLE in env:
        section.refuse("gpu", "says the same as env.CUDA_VISIBLE_DEVICES; remove one of the two")
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", _VISIBLE: str(common["gpu"])}


def _on_device(section: Section, device: str, common: dict[str, Any]) -> None:
    """A program without CUDA waits for no GPU and no GPU memory; a program on `cuda:1` waits for that GPU."""
    number = device.partition(":")[2]
    if number and not number.isdecimal():
        return  # refused already
    if device == "cpu":
        common["min_free_mb"], common["when_no_gpu"] = 0, CPU
    elif device == "cuda":
        common["asks_gpu"] = 'device = "cuda"'
    elif number and common["gpu"] is not None:
        section.refuse("gpu", f'says the same as device = "{device}"; remove one of the two')
    elif number:
        common["gpu"] = int(number)


def _digest(body: object) -> str:
    data = json.dumps(body, sort_keys=True, default=str).encode()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _caps(threads: int) -> dict[str, str]:
    """Limits of threads: without them, torch, BLAS and OpenMP would each start a thread for every core that they see."""
    return dict.fromkeys(_THREAD_CAPS, str(threads))


# --- built-in games --------------------------------------------------------------------------------------------------


def _builtin_program(section: Section, defaults: Defaults) -> ProgramSpec | None:
    before = len(section.validation.errors)
    common_settings, of_commands = program_settings(command=False), program_settings(command=True)
    for key in section.body:
        if key in of_commands:
            section.refuse(key, f"is for a program with a command; set command, or remove {key}")
        elif key not in OPTIONS and key not in common_settings:
            section.refuse(key, f"is not a setting{foreign_names.hint(key, (*OPTIONS, *common_settings))}")
    values = defaults.given | options(section) | defaults.overrides
    common = _common(section, builtin=True)
    game = _game(section, defaults)
    own = {key: value for key, (value, _) in values.items() if key != "game" and value != OPTIONS[key].default}
    values = _with_load(values, defaults)
    # Options that are each valid alone. Each error begins with the wrong option and has its place.
    resolved: dict[str, object] = {key: option.default for key, option in OPTIONS.items() if option.default is not None}
    resolved |= {key: value for key, (value, _) in values.items()}
    if isinstance(resolved.get("fallback_batch"), int):
        scripts.check_fallback(section, values["fallback_batch"], resolved["batch_size"])
    for sentence in check_together(resolved):
        key = sentence.partition(" ")[0]
        section.validation.error(values[key][1] if key in values else section.at(), sentence)
    if game is None or len(section.validation.errors) > before:
        return None
    settings = {key: values[key][0] if key in values else option.default for key, option in OPTIONS.items()}
    settings["game"] = game
    for key, value in settings.items():
        by_name = key == "game" and "game" not in section and section.name in _KNOWN_GAMES
        section.note(key, value, section.at() if by_name else values[key][1] if key in values else Origin(DEFAULT))
    common["env"] |= _gpu_env(section, common, common["env"])
    _on_device(section, str(settings["device"]), common)
    if len(section.validation.errors) > before:
        return None
    spec = _builtin_spec(section.name, settings, values, common, defaults)
    return replace(spec, own_digest=_digest(["builtin", settings["game"], own, common["env"]]))


def _with_load(values: Options, defaults: Defaults) -> Options:
    """`values`, completed with the load of the preset, else of the level; and with `auto` as a number."""
    given = {key: value for key, (value, _) in values.items()}
    by_preset = Origin(DERIVED, f"preset {given.get('preset')}")
    preset = {key: (value, by_preset) for key, value in preset_values(given).items()}
    values = defaults.load | values | preset
    if values["batch_size"][0] == AUTO:
        most = batch_limit(given, defaults.level.batch_size)
        plain = {"algo": OPTIONS["algo"].default, "n_steps": OPTIONS["n_steps"].default}
        settled = plain | {key: value for key, (value, _) in values.items()}
        source = f"auto, at most {most} ({values['batch_size'][1]})"
        values = values | {"batch_size": (valid_batch(settled, most), Origin(DERIVED, source))}
    return values


def options(section: Section) -> Options:
    """The options of a built-in program in [training] or its own section, checked."""
    return {key: (value, section.at(key)) for key, value in given(section, _OPTIONS).items()}


def _game(section: Section, defaults: Defaults) -> str | None:
    """Its own `game`, else its name if that is a game, else [training]'s."""
    if "game" in section:
        return str(section.body["game"])  # checked with the other options
    if section.name in _KNOWN_GAMES:
        return section.name
    if "game" in defaults.given:
        return str(defaults.given["game"][0])
    what = f"{section.name} is not one of the {len(_KNOWN_GAMES)} known games{nearest(section.name, _KNOWN_GAMES)}"
    section.refuse(None, f": {what}; {_HOW}")
    return None


def _builtin_spec(
    name: str, settings: Mapping[str, Any], values: Options, common: dict[str, Any], defaults: Defaults
) -> ProgramSpec:
    flags = [
        word
        for key in sorted(settings.keys() - {"game"})
        if settings[key] is not None
        for word in (OPTIONS[key].flag, str(settings[key]).lower() if settings[key] in (True, False) else str(settings[key]))
    ]
    argv = (sys.executable, "-P", "-m", "workers", "--program", name, "--game", settings["game"], *flags)
    moved = {
        key: value
        for key, value in settings.items()
        if value != OPTIONS[key].default and not (key == "threads" and values[key][1].kind == DERIVED)
    }
    env = {"PYTHONUNBUFFERED": "1"} | _caps(settings["threads"])
    if (_ROOT / "pyproject.toml").is_file():  # a worker must find the code from its run directory, also without installation
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), defaults.environ.get("PYTHONPATH")]))
    env |= common["env"]
    return ProgramSpec(
        name, argv, _digest(["builtin", moved, common["env"]]), builtin=True, game=settings["game"], progress=Progress.BEAT,
        num_envs=settings["num_envs"], batch_size=settings["batch_size"], fallback_batch=settings["fallback_batch"],
        **common | {"env": tuple(sorted(env.items()))},
    )  # fmt: skip


def rl_overrides(validation: Validation, values: Mapping[str, Value], errors: list[str]) -> Options:
    """`RL_*` as overrides of every built-in program; the parsing is the worker's own (`workers/options.py`)."""
    given = {key: (value, Origin(ENVIRONMENT, OPTIONS[key].env_name)) for key, value in values.items()}
    for error in errors:
        validation.add(f"{error}; correct it or unset it")
    if "game" in given:
        validation.error(
            given.pop("game")[1], 'one game for every program makes no sense; set game = "NAME" in [program.NAME]'
        )
    if "device" in given and not re.fullmatch(_DEVICE.pattern, str(given["device"][0])):
        validation.error(given["device"][1], f"device must be {_DEVICE.form}, not {shown(given['device'][0])}")
    return given


# --- commands --------------------------------------------------------------------------------------------------------


def _command_program(section: Section, defaults: Defaults) -> ProgramSpec | None:
    before, name = len(section.validation.errors), section.name
    known = (*program_settings(command=False), *program_settings(command=True), *scripts.OWN_KEYS)
    for key in section.body:
        if key in OPTIONS and key not in scripts.OWN_KEYS:
            section.refuse(key, f"is for built-in games and {section.name} has a command; remove one of the two")
        elif key not in known:
            section.refuse(key, f"is not a setting{foreign_names.hint(key, known)}")
    section = scripts.filled_patterns(section, _constant_placeholders(section, defaults))
    values = _values(section)
    env, service = values["env"], values["kind"] == SERVICE
    command = scripts.command(section, shell=values["shell"], service=service)
    place = _directory(section, values["directory"])
    values["figures"] = figures.sources(section, values, service=service)
    values["progress"] = _progress(section, values, service=service)
    command_keys.check_checkpoints(section, service=service)
    command_keys.check_process(section, values)
    values["health"] = command_keys.health_check(section, service=service)
    own = scripts.own(section)
    reads = frozenset(choices(section, "level_values", values["level_values"], placeholders.OF_LEVEL, "value of a level"))
    values["follows_level"] = scripts.follows_level(section, values, [*command.words, *env.values()])
    # An error that another level has reported already is not added again, so it does not raise the count.
    if len(section.validation.errors) > before or not command.words or own is None:
        return None
    used = reads | placeholders.uses([*command.words, *env.values(), place])
    run_dir = defaults.paths.run_dir(name) if defaults.paths else ""
    more = {"name": name, "run_dir": run_dir} | ({} if values["gpu"] is None else {"gpu": str(values["gpu"])})
    made = scripts.values(section, own, used, load=defaults.load, level=defaults.level.name, more=more, service=service)
    env |= _gpu_env(section, values, env)
    if made is None or len(section.validation.errors) > before:
        return None
    values["directory"] = os.path.normpath(placeholders.fill(place, made.known)) if place else ""
    section.note("command", command.words)
    section.note("directory", values["directory"])
    section.note("level_values", sorted(reads))
    if "figures" in section:
        section.note("figures", dict(values["figures"].names))
    if service and values["min_free_mb"] is None:
        values["min_free_mb"] = 0
    caps = {key: value for key, value in _caps(defaults.threads).items() if key not in defaults.environ}
    spec = ProgramSpec(
        name, command.words, "", service=service, template=scripts.template(command, made), game=made.game,
        num_envs=made.num_envs, batch_size=made.batch_size, fallback_batch=made.fallback_batch,
        **{field: values[field] for field in _FIELDS if field in values}
        | {"env": tuple(sorted(({"PYTHONUNBUFFERED": "1"} | caps | env).items()))},
    )  # fmt: skip
    where = place if placeholders.uses([place]) else spec.directory
    spec = _digested(spec, env, where, made, used | own.keys())
    _warn(section, spec, env, defaults.environ)
    return spec


def _values(section: Section) -> dict[str, Any]:
    # Most programs name no source of figures, and need no word on levels.
    quiet = ("follows_level", *FIGURE_KEYS, *(() if "checkpoint_glob" in section else command_keys.CHECKPOINT_KEYS))
    plain = {key: each for key, each in program_settings(command=True).items() if key not in ("command", "health")}
    return _common(section, builtin=False) | read(section, plain, {**command_keys.PARSERS, **figures.PARSERS}, quiet)


def _constant_placeholders(section: Section, defaults: Defaults) -> dict[str, str]:
    """The placeholders whose values are the same at each start. {seed} is not: a rollback changes it."""
    name = section.name
    game, gpu = section.body.get("game", name if name in _KNOWN_GAMES else None), section.body.get("gpu")
    found = {"name": name} | ({"run_dir": defaults.paths.run_dir(name)} if defaults.paths else {})
    return found | ({"game": game} if isinstance(game, str) else {}) | ({"gpu": str(gpu)} if isinstance(gpu, int) else {})


def _digested(
    spec: ProgramSpec, env: Mapping[str, str], where: str, made: scripts.Values, used: frozenset[str]
) -> ProgramSpec:  # fmt: skip
    """The spec with its digests. A program without values of the level has no `own_digest`: no level restarts it."""
    body: list[object] = ["command", spec.argv, env, where, spec.progress.value, spec.progress_glob]
    body += ["service"] if spec.service else []
    plain = ProgramSpec("", (), "")
    at_start = {key: getattr(spec, key) for key in command_keys.AT_START if getattr(spec, key) != getattr(plain, key)}
    body += [at_start] if at_start else []
    body += [asdict(spec.health)] if spec.health is not None else []
    body += [spec.template.groups] if spec.template and spec.template.groups else []
    taken = {key: value for key, value in made.known.items() if key in used and key not in {"name", "run_dir", "gpu"}}
    own = {key: value for key, value in taken.items() if key not in made.of_level}
    return replace(
        spec, digest=_digest([*body, taken] if taken else body),
        own_digest=_digest([*body, sorted(made.of_level), own]) if made.of_level else "",
    )  # fmt: skip


def _directory(section: Section, value: str) -> str:
    """The absolute path, with its placeholders. A relative one is relative to the configuration file, beside the script."""
    used = scripts.used_in(section, "directory", value)
    if used is None:
        return ""
    if placeholders.RESUME in used:
        section.refuse("directory", "cannot hold {resume}, which is empty at a first start; remove it")
        return ""
    if not value or value.startswith("{run_dir}"):
        return value
    path = section.validation.source.path
    base = Path(path).parent if path else Path.cwd()
    return os.path.join(placeholders.escaped(str(base)), os.path.expanduser(value))  # noqa: PTH111, PTH118  Path's raises for ~nobody


def _progress(section: Section, values: dict[str, Any], *, service: bool) -> Progress:
    """The source of progress. It sets `progress_glob` too."""
    glob, values["progress_glob"] = values["progress_glob"], ""
    if service:
        for key in ("progress", "progress_glob", "stall_timeout_s", "start_timeout_s"):
            if key in section:
                section.refuse(key, ": a service is not judged by progress; remove it, or the kind")
        section.note("progress", Progress.NONE.value)
        return Progress.NONE
    value = Progress(values["progress"]) if "progress" in section else Progress.AUTO
    if value is Progress.FIGURES and (message := figures.progress_error(values["figures"])):
        section.refuse("progress", f": {message}")
    if value in (Progress.FILES, Progress.AUTO):
        values["progress_glob"] = glob
    elif "progress_glob" in section:
        message = 'has no effect with this source of progress; set progress = "files" or "auto", or remove it'
        section.refuse("progress_glob", message)
    if value is Progress.FILES and "progress_glob" not in section:
        section.refuse(
            "progress_glob",
            'is missing: progress = "files" needs a pattern inside the directory, such as "checkpoints/*.pt"',
        )
    section.note("progress", value.value)
    section.note("progress_glob", values["progress_glob"])
    return value


def _warn(section: Section, spec: ProgramSpec, env: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Warn of problems that may disappear (a disk is mounted later): they are no reason to refuse every other program."""
    command_keys.warn_about_process(section, spec)
    path = env.get("PATH", environ.get("PATH"))
    if why := background.as_another_user(spec.argv, path):
        section.warn("command", why)
    if spec.directory and not Path(spec.directory).is_dir():
        section.warn("directory", f"{spec.directory} does not exist (yet)")
        return
    if placeholders.uses([spec.argv[0]]):
        return
    program = placeholders.fill(spec.argv[0], {})
    place = str(Path(spec.directory or "/") / program) if "/" in program else program
    if shutil.which(place, path=path) is None:
        section.warn("command", f"{program} is not found, or not executable (yet)")
