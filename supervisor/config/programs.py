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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from supervisor.config import foreign_names, scripts
from supervisor.config.figures import check_shared, progress_error, sources
from supervisor.config.overlaps import may_meet
from supervisor.config.own_checkpoints import notes, own_checkpoints
from supervisor.config.process_keys import changed_at_start, process_settings, warn_about_process
from supervisor.config.seeds import expanded
from supervisor.config.service_health import health_check
from supervisor.config.tables import COMMON_KEYS, FIGURE_KEYS, FOREIGN_KEYS, KINDS, Key, program_keys
from supervisor.config.taking import read_key
from supervisor.config.validation import DEFAULT, DERIVED, ENVIRONMENT, Origin, Validation, label, shown
from supervisor.model.settings import Level, Paths, ProgramSpec, Progress
from supervisor.policy.worker import placeholders
from supervisor.policy.worker.restart import RESTARTS
from supervisor.records import dataclass
from workers import contract
from workers.options import AUTO, EXTRA_GAMES, GAMES, OPTIONS, Value, check_together, nearest, valid_batch
from workers.presets import batch_limit, preset_values

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_DEVICE: Final = re.compile(r"auto|cpu|cuda(:[0-9]{1,2})?")
_ENV_NAME: Final = re.compile(r"[^=\0]+")
_SECRET: Final = re.compile(r"key|token|secret|passw|pwd|credential|auth|cookie|private|signature", re.IGNORECASE)
_LOGIN: Final = re.compile(r"://[^/@\s]*:[^/@\s]*@")  # a URL with a password in it
_THREAD_CAPS: Final = ("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_KNOWN_GAMES: Final = (*GAMES, *EXTRA_GAMES)
_HOW: Final = 'for a built-in game set game = "NAME", for a program of your own set command = ["python", "train.py"]'
_ROOT: Final = Path(__file__).resolve().parents[2]

Options = dict[str, tuple[Value, Origin]]  # option -> value and where it came from


@dataclass(frozen=True, slots=True)
class Defaults:
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
        if not _NAME.fullmatch(name):
            validation.error(
                validation.at("program", name),
                f"{label('program', name)}: a program's name is 1 to 64 letters, digits, _ . -, not beginning with . or -",
            )
        elif name == "all":
            validation.error(validation.at("program", name), "program.all: `all` means every program; choose another name")
        elif not isinstance(table, dict):
            validation.error(
                validation.at("program", name),
                f"{label('program', name)} must be a section, [program.{name}], not {shown(table)}",
            )
        else:
            made = _command_program if "command" in table else _builtin_program
            spec = made(validation, name, table, defaults)
            if spec is not None:
                specs.append(_with_visible_gpus(spec, defaults.environ))
    _check_shared_checkpoints(validation, specs)
    check_shared(validation, specs)
    return tuple(sorted(specs, key=lambda spec: (spec.priority, spec.name)))


def _check_shared_checkpoints(validation: Validation, specs: Sequence[ProgramSpec]) -> None:
    """Refuse programs with the same checkpoints: each would resume from those of the other."""
    of: dict[str, str] = {}  # the first program of each pattern
    for spec in specs:
        if not spec.checkpoint_glob or not (spec.directory or spec.checkpoint_glob.startswith("/")):
            continue  # in its own run directory
        place = os.path.normpath(str(Path(spec.directory) / spec.checkpoint_glob))
        if place not in of:
            _warn_of_overlap(validation, spec, place, of)
        other = of.setdefault(place, spec.name)
        if other != spec.name:
            message = f"{place} are the checkpoints of {other}, too, and each would resume from the other's"
            validation.refuse(
                spec.name, "checkpoint_glob", f"{message}; put {{name}} into it, or give each a directory", ":"
            )


def _warn_of_overlap(validation: Validation, spec: ProgramSpec, place: str, of: Mapping[str, str]) -> None:
    known = next((known for known in of if may_meet(known, place)), None)
    if known is not None:
        message = f"{place} can match checkpoints of {of[known]} ({known}), and each would resume from the other's"
        validation.warn(
            validation.at("program", spec.name, "checkpoint_glob"),
            f"{label('program', spec.name, 'checkpoint_glob')}: {message}; give each a directory of its own",
        )


def _common(validation: Validation, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that every program may have, as fields of its spec."""
    values: dict[str, Any] = {}
    for key, rule in program_keys().items():
        value = read_key(validation, rule, ("program", name, key), table)
        values[key] = value if value is not None else rule.option.default
    if values["group"] and not _NAME.fullmatch(str(values["group"])):
        validation.error(
            validation.at("program", name, "group"),
            f"{label('program', name, 'group')} is 1 to 64 letters, digits, _ . -, not beginning with . or -",
        )
    return values


def _with_visible_gpus(spec: ProgramSpec, environ: Mapping[str, str]) -> ProgramSpec:
    """The spec with its visible GPUs, from its own environment or the daemon's, unless `gpu` has set them already."""
    env = dict(spec.env)
    if spec.gpu is not None and (env.get("CUDA_DEVICE_ORDER"), env.get(_VISIBLE)) == ("PCI_BUS_ID", str(spec.gpu)):
        return spec
    return replace(spec, visible=env.get(_VISIBLE, environ.get(_VISIBLE)))


def _env(validation: Validation, name: str, table: Mapping[str, Any], *, builtin: bool) -> dict[str, str]:
    """The program's own environment variables. Values that look secret never reach a message."""
    given, env = table.get("env", {}), {}
    if not isinstance(given, dict):
        key = label("program", name, "env")
        validation.error(
            validation.at("program", name, "env"),
            f'{key} must be a table of strings, {{ NAME = "value" }}, not {shown(given)}',
        )
        return {}
    ours = {value for key, value in vars(contract).items() if key.startswith("ENV_")}
    for variable, value in given.items():
        origin, key = validation.at("program", name, "env", variable), label("program", name, "env", variable)
        if not _ENV_NAME.fullmatch(variable):
            validation.error(origin, f"{key}: a variable's name is not empty and holds neither = nor NUL")
        elif variable in ours:
            validation.error(origin, f"{key}: {variable} is set by extralife for each attempt; remove it")
        elif builtin and variable.startswith("RL_"):
            validation.error(origin, f"{key}: a built-in program takes no RL_* of its own; set {_setting(variable)} instead")
        elif not isinstance(value, str) or "\0" in value:
            given_value = "" if _SECRET.search(variable) else f", not {shown(value)}"
            validation.error(origin, f'{key} must be a string without NUL, such as "1"{given_value}')
        else:
            path = ("program", name, "env", variable)
            if not builtin and scripts.used_in(validation, path, value, secret=_SECRET.search(variable) is not None) is None:
                continue
            env[variable] = value
            validation.note(key, "***" if _SECRET.search(variable) or _LOGIN.search(value) else value, origin)
    return env


def _gpu_env(validation: Validation, name: str, common: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Variables that show CUDA a single GPU, counted in bus order like NVML and nvidia-smi. CUDA's own order is by speed."""
    if common["gpu"] is None:
        return {}
    if _VISIBLE in env:
        message = "says the same as env.CUDA_VISIBLE_DEVICES; remove one of the two"
        validation.error(validation.at("program", name, "gpu"), f"{label('program', name, 'gpu')} {message}")
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", _VISIBLE: str(common["gpu"])}


def _on_device(validation: Validation, name: str, device: str, common: dict[str, Any]) -> None:
    """A program without CUDA does not wait for GPU memory; a program on `cuda:1` waits for the memory of that GPU."""
    number = device.partition(":")[2]
    if number and not number.isdecimal():
        return  # refused already
    if device == "cpu":
        common["min_free_mb"] = 0
    elif number and common["gpu"] is not None:
        message = f'says the same as device = "{device}"; remove one of the two'
        validation.error(validation.at("program", name, "gpu"), f"{label('program', name, 'gpu')} {message}")
    elif number:
        common["gpu"] = int(number)


def _setting(variable: str) -> str:
    known = {option.env_name: option.name for option in OPTIONS.values()}
    return f"{known[variable]} = ..." if variable in known else "the key of that name"


def _digest(body: object) -> str:
    data = json.dumps(body, sort_keys=True, default=str).encode()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _caps(threads: int) -> dict[str, str]:
    """Limits of threads: without them, torch, BLAS and OpenMP would each start a thread for every core that they see."""
    return dict.fromkeys(_THREAD_CAPS, str(threads))


# --- built-in games --------------------------------------------------------------------------------------------------


def _builtin_program(validation: Validation, name: str, table: Mapping[str, Any], defaults: Defaults) -> ProgramSpec | None:
    before = len(validation.errors)
    values = dict(defaults.given)
    known = (*OPTIONS, *COMMON_KEYS)
    for key, value in table.items():
        path = ("program", name, key)
        if key in OPTIONS:
            option(validation, path, value, values)
        elif key in FOREIGN_KEYS:
            validation.error(
                validation.at(*path), f"{label(*path)} is for a program with a command; set command, or remove {key}"
            )
        elif key not in COMMON_KEYS:
            validation.error(
                validation.at(*path),
                f"{label(*path)} is not a setting{foreign_names.hint(key, known)}",
            )
    values |= defaults.overrides
    common, env = _common(validation, name, table), _env(validation, name, table, builtin=True)
    game = _game(validation, name, table, defaults)
    own = {key: value for key, (value, _) in values.items() if key != "game" and value != OPTIONS[key].default}
    values = _with_load(values, defaults)
    _check_together(validation, name, values)
    if game is None or len(validation.errors) > before:
        return None
    settings = {key: values[key][0] if key in values else option.default for key, option in OPTIONS.items()}
    settings["game"] = game
    for key, value in settings.items():
        by_name = key == "game" and "game" not in table and name in _KNOWN_GAMES
        origin = validation.at("program", name) if by_name else values[key][1] if key in values else Origin(DEFAULT)
        validation.note(label("program", name, key), value, origin)
    env |= _gpu_env(validation, name, common, env)
    _on_device(validation, name, str(settings["device"]), common)
    if len(validation.errors) > before:
        return None
    spec = _builtin_spec(name, settings, values, env, common, defaults)
    return replace(spec, own_digest=_digest(["builtin", settings["game"], own, env]))


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


def option(validation: Validation, path: tuple[str, ...], value: object, values: Options) -> None:
    """Check one option of a built-in program, from [training] or its own section, and add it to `values`."""
    name = label(*path)
    try:
        checked = Key(OPTIONS[path[-1]]).check(value, name)
        if path[-1] == "device" and not _DEVICE.fullmatch(str(checked)):
            raise ValueError(f"{name} must be auto, cpu, cuda or cuda:N, not {shown(checked)}")
    except ValueError as error:
        validation.error(validation.at(*path), str(error))
    else:
        values[path[-1]] = checked, validation.at(*path)


def _game(validation: Validation, name: str, table: Mapping[str, Any], defaults: Defaults) -> str | None:
    """Its own `game`, else its name if that is a game, else [training]'s."""
    if "game" in table:
        return str(table["game"])  # checked with the other options
    if name in _KNOWN_GAMES:
        return name
    if "game" in defaults.given:
        return str(defaults.given["game"][0])
    validation.error(
        validation.at("program", name),
        f"{label('program', name)}: {name} is not one of the {len(_KNOWN_GAMES)} known games"
        f"{nearest(name, _KNOWN_GAMES)}; {_HOW}",
    )
    return None


def _check_together(validation: Validation, name: str, values: Options) -> None:
    """Check options together that are each valid alone. Each error begins with the wrong option and has its place."""
    resolved: dict[str, object] = {key: option.default for key, option in OPTIONS.items() if option.default is not None}
    resolved |= {key: value for key, (value, _) in values.items()}
    fallback, batch = resolved.get("fallback_batch"), resolved["batch_size"]
    if isinstance(fallback, int) and isinstance(batch, int) and fallback >= batch:
        message = f"fallback_batch {fallback} is no smaller than batch_size {batch} and has no effect"
        validation.warn(values["fallback_batch"][1], f"{label('program', name)}: {message}")
    for sentence in check_together(resolved):
        key = sentence.partition(" ")[0]
        validation.error(values[key][1] if key in values else validation.at("program", name), sentence)


def _builtin_spec(
    name: str, settings: Mapping[str, Any], values: Options, env: dict[str, str], common: dict[str, Any], defaults: Defaults
) -> ProgramSpec:
    flags = [
        word
        for key in sorted(settings.keys() - {"game"})
        if settings[key] is not None
        for word in (OPTIONS[key].flag, _word(settings[key]))
    ]
    argv = (sys.executable, "-P", "-m", "workers", "--program", name, "--game", settings["game"], *flags)
    moved = {
        key: value
        for key, value in settings.items()
        if value != OPTIONS[key].default and not (key == "threads" and values[key][1].kind == DERIVED)
    }
    surroundings = {"PYTHONUNBUFFERED": "1"} | _caps(settings["threads"]) | _checkout(defaults.environ)
    return ProgramSpec(
        name, argv, _digest(["builtin", moved, env]), env=tuple(sorted((surroundings | env).items())), builtin=True,
        game=settings["game"], progress=Progress.BEAT, num_envs=settings["num_envs"], batch_size=settings["batch_size"],
        fallback_batch=settings["fallback_batch"], **common,
    )  # fmt: skip


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checkout(environ: Mapping[str, str]) -> dict[str, str]:
    """A worker starts in its run directory, and must find the code there even if the checkout is not installed."""
    if not (_ROOT / "pyproject.toml").is_file():
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), environ.get("PYTHONPATH")]))}


def rl_overrides(validation: Validation, values: Mapping[str, Value], errors: list[str]) -> Options:
    """`RL_*` as overrides of every built-in program; the parsing is the worker's own (`workers/options.py`)."""
    given = {key: (value, Origin(ENVIRONMENT, OPTIONS[key].env_name)) for key, value in values.items()}
    for error in errors:
        validation.add(f"{error}; correct it or unset it")
    if "game" in given:
        validation.error(
            given.pop("game")[1], 'one game for every program makes no sense; set game = "NAME" in [program.NAME]'
        )
    if "device" in given and not _DEVICE.fullmatch(str(given["device"][0])):
        validation.error(given["device"][1], f"device must be auto, cpu, cuda or cuda:N, not {shown(given['device'][0])}")
    return given


# --- commands --------------------------------------------------------------------------------------------------------


def _command_program(validation: Validation, name: str, table: Mapping[str, Any], defaults: Defaults) -> ProgramSpec | None:
    before = len(validation.errors)
    _check_keys(validation, name, table)
    table = scripts.filled_patterns(validation, name, table, _constant_placeholders(name, table, defaults))
    common, env = _common(validation, name, table), _env(validation, name, table, builtin=False)
    command = scripts.command(validation, name, table)
    place = _directory(validation, name, table.get("directory", ""))
    service = _one_of(validation, name, "kind", KINDS, table) == KINDS[1]
    again = _one_of(validation, name, "restart", RESTARTS, table)
    figures = sources(validation, name, table, service=service, is_glob=_is_glob)
    progress, glob = _progress(validation, name, table, service=service)
    own = own_checkpoints(validation, name, table, service=service)
    if progress is Progress.FIGURES and (message := progress_error(figures)):
        validation.error(validation.at("program", name, "progress"), f"{label('program', name, 'progress')}: {message}")
    codes = _done_codes(validation, name, table.get("done_codes", [0]))
    process = process_settings(validation, name, table)
    health = health_check(validation, name, table, service=service)
    given, reads = scripts.own(validation, name, table), scripts.read_by_script(validation, name, table)
    follows = scripts.follows_level(validation, name, table, [*command.words, *env.values()])
    # An error that another level has reported already is not added again, so it does not raise the count.
    if len(validation.errors) > before or not command.words or given is None:
        return None
    used = reads | placeholders.uses([*command.words, *env.values(), place])
    run_dir = defaults.paths.run_dir(name) if defaults.paths else ""
    more = {"name": name, "run_dir": run_dir} | ({} if common["gpu"] is None else {"gpu": str(common["gpu"])})
    made = scripts.values(
        validation, name, given, used, load=defaults.load, level=defaults.level.name, more=more, service=service
    )  # fmt: skip
    env |= _gpu_env(validation, name, common, env)
    if made is None or len(validation.errors) > before:
        return None
    directory = os.path.normpath(placeholders.fill(place, made.known)) if place else ""
    shown_values = {
        "command": [*command.words], "directory": directory, "progress": progress.value, "progress_glob": glob,
        "log_regex": list(figures.log_regex), "json_lines": figures.json_lines,
        "csv_glob": figures.csv_glob, "events_glob": figures.events_glob,
        "figures": dict(figures.names), "target_steps": figures.target_steps, "steps_begin_anew": figures.begin_anew,
        "done_codes": list(codes), "kind": KINDS[service], "restart": again, "shell": command.shell,
        "level_values": sorted(reads), "follows_level": follows,
    }  # fmt: skip
    for key, value in shown_values.items():
        if key in (*FIGURE_KEYS, "follows_level") and key not in table:
            continue  # most programs name no source, and need no word on levels
        origin = validation.at("program", name, key) if key in table else Origin(DEFAULT)
        validation.note(label("program", name, key), value, origin)
    if service and common["min_free_mb"] is None:
        common["min_free_mb"] = 0
    where = place if placeholders.uses([place]) else directory
    body = ["command", command.words, env, where, progress.value, glob, *(["service"] if service else [])]
    if at_start := changed_at_start(process):
        body.append(at_start)
    if health is not None:
        body.append(asdict(health))
    spec = ProgramSpec(
        name, command.words, "", directory=directory, progress=progress, progress_glob=glob, figures=figures,
        done_codes=codes, service=service, restart=again, template=scripts.template(command, made), game=made.game,
        num_envs=made.num_envs, batch_size=made.batch_size, fallback_batch=made.fallback_batch, follows_level=follows,
        health=health, **process, **own, **common,
    )  # fmt: skip
    for key, value in notes(spec).items():
        validation.note(
            label("program", name, key), value, validation.at("program", name, key) if key in table else Origin(DEFAULT)
        )
    caps = {key: value for key, value in _caps(defaults.threads).items() if key not in defaults.environ}
    spec = replace(spec, env=tuple(sorted(({"PYTHONUNBUFFERED": "1"} | caps | env).items())))
    spec = _digested(spec, body, made, used | given.keys())
    _warn(validation, spec, env, defaults.environ)
    return spec


def _constant_placeholders(name: str, table: Mapping[str, Any], defaults: Defaults) -> dict[str, str]:
    """The placeholders whose values are the same at each start. {seed} is not: a rollback changes it."""
    game, gpu = table.get("game", name if name in _KNOWN_GAMES else None), table.get("gpu")
    found = {"name": name} | ({"run_dir": defaults.paths.run_dir(name)} if defaults.paths else {})
    return found | ({"game": game} if isinstance(game, str) else {}) | ({"gpu": str(gpu)} if isinstance(gpu, int) else {})


def _check_keys(validation: Validation, name: str, table: Mapping[str, Any]) -> None:
    known = (*COMMON_KEYS, *FOREIGN_KEYS, *scripts.OWN_KEYS)
    for key in table:
        path = ("program", name, key)
        if key in OPTIONS and key not in scripts.OWN_KEYS:
            validation.error(
                validation.at(*path), f"{label(*path)} is for built-in games and {name} has a command; remove one of the two"
            )
        elif key not in known:
            validation.error(
                validation.at(*path),
                f"{label(*path)} is not a setting{foreign_names.hint(key, known)}",
            )


def _digested(spec: ProgramSpec, body: Sequence[object], made: scripts.Values, used: frozenset[str]) -> ProgramSpec:
    """The spec with its digests. A program without values of the level has no `own_digest`: no level restarts it."""
    taken = {key: value for key, value in made.known.items() if key in used and key not in {"name", "run_dir", "gpu"}}
    groups = [spec.template.groups] if spec.template and spec.template.groups else []
    body = [*body, *groups]
    own = {key: value for key, value in taken.items() if key not in made.of_level}
    return replace(
        spec,
        digest=_digest([*body, taken] if taken else body),
        own_digest=_digest([*body, sorted(made.of_level), own]) if made.of_level else "",
    )


def _directory(validation: Validation, name: str, value: object) -> str:
    """The absolute path, with its placeholders. A relative one is relative to the configuration file, beside the script."""
    path = ("program", name, "directory")
    if not isinstance(value, str) or "\0" in value:
        validation.error(
            validation.at(*path), f"{label(*path)} must be the path of a directory, a string, not {shown(value)}"
        )
        return ""
    used = scripts.used_in(validation, path, value)
    if used is None:
        return ""
    if placeholders.RESUME in used:
        validation.error(
            validation.at(*path), f"{label(*path)} cannot hold {{resume}}, which is empty at a first start; remove it"
        )
        return ""
    if not value or value.startswith("{run_dir}"):
        return value
    base = Path(validation.source.path).parent if validation.source.path else Path.cwd()
    return os.path.join(placeholders.escaped(str(base)), os.path.expanduser(value))  # noqa: PTH111, PTH118  Path's raises for ~nobody


def _one_of(validation: Validation, name: str, key: str, words: tuple[str, ...], table: Mapping[str, Any]) -> str:
    value, path = table.get(key, words[0]), ("program", name, key)
    if not isinstance(value, str) or value not in words:
        hint = nearest(value, words) if isinstance(value, str) else ""
        validation.error(validation.at(*path), f"{label(*path)} must be one of {', '.join(words)}, not {shown(value)}{hint}")
        return words[0]
    return value


def _progress(validation: Validation, name: str, table: Mapping[str, Any], *, service: bool) -> tuple[Progress, str]:
    if service:
        for key in ("progress", "progress_glob", "stall_timeout_s", "start_timeout_s"):
            if key in table:
                path = ("program", name, key)
                validation.error(
                    validation.at(*path), f"{label(*path)}: a service is not judged by progress; remove it, or the kind"
                )
        return Progress.NONE, ""
    value, glob = table.get("progress", Progress.AUTO.value), table.get("progress_glob", "")
    path = ("program", name, "progress")
    if not isinstance(value, str) or value not in list(Progress):
        hint = nearest(value, list(Progress)) if isinstance(value, str) else ""
        validation.error(
            validation.at(*path), f"{label(*path)} must be one of {', '.join(Progress)}, not {shown(value)}{hint}"
        )
        return Progress.AUTO, ""
    path = ("program", name, "progress_glob")
    if value != Progress.FILES and (value != Progress.AUTO or "progress_glob" not in table):
        if "progress_glob" in table:
            message = 'has no effect with this source of progress; set progress = "files" or "auto", or remove it'
            validation.error(validation.at(*path), f"{label(*path)} {message}")
        return Progress(value), ""
    if not isinstance(glob, str) or not glob or not _is_glob(glob):
        fault = "is missing" if "progress_glob" not in table else f"cannot be {shown(glob)}"
        validation.error(
            validation.at(*path),
            f'{label(*path)} {fault}: progress = "{value}" needs a pattern inside the directory, such as "checkpoints/*.pt"',
        )
        return Progress(value), ""
    return Progress(value), glob


def _is_glob(pattern: str) -> bool:
    try:
        next(Path("/proc/self/fdinfo").glob(pattern), None)  # pathlib refuses a wrong pattern at the first match
    except (ValueError, NotImplementedError, IndexError):
        return False
    return ".." not in Path(pattern).parts


def _done_codes(validation: Validation, name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, list) and value and all(type(code) is int and 0 <= code <= 255 for code in value):
        return tuple(sorted(set(value)))
    key = label("program", name, "done_codes")
    validation.error(
        validation.at("program", name, "done_codes"),
        f"{key} must be a list of exit codes, 0 to 255, such as [0], not {shown(value)}",
    )
    return (0,)


def _warn(validation: Validation, spec: ProgramSpec, env: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Warn of problems that may disappear (a disk is mounted later): they are no reason to refuse every other program."""
    warn_about_process(validation, spec)
    key = label("program", spec.name)
    if spec.directory and not Path(spec.directory).is_dir():
        validation.warn(
            validation.at("program", spec.name, "directory"), f"{key}.directory: {spec.directory} does not exist (yet)"
        )
        return
    program = spec.argv[0]
    if placeholders.uses([program]):
        return
    program = placeholders.fill(program, {})
    place = str(Path(spec.directory or "/") / program) if "/" in program else program
    if shutil.which(place, path=env.get("PATH", environ.get("PATH"))) is None:
        validation.warn(
            validation.at("program", spec.name, "command"), f"{key}.command: {program} is not found, or not executable (yet)"
        )
