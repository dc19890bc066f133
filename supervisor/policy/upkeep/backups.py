"""When a backup is due by the calendar, and which backups are removed when there are too many.

The rule of the calendar. `[backup] calendar` is `off`, `hourly`, `daily HH:MM` or `weekly DAY HH:MM` (such as
`weekly sun 03:30`), in the box's own time zone. A backup is due when a time of the calendar has passed since the newest
one that was answered with a backup. Before the first backup, the time counts from the daemon's start. So a box that was
off at half past three makes its backup when it comes up. A fresh installation makes no backup of an empty directory, and
ten missed nights are one backup. Example, `daily 03:30`: the newest was for Monday 03:30, the box comes up on Wednesday
at 09:00: one is due, for Wednesday 03:30. A time that was answered more than a day ahead of now does not count. The clock
was wrong then: a box that boots in 2036 until the network sets its clock would make no backup for ten years.

The rule of keeping. Automatic backups are of three kinds: by the calendar, before a level, before a rollback. Of each
kind the newest `[backup] keep` are kept: a day on which the config's level changed twenty times must not remove the
nightly ones. Only the operator removes backups that the operator made. Backups of an unknown kind also stay. Example,
keep = 2: of nightly backups of Mon, Tue and Wed and one before `heavy`, Mon is removed.

Why not by age: a box that was off for a month would come up and delete all of its backups. Why not a cron line: five
fields are more than a nightly backup needs, and `30 3 * * *` is misread by people who write one a year.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Final

from supervisor.keys import key
from supervisor.records import dataclass

OPERATOR, CALENDAR, LEVEL, ROLLBACK = "operator", "calendar", "level", "rollback"
OFF: Final = "off"
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_AUTOMATIC: Final = frozenset({CALENDAR, LEVEL, ROLLBACK})
_DAILY: Final = re.compile(r"(?:daily|weekly (mon|tue|wed|thu|fri|sat|sun)) ([01]\d|2[0-3]):([0-5]\d)")
CALENDARS: Final = f"{OFF}|hourly|{_DAILY.pattern}"
A_CALENDAR: Final = '"off", "hourly", "daily HH:MM" or "weekly DAY HH:MM" such as "weekly sun 03:30"'
_SLUG: Final = re.compile(r"[^a-z0-9]+")
_MOST_LABEL: Final = 40
_AHEAD_S: Final = 86_400.0  # more than time zones and daylight saving can move a clock


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """When automatic backups are made, and how many of each kind are kept."""

    calendar: str = key(
        "daily 03:30", "when an automatic backup is made, local time: `off`, `hourly`, `daily HH:MM`, `weekly DAY HH:MM`",
        form=A_CALENDAR, pattern=CALENDARS,
    )  # fmt: skip
    keep: int = key(
        7, "number of automatic backups of each kind that are kept; those of `supervisorctl backup` stay", high=10_000
    )
    before_level: bool = key(True, "whether a backup is made before a level's first trial and before a change of [level]")


@dataclass(frozen=True, slots=True)
class Kept:
    """The data about a backup that the rule of keeping needs."""

    name: str
    cause: str
    created_wall_s: float


def last_due(calendar: str, now: dt.datetime) -> dt.datetime | None:
    """The newest time of the calendar up to `now`, in the time zone of `now`; None for `off`.

    Example, Wednesday 09:00: `hourly` is 09:00, `daily 03:30` today 03:30, `weekly wed 12:00` Wednesday a week ago.
    """
    if calendar == "hourly":
        return now.replace(minute=0, second=0, microsecond=0)
    found = _DAILY.fullmatch(calendar)
    if found is None:
        return None
    day, hour, minute = found.groups()
    due = now.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    back = 0 if day is None else (now.weekday() - DAYS.index(day)) % 7
    due -= dt.timedelta(days=back)
    return due if due <= now else due - dt.timedelta(days=1 if day is None else 7)


def is_due(due_wall_s: float, *, newest_due_wall_s: float | None, began_wall_s: float | None, now_wall_s: float) -> bool:
    """Whether this calendar time needs a backup: it is after the last answered time, else after the daemon's start.

    A last answered time, or a start, far in the future is from a clock that was ahead: then this time needs one.
    """
    since_s = began_wall_s if newest_due_wall_s is None else newest_due_wall_s
    return since_s is not None and (due_wall_s > since_s or since_s > now_wall_s + _AHEAD_S)


def superfluous(backups: Iterable[Kept], keep: int, spare: Iterable[str] = ()) -> list[str]:
    """Names of the backups to remove, oldest first. `spare`: names that must stay because they are in use."""
    spared = set(spare)
    order = sorted(backups, key=lambda each: (each.created_wall_s, each.name))
    out = []
    for cause in _AUTOMATIC:
        of_cause = [each for each in order if each.cause == cause]
        out += [each for each in of_cause[: max(0, len(of_cause) - keep)] if each.name not in spared]
    return [each.name for each in sorted(out, key=lambda each: (each.created_wall_s, each.name))]


def name_of(wall_s: float, label: str, taken: Iterable[str]) -> str:
    """The name of a backup: the time in UTC and the label, as the name of a directory; never one of `taken`.

    Example: 1,800,000,000 s and `before heavy` are `20270115-080000-before-heavy`.
    """
    when = dt.datetime.fromtimestamp(wall_s, dt.UTC).strftime("%Y%m%d-%H%M%S")
    slug = _SLUG.sub("-", label.lower())[:_MOST_LABEL].strip("-")
    base = f"{when}-{slug}" if slug else when
    name, number = base, 1
    known = set(taken)
    while name in known:
        number += 1
        name = f"{base}.{number}"
    return name
