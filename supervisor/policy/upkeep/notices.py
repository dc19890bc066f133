"""How the daemon uses the time between a provider's notice that this box ends, and the end.

A notice is of one of two kinds. `end`: the box stops at `until_s`, or soon, if no time is given. `risk`: it may stop
later (AWS's rebalance recommendation): every program saves, a copy is made, and training continues.

The rule, for an end that is announced for `until_s`:

1. Leaving takes the longest save, one copy off the box, and five seconds to spare. `leave_at_s` is that long before the
   end: then every program is asked to save and leave. Later training could not be copied any more.
2. If 10 s or more remain before `leave_at_s`, every program saves and a copy is made at once, because the box may end
   before the announced time. The program that loses most per second of saving is asked first: the time since its newest
   checkpoint, divided by the duration of its save. As many programs are asked as can be saved and copied before
   `leave_at_s`; the others follow when those are done. If there is not enough time for even one, the copy takes the
   existing checkpoints.
3. The copy begins when all of them have saved, at the latest at `copy_by_s`.
4. If less time remains, all programs leave at once: leaving saves, too.

Without a time, no program is asked to leave: every program saves, a copy is made, and training continues to the end.

Worked example. AWS announces an end in 120 s. Pong saved 300 s ago and takes 3 s for it, Qbert 30 s ago and takes 1 s; a
copy takes 8 s. Leaving takes 3 + 8 + 5 = 16 s, so it begins after 104 s. Pong loses 100 s per second of saving, Qbert 30:
Pong is asked first, and both fit. The copy begins when both have saved, at the latest after 96 s.

Why not leave at once in any case: of the two minutes of AWS, more than one and a half can still be trained and copied,
and a notice that is withdrawn would have cost a restart.

SIGTERM is a notice, too: the box ends after `[daemon] stop_within_s`, if that is known (`docker stop` waits 10 s). All
programs leave at once, which saves, if their saves take less than that time in sum. Otherwise those that lose most per
second of saving leave first, and the others once these have left, at the latest at half of the time. A copy off the box has
the rest.

A notice is over when its source no longer announces the end, or 120 s after the announced time if the box is still there:
the programs start again, and the same notice counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from supervisor.keys import key
from supervisor.records import Record

END, RISK = "end", "risk"
COMMAND, FILE = "command", "file"
SAVES_S: Final = 5.0  # assumed duration of a save, until one was measured
COPIES_S: Final = 15.0  # assumed duration of a copy, likewise
KILL_S: Final = 1.0  # before the end that follows SIGTERM: whoever has not left is killed, and this is recorded
_SPARE_S: Final = 5.0
_WORTH_S: Final = 10.0
_PATIENCE_S: Final = 60.0
_STILL_HERE_S: Final = 120.0
_SLACK_S: Final = 600.0
_SOME_TIME_S: Final = 3600.0
_SAME_S: Final = 5.0


class NoticeSettings(Record):
    command: str = key(
        "", "a program that prints a line when this box ends (docs/offsite.md); no shell reads it; empty: none"
    )
    file: str = key("", "a file that appears when this box ends; empty: none")
    every_s: float = key(2.0, "time between two questions", low=0.1, high=600)
    timeout_s: float = key(2.0, "longest time for an answer", low=0.1, high=60)


class EndNotice(Record):
    """One notice. The same `id` means the same event; `what` is the source's own term; `until_s` is journal time."""

    id: str
    source: str
    kind: str
    what: str
    until_s: float | None = None  # None: the source gives no time


class Saving(Record):
    """A program that can be asked to save: the seconds since its newest checkpoint, and the duration of its save."""

    name: str
    unsaved_s: float
    save_s: float

    @property
    def lost_per_s(self) -> float:
        return self.unsaved_s / max(self.save_s, 0.1)


class Plan(Record):
    """Times are journal time; None: never. `first` save at once, in this order; `then` save when those are done."""

    first: tuple[str, ...]
    then: tuple[str, ...]
    copy_by_s: float | None
    leave_at_s: float | None


def plan(notice: EndNotice, savings: Iterable[Saving], *, copy_s: float, now_s: float) -> Plan:
    """The schedule for a notice; `copy_s` is the duration of one copy off the box, 0 where no copy is made."""
    order = sorted(savings, key=lambda each: (-each.lost_per_s, each.name))
    names = tuple(each.name for each in order)
    if notice.kind == RISK or notice.until_s is None:
        return Plan(names, (), now_s + _PATIENCE_S, None)
    longest_s = max((each.save_s for each in order), default=0.0)
    leave_at_s = max(now_s, notice.until_s - longest_s - copy_s - _SPARE_S)
    if leave_at_s - now_s < _WORTH_S:
        return Plan((), (), None, now_s)
    fitting = _fitting(order, leave_at_s - now_s - copy_s)
    then = names[fitting:] if fitting else ()
    return Plan(names[:fitting], then, max(now_s, leave_at_s - copy_s), leave_at_s)


def _fitting(order: list[Saving], room_s: float) -> int:
    """How many of them can be saved within this time, one after the other."""
    return sum(taken_s <= room_s for taken_s in accumulate(each.save_s for each in order))


def leave_later(savings: Iterable[Saving], *, ends_in_s: float) -> tuple[str, ...]:
    """The programs that are not asked to leave yet, because the others lose more and there is no time for all."""
    order = sorted(savings, key=lambda each: (-each.lost_per_s, each.name))
    return tuple(each.name for each in order[max(1, _fitting(order, ends_in_s - KILL_S)) :])


def is_over(notice: EndNotice, now_s: float) -> bool:
    """Whether the announced time has passed so long ago that the notice counts no more: the box is still there."""
    return notice.until_s is not None and now_s >= over_at_s(notice.until_s)


def over_at_s(until_s: float) -> float:
    return until_s + _STILL_HERE_S


def is_same(before: EndNotice, now: EndNotice) -> bool:
    """Whether a notice of the same id has nothing new. A time that moves by a few seconds is not new."""
    if before.until_s is None or now.until_s is None:
        return before.until_s is now.until_s
    return abs(before.until_s - now.until_s) <= _SAME_S


def explains(notice: EndNotice, *, announced_s: float, last_sign_s: float) -> bool:
    """Whether the end of a boot with this last sign of life is the announced end: up to ten minutes late.

    Without a time: within an hour. A notice of a risk explains no end.
    """
    last_s = (announced_s + _SOME_TIME_S if notice.until_s is None else notice.until_s) + _SLACK_S
    return notice.kind == END and announced_s - _SLACK_S <= last_sign_s <= last_s
