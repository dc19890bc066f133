"""What is done with the time between a provider's notice that this box ends and the end.

A notice is of one of two kinds. `end`: the box stops at `until_s`, or soon, if nobody says when. `risk`: it may stop later
(AWS's rebalance recommendation): everything is saved and copied, and training goes on.

The rule, for an end that is announced for `until_s`:

1. Leaving takes the longest save, one copy off the box, and five seconds to spare: at `leave_at_s` every program is asked
   to save and leave. What is trained after that could not be copied any more.
2. If 10 s or more are left before that, everything is saved and copied at once: an announced time is only a promise.
   Whoever loses most per second is asked first: the time since its newest checkpoint, divided by the time that its save
   takes. As many are asked as can be saved and copied before `leave_at_s`; the others follow when those are done. If
   not even one can, the copy takes what is there.
3. The copy begins when all of them have saved, at the latest at `copy_by_s`: an older checkpoint off the box is worth more
   than a newer one on a disk that is gone.
4. If less is left, everybody leaves at once: leaving saves, too.

Without a time nobody is asked to leave: everything is saved and copied, and training goes on to the end.

Worked example. AWS announces an end in 120 s. Pong saved 300 s ago and takes 3 s for it, Qbert 30 s ago and takes 1 s; a
copy takes 8 s. Leaving takes 3 + 8 + 5 = 16 s, so it begins after 104 s. Pong loses 100 s per second of saving, Qbert 30:
Pong is asked first, and both fit. The copy begins when both have saved, at the latest after 96 s. Google announces an end in
30 s: leaving begins after 14 s. An end in 20 s: everybody leaves at once, and the last copy has the rest.

Why not leave at once in any case: of the two minutes of AWS, more than one and a half can still be trained and copied, and a
notice that is withdrawn would have cost a restart.

An end is over when its source no longer announces it, or 120 s after its time on a box that is still there: the programs
start again, and the same notice counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from supervisor.records import dataclass

END, RISK = "end", "risk"
AUTO, OFF, AWS, GOOGLE, AZURE = "auto", "off", "aws", "google", "azure"
COMMAND, FILE = "command", "file"
PROVIDERS: Final = (AUTO, OFF, AWS, GOOGLE, AZURE)
SAVES_S: Final = 5.0  # a save whose time nobody knows yet
COPIES_S: Final = 15.0  # a copy, likewise
_SPARE_S: Final = 5.0
_WORTH_S: Final = 10.0
_PATIENCE_S: Final = 60.0
_STILL_HERE_S: Final = 120.0
_SLACK_S: Final = 600.0
_SOME_TIME_S: Final = 3600.0
_SAME_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """`[notice]` in the config."""

    provider: str = AUTO
    endpoint: str = "http://169.254.169.254"
    command: str = ""
    file: str = ""
    every_s: float = 2.0
    timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class EndNotice:
    """One announcement. The same `id` is the same event; `what` is the source's own word; `until_s` is journal time."""

    id: str
    source: str
    kind: str
    what: str
    until_s: float | None = None  # None: nobody knows


@dataclass(frozen=True, slots=True)
class Saving:
    """A program that can be asked to save: since when it has saved nothing, and how long its save takes."""

    name: str
    unsaved_s: float
    save_s: float

    @property
    def lost_per_s(self) -> float:
        return self.unsaved_s / max(self.save_s, 0.1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Journal times. `first` save at once, in this order, `then` when those are done; None: never."""

    first: tuple[str, ...]
    then: tuple[str, ...]
    copy_by_s: float | None
    leave_at_s: float | None


def plan(notice: EndNotice, savings: Iterable[Saving], *, copy_s: float, now_s: float) -> Plan:
    """What is done when; `copy_s` is what one copy off the box takes, 0 where none is made."""
    order = sorted(savings, key=lambda each: (-each.lost_per_s, each.name))
    names = tuple(each.name for each in order)
    if notice.kind == RISK or notice.until_s is None:
        return Plan(names, (), now_s + _PATIENCE_S, None)
    longest_s = max((each.save_s for each in order), default=0.0)
    leave_at_s = max(now_s, notice.until_s - longest_s - copy_s - _SPARE_S)
    if leave_at_s - now_s < _WORTH_S:
        return Plan((), (), None, now_s)
    room_s = leave_at_s - now_s - copy_s
    fitting, taken_s = 0, 0.0
    for each in order:
        taken_s += each.save_s
        if taken_s > room_s:
            break
        fitting += 1
    then = names[fitting:] if fitting else ()
    return Plan(names[:fitting], then, max(now_s, leave_at_s - copy_s), leave_at_s)


def is_over(notice: EndNotice, now_s: float) -> bool:
    """Whether its time has passed, and this box is still there."""
    return notice.until_s is not None and now_s >= over_at_s(notice.until_s)


def over_at_s(until_s: float) -> float:
    return until_s + _STILL_HERE_S


def is_same(before: EndNotice, now: EndNotice) -> bool:
    """Whether a notice of the same id says nothing new. A time that moves by a few seconds is none."""
    if before.until_s is None or now.until_s is None:
        return before.until_s is now.until_s
    return abs(before.until_s - now.until_s) <= _SAME_S


def explains(notice: EndNotice, *, announced_s: float, last_sign_s: float) -> bool:
    """Whether an end of the box with this last sign of life is the announced one: up to ten minutes late.

    Without a time: within an hour. A risk explains nothing.
    """
    last_s = (announced_s + _SOME_TIME_S if notice.until_s is None else notice.until_s) + _SLACK_S
    return notice.kind == END and announced_s - _SLACK_S <= last_sign_s <= last_s
