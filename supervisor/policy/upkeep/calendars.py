"""When work is due by a calendar of the configuration: backups, checks of copies, the daily report.

The rule. A calendar is `off`, `hourly`, `daily HH:MM` or `weekly DAY HH:MM` (such as `weekly sun 03:30`), in the box's own
time zone. A backup, for example, is due when a time of the calendar has passed since the newest one that was answered with
a backup. Before the first backup, the time counts from the daemon's start. So a box that was off at half past three makes
its backup when it comes up. Ten missed nights are one backup. Example, `daily 03:30`: the newest was for Monday 03:30, the
box comes up on Wednesday at 09:00: one is due, for Wednesday 03:30. A time that was answered more than a day ahead of now
does not count. The clock was wrong then.

A change of the clock moves no time of the calendar: it is computed in the zone, not with the offset of now. Example, Berlin,
`daily 00:30`: the backup of 00:30 at +02:00 is the newest one, also at 04:00 at +01:00. A time that comes twice that night
is its first one; `hourly` is due in each of the two hours. A time that the clock skips is as long after midnight as always.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

OFF: Final = "off"
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAILY: Final = re.compile(r"(?:daily|weekly (mon|tue|wed|thu|fri|sat|sun)) ([01]\d|2[0-3]):([0-5]\d)")
CALENDARS: Final = f"{OFF}|hourly|{_DAILY.pattern}"
A_CALENDAR: Final = '"off", "hourly", "daily HH:MM" or "weekly DAY HH:MM" such as "weekly sun 03:30"'
_AHEAD_S: Final = 86_400.0  # more than time zones and daylight saving can move a clock


def last_due(calendar: str, now: dt.datetime) -> dt.datetime | None:
    """The newest time of the calendar up to `now`, in the time zone of `now`, which must be no mere offset; None for `off`.

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
    return due if due.timestamp() <= now.timestamp() else due - dt.timedelta(days=1 if day is None else 7)


def is_due(due_wall_s: float, *, newest_due_wall_s: float | None, began_wall_s: float | None, now_wall_s: float) -> bool:
    """Whether this calendar time needs a backup: it is after the last answered time, else after the daemon's start.

    A last answered time, or a start, far in the future is from a clock that was ahead: then this time needs one.
    """
    since_s = began_wall_s if newest_due_wall_s is None else newest_due_wall_s
    return since_s is not None and (due_wall_s > since_s or since_s > now_wall_s + _AHEAD_S)
