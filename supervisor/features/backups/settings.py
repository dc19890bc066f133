"""[backup]: when automatic backups are made, and how many are kept (`rules.py`)."""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.policy.upkeep.calendars import A_CALENDAR, CALENDARS
from supervisor.records import Record


class BackupSettings(Record):
    """When automatic backups are made, and how many of each kind are kept."""

    calendar: str = key(
        "daily 03:30", "when an automatic backup is made, local time: `off`, `hourly`, `daily HH:MM`, `weekly DAY HH:MM`",
        form=A_CALENDAR, pattern=CALENDARS,
    )  # fmt: skip
    keep: int = key(
        7, "number of automatic backups of each kind that are kept; those of `supervisorctl backup` stay", high=10_000
    )
    before_level: bool = key(True, "whether a backup is made before a level's first trial and before a change of [level]")


SECTIONS: Final = {"backup": BackupSettings}
