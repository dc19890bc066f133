"""Which programs save and leave first when this box ends after SIGTERM.

The rule. After SIGTERM the box ends after `[daemon] stop_within_s`, if that is known (`docker stop` waits 10 s). All
programs leave at once, which saves, if their saves take less than that time in sum. Otherwise those that lose most per
second of saving leave first, and the others once these have left, at the latest at half of the time. A copy off the box has
the rest.

Worked example, stop_within_s = 10: Pong saved 300 s ago and takes 6 s for it, Qbert 30 s ago and takes 5 s. Both take 11 s,
so Pong, which loses most per second, leaves first, and Qbert when Pong has left, at the latest after 5 s.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from supervisor.records import Record

SAVES_S: Final = 5.0  # assumed duration of a save, until one was measured
KILL_S: Final = 1.0  # before the end that follows SIGTERM: a program that has not left is killed, and this is recorded


class Saving(Record):
    """A program that can be asked to save: the seconds since its newest checkpoint, and the duration of its save."""

    name: str
    unsaved_s: float
    save_s: float

    @property
    def lost_per_s(self) -> float:
        return self.unsaved_s / max(self.save_s, 0.1)


def leave_later(savings: Iterable[Saving], *, ends_in_s: float) -> tuple[str, ...]:
    """The programs that are not asked to leave yet, because the others lose more and there is no time for all."""
    order = sorted(savings, key=lambda each: (-each.lost_per_s, each.name))
    return tuple(each.name for each in order[max(1, fitting(order, ends_in_s - KILL_S)) :])


def fitting(order: list[Saving], room_s: float) -> int:
    """How many of them can be saved within this time, one after the other."""
    return sum(taken_s <= room_s for taken_s in accumulate(each.save_s for each in order))
