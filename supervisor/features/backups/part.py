"""Backups: the thread that makes them, and their calendar."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.adapters.parts import Part, World
from supervisor.features.backups.adapters.thread import Backups
from supervisor.features.backups.messages import Backup, BackupDue, CheckBackup, RestoreBackup
from supervisor.features.backups.settings import BackupSettings
from supervisor.ports import CalendarWork


def part(world: World) -> Part:
    made = Backups(world.paths, world.settings, world.inbox, world.clock, world.shown)
    kinds = (Backup, CheckBackup, RestoreBackup)

    def calendar() -> Iterable[CalendarWork]:
        yield CalendarWork("backup", world.settings().of(BackupSettings).calendar, BackupDue)

    return Part(dict.fromkeys(kinds, made.perform), stop=made.stop, shows={"backups": made.progress}, calendar=calendar)
