"""Turns a file, the environment and the flags into checked settings, or into the list of all mistakes."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from importlib.util import find_spec
from typing import Any, Final

from supervisor import discovery, membership, places
from supervisor.as_user import other
from supervisor.config import added, directories, foreign_names, ladder, source
from supervisor.config.cores import usable_cores
from supervisor.config.programs import SET_BY_US, Defaults, options, programs, rl_overrides
from supervisor.config.scripts import Options
from supervisor.config.tables import DIRECTORIES, TOP, Setting, read, refuse_unknown, settings_of
from supervisor.config.validation import (
    DEFAULT,
    DERIVED,
    ENVIRONMENT,
    FILE,
    FLAG,
    ConfigError,
    Origin,
    Section,
    Validation,
    label,
)
from supervisor.config.whole_input import NO_SETTINGS, OVERRIDES, PREFIX, VARIABLES, ConfigInput, is_override
from supervisor.keys import declared
from supervisor.model.launching import Launching
from supervisor.model.settings import SECTIONS, Level, Paths, ProgramSpec, Rung, Settings
from supervisor.policy.level.load import CLIMB
from supervisor.records import Record, replace
from supervisor.users import UnknownUser
from workers.options import AUTO, OPTIONS, from_environment, nearest

LEVEL_OPTIONS: Final = ("num_envs", "batch_size", "threads")
# Sections with a module of their name here, or `config` in a feature's folder. Its `complete` returns the checked section.
_MODULES: Final = {
    name: importlib.import_module(f"{__package__}.{name}") for name in SECTIONS if find_spec(f"{__package__}.{name}")
} | {each.SECTION: each for each in discovery.modules("config")}
_SYSTEMD: Final = {"state_dir": "STATE_DIRECTORY", "runtime_dir": "RUNTIME_DIRECTORY"}  # systemd.exec(5)

Overrides = dict[tuple[str, str], tuple[object, Origin]]  # (section, key) -> a value of the environment or a flag


class Loaded(Record):
    """Checked settings; every key with its value (secrets masked) and origin; warnings, which are no reason to refuse."""

    settings: Settings
    origins: dict[str, Origin]
    values: dict[str, object]
    warnings: tuple[str, ...] = ()
    given: ConfigInput = field(default_factory=ConfigInput)


def load(
    path: str | None, environ: Mapping[str, str], flags: Mapping[str, object] | None = None, *, look: bool = True,
    starting: bool = False, as_owner: bool = False,
) -> Loaded:  # fmt: skip
    """Read, merge and check everything; nothing is applied until all of it is valid. Raises ConfigError.

    `flags` are [daemon]'s keys and `slots`, as strings or values; None is "not given". `look` is False if the caller only
    reads the settings: a client of another user does not own the daemon's directories.
    `starting` is True for the daemon's own start: mistakes that cost no training are warnings then.
    `as_owner` checks the directories for the owner of the state directory, if root calls.
    """
    file = source.read(path or places.find_config(environ))
    first = Validation(file)  # its state directory has the added programs; the next check reports its mistakes
    paths = _paths(first, environ, _overrides(first, environ, flags or {}, {}))
    whole, left_out = added.merged(file, None if paths is None else paths.state_dir)
    return _checked(Validation(whole, look, starting, warnings=left_out), environ, flags or {}, as_owner=as_owner)


def load_input(given: ConfigInput, environ: Mapping[str, str], where: str) -> Loaded:
    """The same for the input of an earlier load. Messages call it `where`. Raises ConfigError.

    From `environ`, only variables that are not settings are used, such as systemd's directories.
    """
    others = {key: value for key, value in environ.items() if not is_override(key)}
    validation = Validation(source.parsed(where, given.path, given.text, is_kept=True), starting=True)
    return _checked(validation, others | given.environ, given.flags)


def _checked(
    validation: Validation, environ: Mapping[str, str], flags: Mapping[str, object], *, as_owner: bool = False
) -> Loaded:
    for key in validation.source.body:
        if key not in TOP:
            known = foreign_names.hint(key, TOP, f"the sections are {', '.join(TOP)}")
            validation.error(validation.at(key), f"{label(key)} is not a section{known}")
    tables = validation.section("program").body
    has_builtin = any(isinstance(table, dict) and "command" not in table for table in tables.values())
    rl = rl_overrides(validation, *from_environment(environ)) if has_builtin else {}
    overrides = _overrides(validation, environ, flags, rl)
    validation.environ = environ
    made = {name: _section(validation, name, overrides) for name in SECTIONS}
    for name, module in _MODULES.items():
        made[name] = module.complete(validation, made[name], made)
    remote = validation.remote = any(each.remote for each in made.values() if isinstance(each, Launching))
    paths = _paths(validation, environ, overrides)
    levels, made["load"] = ladder.levels(validation, made["load"], overrides)

    def at(level: Level, section: str) -> tuple[ProgramSpec, ...]:
        return programs(validation, tables, _defaults(validation, level, section, rl, environ, paths))

    if levels:
        made["level"] = next((level for level in levels if level.name == made["load"].start), levels[0])
        climbs = made["load"].mode == CLIMB
        made["ladder"] = _rungs(validation, at, levels, made["level"], remote=remote, climbs=climbs)
        specs = next(rung.programs for rung in made["ladder"] if rung.level is made["level"])
        _warn_ladder(validation, made["ladder"], specs, climbs=climbs)
        validation.forget("level.")
    else:
        specs = at(made["level"], "level")
        short = "" if remote else ladder.memory_short(made["level"])
        if short:  # a fixed level is the operator's decision, so it is not refused
            validation.warn(validation.at("level", "memory_mb"), f"level.memory_mb: {short}")
    if not tables and validation.source.body.get("program", {}) == {}:
        validation.error(validation.at("program"), "there is no program; add a section such as [program.Pong]")
    if validation.look and paths is not None:
        runtime, state = (validation.origins[f"daemon.{key}"] for key in ("runtime_dir", "state_dir"))
        uid = directories.user_of(paths) if as_owner else None
        names = [spec.name for spec in specs]
        others = next((spec.name for spec in specs if _has_another_user(spec)), "")
        directories.check(validation, paths, state, runtime, names, uid, cluster=remote, others=others)
        directories.check_file(validation, uid)
    if paths is not None:
        _check_group(validation, made["daemon"].socket_group, paths.state_dir)
    if validation.errors or paths is None:
        raise ConfigError(validation.errors)
    settings = Settings(paths, programs=specs, **made)
    whole = ConfigInput.of(validation, environ, flags)
    return Loaded(settings, validation.origins, validation.values, tuple(validation.warnings), whole)


# --- environment and flags -------------------------------------------------------------------------------------------------


def _overrides(validation: Validation, environ: Mapping[str, str], flags: Mapping[str, object], rl: Options) -> Overrides:
    """EXTRALIFE_* < flags for [daemon] and slots; `RL_*` of the load for [level], so that `status` shows the real load."""
    found: Overrides = {("level", key): rl[key] for key in LEVEL_OPTIONS if key in rl and rl[key][0] != AUTO}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or not environ[variable]:
            continue
        if variable in VARIABLES:
            found[OVERRIDES[VARIABLES[variable]]] = environ[variable], Origin(ENVIRONMENT, variable)
        elif variable not in SET_BY_US | NO_SETTINGS:
            hint = nearest(variable.removeprefix(PREFIX), [key.upper() for key in OVERRIDES])
            if hint:  # a typo; any other name with the prefix belongs to other software
                wanted = hint.replace("mean ", f"mean {PREFIX}")
                validation.error(Origin(ENVIRONMENT, variable), f"is not a setting{wanted}")
    for key, value in flags.items():
        flag = Origin(FLAG, "--" + key.replace("_", "-"))
        if value is None:
            continue
        if key in OVERRIDES:
            found[OVERRIDES[key]] = value, flag
        else:
            validation.error(flag, f"is not a setting{nearest(key, OVERRIDES)}")
    return found


# --- sections --------------------------------------------------------------------------------------------------------


def _section(validation: Validation, name: str, overrides: Overrides) -> Any:
    """A dataclass from its table, the environment and the flags. A wrong value is an error, and keeps its default."""
    section, settings = validation.section(name), settings_of(SECTIONS[name])
    refuse_unknown(section, (*settings, *(DIRECTORIES if name == "daemon" else ())))
    parsers = getattr(_MODULES.get(name), "PARSERS", {})
    values = read(section, settings, parsers) | _overridden(section, settings, overrides)
    for low, declaration in declared(SECTIONS[name]).items():
        if (high := declaration.up_to) and values[low] > values[high]:
            first, second = f"{values[low]:g}", f"{name}.{high}, {values[high]:g}"
            section.refuse(low, f", {first}, is more than {second}; lower the first or raise the second")
    return SECTIONS[name](**values)


def _overridden(section: Section, settings: Mapping[str, Setting], overrides: Overrides) -> dict[str, Any]:
    """The values of a section that the environment or a flag sets. The file's are checked even so."""
    values = {}
    for key in settings:
        if (section.name, key) in overrides:
            given, origin = overrides[section.name, key]
            try:
                values[key] = settings[key].check(given, text=True)
            except ValueError as error:
                message = str(error) or settings[key].refusal(given)
                section.validation.error(origin, f"{section.label(key)} {message}")
            else:
                section.note(key, values[key], origin)
    return values


def _has_another_user(spec: ProgramSpec) -> bool:
    with contextlib.suppress(UnknownUser):
        return other(spec.user) is not None
    return False


def _check_group(validation: Validation, group: str, state_dir: str) -> None:
    """Check that the group exists, and that the daemon's user can give the socket to it.

    That user is the current one, or the owner of the state directory if root calls. A wrong group does not prevent a start:
    then only the owner can use the socket, and training continues (`api/listener.py`).
    """
    uid = os.geteuid()
    if uid == 0 and os.path.isdir(state_dir):  # noqa: PTH112  Path's raises where it cannot look
        uid = os.stat(state_dir).st_uid  # noqa: PTH116
    why = membership.outside(group, uid) if group else ""
    if not why or not (validation.look or why.startswith(membership.NO_GROUP)):
        return
    do = "create it" if why.startswith(membership.NO_GROUP) else f"add the user to it (usermod -aG {group} USER)"
    report = validation.warn if validation.starting else validation.error
    report(validation.origins["daemon.socket_group"], f"daemon.socket_group: {why}; {do}, or leave it empty")


def _paths(validation: Validation, environ: Mapping[str, str], overrides: Overrides) -> Paths | None:
    """The daemon's paths; None if a directory is not a path, which is an error."""
    section, settings = validation.section("daemon"), settings_of(Paths)
    values = read(section, settings) | _overridden(section, settings, overrides)
    state_dir = _directory(section, "state_dir", values, environ, places.state_dir_for(environ))
    by_state = places.runtime_dir_for(state_dir or places.state_dir_for(environ), environ)
    runtime_dir = _directory(section, "runtime_dir", values, environ, by_state)
    if state_dir is None or runtime_dir is None:
        return None
    return Paths(state_dir, runtime_dir, validation.source.path)


def _directory(
    section: Section, key: str, values: Mapping[str, Any], environ: Mapping[str, str], otherwise: str
) -> str | None:
    name, origin = section.label(key), section.validation.origins[section.label(key)]
    if values[key] is None:
        origin = Origin(ENVIRONMENT, _SYSTEMD[key]) if environ.get(_SYSTEMD[key]) else Origin(DEFAULT)
    path = os.path.expanduser(otherwise if values[key] is None else values[key])  # noqa: PTH111  Path's raises for ~nobody
    if not path:
        message = f"{name} must be the path of a directory, not empty; leave it out to have the default"
        section.validation.error(origin, message)
        return None
    if origin.kind == FILE and not path.startswith("/"):
        message = f"{name} = {values[key]!r:.80} depends on where extralife is started; write an absolute path"
        section.validation.warn(origin, message)
    absolute: str = os.path.abspath(path)  # noqa: PTH100  as extralifectl does, which cannot afford pathlib
    section.note(key, absolute, origin)
    return absolute


def _rungs(
    validation: Validation, at: Callable[[Level, str], tuple[ProgramSpec, ...]], levels: tuple[Level, ...], start: Level,
    *, remote: bool, climbs: bool,
) -> tuple[Rung, ...]:  # fmt: skip
    """Every program at every level. The start's level is made last, so `config` shows the values of that level."""
    made = {level.name: at(level, label("levels", level.name)) for level in sorted(levels, key=lambda level: level is start)}
    for module in discovery.modules("config"):
        getattr(module, "at_levels", lambda *_: None)(levels, made)
    if climbs:
        _keep_at_start(validation, made, start)
    built_in = "levels" not in validation.source.body
    vetoes = (ladder.veto(level, built_in=built_in, remote=remote) for level in levels)
    rungs = tuple(Rung(level, made[level.name], veto) for level, veto in zip(levels, vetoes, strict=True))
    return ladder.without_duplicates(validation, rungs, start)


def _keep_at_start(validation: Validation, made: dict[str, tuple[ProgramSpec, ...]], start: Level) -> None:
    """Give a program that does not follow the level the settings of the start at every level, so that no climb restarts it.

    Worked example: `train.py --num-envs {num_envs}` without a checkpoint would begin anew at each trial of a level.
    """
    at_start = {spec.name: spec for spec in made[start.name]}
    moved = {spec.name for specs in made.values() for spec in specs if spec.digest != at_start.get(spec.name, spec).digest}
    kept = {name: replace(at_start[name], own_digest="") for name in sorted(moved) if not at_start[name].follows_level}
    made |= {level: tuple(kept.get(spec.name, spec) for spec in specs) for level, specs in made.items()}
    followed = any(spec.own_digest for spec in made[start.name])
    stays = "" if followed else "; no program follows the level, so it stays as it is"
    for name in kept:
        key, origin = label("program", name, "follows_level"), validation.at("program", name)
        if key in validation.values:  # the operator's own word
            continue
        validation.note(key, False, Origin(DERIVED, "names no way to resume"))
        why = f"names no way to resume and would begin anew at each change of level: it keeps the settings of {start.name}"
        do = "set checkpoint_glob to what it resumes from, or follows_level = true to restart it all the same"
        validation.warn(origin, f"{label('program', name)}: {why}; {do}{stays}")


def _warn_ladder(validation: Validation, rungs: tuple[Rung, ...], specs: tuple[ProgramSpec, ...], *, climbs: bool) -> None:
    """Warn of programs that a ladder cannot measure, and of names of levels that are not the operator's own."""
    known = [spec.own_digest or label("program", spec.name, "follows_level") in validation.values for spec in specs]
    if climbs and specs and len(rungs) > 1 and not any(known):
        message = "no program takes a value of the level, such as {num_envs}, so none shows whether a higher level is faster"
        validation.warn(validation.at("program"), f"{message}: the level stays as it is (docs/any-script.md)")
    named = [spec.name for spec in specs if spec.template is not None and "level" in dict(spec.template.values)]
    if named and "levels" not in validation.source.body:
        levels = ", ".join(rung.level.name for rung in rungs)
        message = f"{{level}} is one of {levels} here; for names of your own, add sections such as [levels.light]"
        validation.warn(validation.at("program", named[0]), f"{label('program', named[0])}: {message}")


def _defaults(
    validation: Validation, level: Level, section: str, rl: Options, environ: Mapping[str, str], paths: Paths | None
) -> Defaults:
    load: Options = {}
    for key in ("num_envs", "batch_size"):
        origin = validation.origins[f"{section}.{key}"]
        load[key] = getattr(level, key), Origin(DEFAULT, f"{section}.{key}") if origin.kind == DEFAULT else origin
    threads = level.threads
    if threads is None:
        own = (each.threads(validation, level) for each in discovery.modules("config") if hasattr(each, "threads"))
        here = max(1, usable_cores() // level.slots), "cores / slots"
        threads, by = next((found for found in own if found is not None), here)
        load["threads"] = threads, Origin(DERIVED, by)
    else:
        load["threads"] = threads, validation.origins[f"{section}.threads"]
    training = validation.section("training")
    refuse_unknown(training, OPTIONS, "docs/config.md lists them all")
    return Defaults(level, threads, load, options(training), rl, environ, paths)
