"""The effects of an update, and the configuration in a form for people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from difflib import SequenceMatcher
from typing import Any, Final, TypeVar

from supervisor.config.loading import LEVEL_OPTIONS, Loaded
from supervisor.config.validation import ConfigError, Origin, label
from supervisor.deciding import requests
from supervisor.deciding.requests import only_load
from supervisor.formats import count
from supervisor.model.launching import Launching
from supervisor.model.settings import SECTIONS, DaemonSettings, Settings
from supervisor.records import Record

T = TypeVar("T")
# Keys of [daemon] that are read at each use; the others take effect only when the daemon starts.
_LIVE_DAEMON: Final = frozenset({"log_max_bytes", "log_backups", "stop_within_s"})


class Changes(Record):
    """The effects of an update: programs by name, other keys by key.

    `changed` programs restart; `live` programs take their new limits, priority or thread count without a restart.
    `settings` apply at once; `restart` lists keys that wait for the daemon's next start.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections of `settings` as the file writes them: `[level]`."""
        return tuple(dict.fromkeys(f"[{key.partition('.')[0]}]" for key in self.settings))


def diff(old: Settings, new: Settings) -> Changes:
    """The effects of an update from `old` to `new`. Example: one more program is `added`, a longer stall limit `settings`.

    Programs are compared at the level in force: their settings at other levels do not affect running processes.
    """
    new = new.at(old.level.name)
    before = {spec.name: spec for spec in old.programs}
    after = {spec.name: spec for spec in new.programs}
    both = sorted(before.keys() & after.keys())
    same = [name for name in both if before[name].digest == after[name].digest]
    keys = [
        f"{section}.{field.name}"
        for section in SECTIONS
        for field in fields(getattr(new, section))
        if getattr(getattr(old, section), field.name) != getattr(getattr(new, section), field.name)
    ]
    if old.ladder or new.ladder:
        # The levels that were added, removed or changed; all levels if their order changed.
        was, now = ({rung.level.name: rung.level for rung in each.ladder} for each in (old, new))
        levels = list(dict.fromkeys((*now, *was)))
        reordered = [name for name in was if name in now] != [name for name in now if name in was]
        keys = [
            *[f"levels.{name}" for name in levels if reordered or was.get(name) != now.get(name)],
            *(key for key in keys if not key.startswith("level.")),
        ]
    waiting = {f"daemon.{field.name}" for field in fields(DaemonSettings) if field.name not in _LIVE_DAEMON}
    waiting |= {"cgroups.use", "cgroups.parent"}
    launching = _other_launchers(old, new)
    waiting |= {key for key in keys if key.partition(".")[0] in launching}
    moved = [f"daemon.{key}" for key in ("state_dir", "runtime_dir") if getattr(old.paths, key) != getattr(new.paths, key)]
    return Changes(
        added=tuple(sorted(after.keys() - before.keys())), changed=tuple(name for name in both if name not in same),
        removed=tuple(sorted(before.keys() - after.keys())),
        live=tuple(name for name in same if before[name] != after[name]),
        settings=tuple(key for key in keys if key not in waiting),
        restart=tuple(moved + [key for key in keys if key in waiting]),
    )  # fmt: skip


def differences(old: Loaded, new: Loaded) -> tuple[tuple[str, str], ...]:
    """(key, change) of every setting with another value, such as `("program.Pong.lr", "0.0003 -> 0.001")`; no secrets."""
    keys = sorted(key for key in old.values.keys() | new.values.keys() if old.values.get(key) != new.values.get(key))
    return tuple((key, _change(old.values.get(key), new.values.get(key))) for key in keys)


def _change(old: object, new: object) -> str:
    """Of a command only its changed words: `--lr 0.0003 -> 0.001`."""
    if not (isinstance(old, list) and isinstance(new, list)):
        return " -> ".join("default" if each in (None, "") else str(each) for each in (old, new))
    found = []
    for kind, begin, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        words = " ".join(map(str, new[first:last]))
        if kind == "replace":
            found.append(f"{' '.join(map(str, old[max(0, begin - 1) : end]))} -> {words}")
        elif kind != "equal":
            found.append(f"with {words}" if words else f"without {' '.join(map(str, old[begin:end]))}")
    return ", ".join(found)


def applicable(running: Settings, new: Settings) -> Settings:
    """The part of `new` that a running daemon can adopt. It keeps its directories and the settings of its start.

    Otherwise `status` would look for logs and the journal in a directory that nothing is written to. And a daemon that has
    started processes would take them for jobs of a cluster, or jobs for processes: at SIGTERM it would leave processes
    behind without a save, or end jobs that must go on.
    """
    live = {key: getattr(new.daemon, key) for key in _LIVE_DAEMON}
    cgroups = replace(new.cgroups, use=running.cgroups.use, parent=running.cgroups.parent)
    launching = {name: getattr(running, name) for name in _other_launchers(running, new)}
    return replace(new, paths=running.paths, daemon=replace(running.daemon, **live), cgroups=cgroups, **launching)


def _other_launchers(old: Settings, new: Settings) -> list[str]:
    """The sections that begin or cease to launch the programs."""
    names = [name for name, kind in SECTIONS.items() if issubclass(kind, Launching)]
    return [name for name in names if getattr(old, name).remote != getattr(new, name).remote]


def explain(loaded: Loaded, level: str = "") -> list[tuple[str, object, Origin | str]]:
    """(key, value, origin) of every setting, sorted by key; secrets in environments are masked.

    `level` is the level in force: programs that follow it have its environments, batch and threads.
    """
    found: dict[str, tuple[object, Origin | str]] = {
        key: (loaded.values[key], loaded.origins[key]) for key in loaded.origins
    }
    start = loaded.settings.level.name
    if level != start and loaded.settings.place(level) is not None:
        for spec in loaded.settings.at(level).programs:
            for option in LEVEL_OPTIONS if spec.own_digest else ():
                own, here = f"program.{spec.name}.{option}", f"levels.{level}.{option}"
                if own in found and loaded.origins[own] == loaded.origins[f"levels.{start}.{option}"]:
                    found[own] = loaded.values[here], f"level {level}, in force"
    return [(key, *found[key]) for key in sorted(found)]


def merged(old: Loaded, new: Loaded, only: tuple[str, ...], waits: Collection[str]) -> Loaded:
    """What is in force after an update: `new` for the programs and sections of `only` (none: for all), else `old`.

    The keys in `waits` take effect when the daemon starts.
    """
    names = {spec.name: f"{label(spec.name)}." for each in (old, new) for spec in each.settings.programs}
    wanted = {*only, *(("[level]", "[levels]", "[load]") if only_load(only) else ())}

    def applies(key: str) -> bool:
        section, _, rest = key.partition(".")
        owner = next((name for name, begin in names.items() if section == "program" and rest.startswith(begin)), "")
        return key not in waits and (not only or f"[{section}]" in wanted or owner in wanted)

    def mixed(before: Mapping[str, T], after: Mapping[str, T]) -> dict[str, T]:
        left = {key: value for key, value in before.items() if not applies(key)}
        return left | {key: value for key, value in after.items() if applies(key)}

    settings = requests.merged(old.settings, new.settings, only)
    return replace(new, settings=settings, values=mixed(old.values, new.values), origins=mixed(old.origins, new.origins))


def listed(loaded: Loaded, settings: Settings, read: Callable[[], Loaded]) -> dict[str, Any]:
    """The page `config`: {"settings", "errors"}. `settings` are in force, and `loaded` has their values.

    `read` reads the file as it is now: a row has `file` where the file says something else, with the `remedy`, the verb that
    makes it take effect; and `errors` say why the file cannot be used.
    """
    now, errors = loaded, list[str]()
    try:
        now = read()
    except ConfigError as error:
        errors = list(error.errors)
    names = {spec.name for spec in loaded.settings.programs} - {spec.name for spec in settings.programs}
    gone = tuple(f"{label('program', name)}." for name in names)  # removed until the next update
    rows = {
        key: {"key": key, "value": value, "origin": str(origin)}
        for key, value, origin in explain(loaded, settings.level.name)
        if not key.startswith(gone)
    }
    for key, value in now.values.items():
        if key not in rows:
            rows[key] = {"key": key, "value": None, "origin": "not in force", "file": value}
        elif value != loaded.values[key]:
            rows[key]["file"] = value
    for key in rows.keys() - now.values.keys():
        rows[key]["file"] = None
    waits = diff(settings, now.settings).restart
    for key, row in rows.items():
        if "file" in row:
            row["remedy"] = "reload" if key in waits else "update"
    return {"settings": [rows[key] for key in sorted(rows)], "errors": errors}


def summary(settings: Settings) -> str:
    """One line: `config OK: 10 programs, level light: 3 slots x 32 environments, batch 512`, and the levels above."""
    level = settings.level
    top, count_of_levels = settings.rungs[-1].level.name, len(settings.rungs)
    climbs = f"; climbs {count_of_levels} levels up to {top}" if count_of_levels > 1 else "; there is no level to climb to"
    climbs *= settings.climbs
    return (
        f"config OK: {count(len(settings.programs), 'program')}, level {level.name}: {count(level.slots, 'slot')} x "
        f"{count(level.num_envs, 'environment')}, batch {level.batch_size}{climbs}"
    )
