"""Time: journal time for decisions, the wall clock for people.

Journal time counts seconds since the journal began. Within a boot it is CLOCK_BOOTTIME plus a constant offset. Over a
reboot it advances by the downtime that the wall clock shows, and never goes back. CLOCK_MONOTONIC would stop during suspend,
the wall clock can jump, and CLOCK_BOOTTIME alone restarts at every boot.

So setting the wall clock by an hour changes no deadline, age or uptime. It is recorded once (ClockStepped), people see the
new time from then on, and the times of calendar jobs are computed again. Example: a restart is due in 40 s, and the clock is
set back by an hour. The restart comes in 40 s; by the wall clock it would come in an hour and 40 s.
"""

from __future__ import annotations

import datetime as dt
import time

from supervisor.adapters.host.boot import AliveMark
from supervisor.ports import ahead_s
from supervisor.wall_clock import is_set


def wall_s() -> float:
    return time.time()


def boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def moment() -> tuple[float, float]:
    """(CLOCK_BOOTTIME, wall clock) at the same moment."""
    at_s = boot_s()
    return at_s, at_s + ahead_s(SystemClock(0.0))


def journal_offset(
    last: AliveMark | None, *, same_boot: bool, journal_at_s: float, boot_now_s: float, wall_now_s: float
) -> float:
    """The offset that turns CLOCK_BOOTTIME into journal time.

    `last` is the last durable sign of life, `journal_at_s` the time of the journal's last fact (0.0: there is none).

    * same boot: continue from the mark's own pair of clocks;
    * new boot: journal time advances from the last sign of life by the time that has passed on the wall clock, but at
      least by the time since the boot. A wall clock that is not set does not count;
    * no mark: journal time begins now, or continues from the journal's last fact.

    In every case, journal time is never less than that of the journal's last fact.

    Example: last sign at journal time 1,000 s, 12:00:00; booted at 12:00:40, now 12:00:45, up 5 s: journal time is
    1,045 s, the offset 1,040 s.
    """
    if last is None:
        now_s = journal_at_s
    elif same_boot:
        now_s = last.at_s + max(0.0, boot_now_s - last.boot_s)
    else:
        # If CLOCK_BOOTTIME did not restart (a container's restart), it does not show when this boot began.
        since_boot_s = boot_now_s if boot_now_s < last.boot_s else 0.0
        # From an unset clock to a set one it is decades, which is not the downtime of the box.
        both_set = is_set(wall_now_s) and is_set(last.wall_s)
        now_s = last.at_s + max(since_boot_s, wall_now_s - last.wall_s if both_set else 0.0)
    return max(now_s, journal_at_s) - boot_now_s


class SystemClock:
    def __init__(self, offset_s: float) -> None:
        self.offset_s = offset_s

    def now_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.offset_s

    def wall_s(self) -> float:
        return time.time()

    def from_boot_ns(self, at_ns: int) -> float:
        return at_ns / 1e9 + self.offset_s

    def to_boot_ns(self, at_s: float) -> int:
        return max(0, int((at_s - self.offset_s) * 1e9))


class LocalZone(dt.tzinfo):
    """The time zone of this box with its changes of the clock, as the C library knows it; `astimezone()` is one offset."""

    def utcoffset(self, at: dt.datetime | None) -> dt.timedelta | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().utcoffset()

    def tzname(self, at: dt.datetime | None) -> str | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().tzname()

    def dst(self, _: dt.datetime | None) -> None:
        """Not known."""

    def fromutc(self, at: dt.datetime) -> dt.datetime:
        known = dt.datetime.fromtimestamp(at.replace(tzinfo=dt.UTC).timestamp())  # noqa: DTZ006  with its `fold`
        return known.replace(tzinfo=self)


def local_zone(at_wall_s: float) -> tuple[str, float]:
    """The name of this box's local time at a moment, and its seconds ahead of UTC."""
    local = time.localtime(at_wall_s)
    return local.tm_zone, float(local.tm_gmtoff)
