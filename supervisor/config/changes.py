"""What an update would touch, and the configuration as people read it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from supervisor.config.loading import Loaded
from supervisor.config.sheet import Origin
from supervisor.model.settings import SECTIONS, DaemonSettings, Settings
from supervisor.records import dataclass

# Of [cgroups], what is settled when the daemon starts.
_AT_START: Final = frozenset({"cgroups.use", "cgroups.parent"})
# Of [daemon], what is read anew at each use; the rest is wired at the daemon's start.
_LIVE_DAEMON: Final = frozenset({"log_max_bytes", "log_backups"})


@dataclass(frozen=True, slots=True)
class Changes:
    """What an update does: programs by name, other keys by key.

    `changed` programs restart; `live` ones take their new limits, priority or thread count without it. `settings` apply at
    once; `restart` lists keys that wait for the daemon's next start.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections of `settings` as they stand in the file: `[level]`."""
        return tuple(dict.fromkeys(f"[{key.partition('.')[0]}]" for key in self.settings))


def diff(old: Settings, new: Settings) -> Changes:
    """What an update from `old` to `new` touches. Example: one more program and a longer stall limit: added, settings.

    Programs are compared at the level in force: what they are elsewhere changes nothing that runs.
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
        keys = [*_levels(old, new), *(key for key in keys if not key.startswith("level."))]
    waiting = {f"daemon.{field.name}" for field in fields(DaemonSettings) if field.name not in _LIVE_DAEMON}
    waiting |= _AT_START
    moved = [f"daemon.{key}" for key in ("state_dir", "runtime_dir") if getattr(old.paths, key) != getattr(new.paths, key)]
    return Changes(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(name for name in both if name not in same),
        removed=tuple(sorted(before.keys() - after.keys())),
        live=tuple(name for name in same if before[name] != after[name]),
        settings=tuple(key for key in keys if key not in waiting),
        restart=tuple(moved + [key for key in keys if key in waiting]),
    )


def _levels(old: Settings, new: Settings) -> list[str]:
    """The levels that appeared, vanished or changed, or all of them when their order did."""
    before, after = ({rung.level.name: rung.level for rung in each.ladder} for each in (old, new))
    names = list(dict.fromkeys((*after, *before)))
    moved = [name for name in before if name in after] != [name for name in after if name in before]
    return [f"levels.{name}" for name in names if moved or before.get(name) != after.get(name)]


def applicable(running: Settings, new: Settings) -> Settings:
    """`new` as far as a running daemon can take it: its directories and its own habits stay as they were at its start.

    Otherwise `status` would look for logs and the journal in a directory that nothing is written to.
    """
    live = {key: getattr(new.daemon, key) for key in _LIVE_DAEMON}
    cgroups = replace(new.cgroups, use=running.cgroups.use, parent=running.cgroups.parent)
    return replace(new, paths=running.paths, daemon=replace(running.daemon, **live), cgroups=cgroups)


def explain(loaded: Loaded) -> list[tuple[str, object, Origin]]:
    """(key, value, origin) of every setting, sorted by key; secrets in environments are masked."""
    return [(key, loaded.values[key], loaded.origins[key]) for key in sorted(loaded.origins)]


def summary(settings: Settings) -> str:
    """One line: `config OK: 10 programs, level light: 3 slots x 32 environments, batch 512`, and what lies above it."""
    level, count = settings.level, len(settings.programs)
    top, count_of_levels = settings.rungs[-1].level.name, len(settings.rungs)
    climbs = f"; climbs {count_of_levels} levels up to {top}" if count_of_levels > 1 else "; there is no level to climb to"
    climbs = climbs if settings.climbs else ""
    return (
        f"config OK: {_count(count, 'program')}, level {level.name}: {_count(level.slots, 'slot')} x "
        f"{_count(level.num_envs, 'environment')}, batch {level.batch_size}{climbs}"
    )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
