"""Backups: the thread that makes them, and their calendar."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.adapters.parts import Part, World
from supervisor.features.backups.adapters.thread import Backups
from supervisor.features.backups.settings import BackupSettings
from supervisor.model import commands
from supervisor.model.inputs import BackupDue
from supervisor.ports import CalendarWork


def part(world: World) -> Part:
    made = Backups(world.paths, world.settings, world.inbox, world.clock)
    kinds = (commands.Backup, commands.CheckBackup, commands.RestoreBackup)

    def calendar() -> Iterable[CalendarWork]:
        yield CalendarWork("backup", world.settings().of(BackupSettings).calendar, BackupDue)

    return Part(dict.fromkeys(kinds, made.perform), stop=made.stop, shows={"backups": made.progress}, calendar=calendar)
