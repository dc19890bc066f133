"""Backups: the thread that makes them, and their calendar."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.adapters.backups.thread import Backups
from supervisor.adapters.parts import Part, World
from supervisor.model import commands
from supervisor.model.inputs import BackupDue
from supervisor.ports import CalendarWork


def part(world: World) -> Part:
    made = Backups(world.paths, world.settings, world.inbox, world.clock, world.shown)
    kinds = (commands.Backup, commands.CheckBackup, commands.RestoreBackup)

    def calendar() -> Iterable[CalendarWork]:
        yield CalendarWork("backup", world.settings().backup.calendar, BackupDue)

    return Part(dict.fromkeys(kinds, made.perform), stop=made.stop, shows={"backups": made.progress}, calendar=calendar)
