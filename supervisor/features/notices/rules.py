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

A notice is over when its source no longer announces the end, or 120 s after the announced time if the box is still there:
the programs start again, and the same notice counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from supervisor.model.inputs import EndNotice
from supervisor.policy.upkeep.leaving import Saving, fitting
from supervisor.records import Record

END, RISK = "end", "risk"
COMMAND, FILE = "command", "file"
COPIES_S: Final = 15.0  # assumed duration of a copy, likewise
_SPARE_S: Final = 5.0
_WORTH_S: Final = 10.0
_PATIENCE_S: Final = 60.0
_STILL_HERE_S: Final = 120.0
_SLACK_S: Final = 600.0
_SOME_TIME_S: Final = 3600.0
_SAME_S: Final = 5.0


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
    first = fitting(order, leave_at_s - now_s - copy_s)
    then = names[first:] if first else ()
    return Plan(names[:first], then, max(now_s, leave_at_s - copy_s), leave_at_s)


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
