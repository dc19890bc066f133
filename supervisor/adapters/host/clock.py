"""Time: journal time for deciding, the wall clock for people.

Journal time counts seconds since the journal began. Inside a boot it is CLOCK_BOOTTIME plus a constant offset; over a
reboot it goes on by the downtime that the wall clock shows, never backwards. CLOCK_MONOTONIC would stop in suspend, the
wall clock steps, and CLOCK_BOOTTIME alone begins again at every boot.

So a wall clock that is set by an hour moves no deadline, no age and no uptime; it is told once (ClockStepped), what people
read shows the new time from there on, and calendar jobs are counted anew. Example: a restart is due in 40 s, the clock is
put back by an hour: it comes in 40 s. By the wall clock it would come in an hour and 40 s.
"""

from __future__ import annotations

import time

from supervisor.adapters.host.boot import AliveMark
from supervisor.policy.box.wall_clock import is_set
from supervisor.ports import ahead_s


def wall_s() -> float:
    """Seconds since the epoch."""
    return time.time()


def boot_s() -> float:
    """CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def moment() -> tuple[float, float]:
    """(CLOCK_BOOTTIME, wall clock) of one moment."""
    at_s = boot_s()
    return at_s, at_s + ahead_s(SystemClock(0.0))


def journal_offset(
    last: AliveMark | None, *, same_boot: bool, journal_at_s: float, boot_now_s: float, wall_now_s: float
) -> float:
    """What to add to CLOCK_BOOTTIME to get journal time.

    `last` is the last durable sign of life, `journal_at_s` the time of the journal's last fact (0.0: there is none).

    * same boot: as before, from the mark's own pair of clocks;
    * new boot: journal time goes on from the last sign of life by what the wall clock says has passed since, but at
      least by the time since the boot, whatever the wall clock says. A clock that is not set says nothing;
    * nothing known: journal time begins now, or goes on from its last fact.

    Whatever the clocks say, journal time is never less than the journal's last fact.

    Example: last sign at journal time 1,000 s, 12:00:00; booted at 12:00:40, now 12:00:45, up 5 s: journal time is
    1,045 s, the offset 1,040 s.
    """
    if last is None:
        now_s = journal_at_s
    elif same_boot:
        now_s = last.at_s + max(0.0, boot_now_s - last.boot_s)
    else:
        # A CLOCK_BOOTTIME that has not begun again (a container's restart) does not tell when this boot was.
        since_boot_s = boot_now_s if boot_now_s < last.boot_s else 0.0
        # Between a clock that was not set and one that is lie decades, and not the time that the box was off.
        both_set = is_set(wall_now_s) and is_set(last.wall_s)
        now_s = last.at_s + max(since_boot_s, wall_now_s - last.wall_s if both_set else 0.0)
    return max(now_s, journal_at_s) - boot_now_s


class SystemClock:
    """`ports.Clock` of this machine."""

    def __init__(self, offset_s: float) -> None:
        self.offset_s = offset_s

    def now_s(self) -> float:
        return boot_s() + self.offset_s

    def wall_s(self) -> float:
        return wall_s()

    def from_boot_ns(self, at_ns: int) -> float:
        return at_ns / 1e9 + self.offset_s

    def to_boot_ns(self, at_s: float) -> int:
        return max(0, int((at_s - self.offset_s) * 1e9))


def local_zone(at_wall_s: float) -> tuple[str, float]:
    """This box's local time at a moment: its name, and by how many seconds it is ahead of UTC."""
    local = time.localtime(at_wall_s)
    return local.tm_zone, float(local.tm_gmtoff)
