"""When the box that holds a repository of copies is presumed dead, so that the next box may take over.

The rule. Each copy promises when the next one comes: within `every_s` while a program is to train. The daemon keeps that
promise even if nothing has trained since, so silence is evidence. A machine that looks at the repository counts the silence
by its own clock, which never steps: from the moment at which it first saw the newest sign of life. A sign is a new copy, a
new lease, or a lock of restic, which a copy renews while it uploads. No rule compares the clocks of two boxes.

The box is dead

1. if it is silent for twice the promise and two minutes. One promise is the time until its next copy. The other one, and the
   two minutes, are for a copy that is late: each retry after a failure comes within `every_s`;
2. if its last copy said that every program had saved and left, and it is silent for a minute;
3. if the provider says that it is gone, and it is silent for a minute after that word. While the provider says that it is
   there, it is never dead;
4. if another machine has come to this conclusion about the same copy, and wrote that into the repository;
5. if this machine is that very box with an empty disk: the provider's id of the box is in its last copy;
6. `after_s`, which the operator gave, replaces the time of 1.

It is not dead, although it is silent, if its last copy says that the work is over, or that no program was to train. A copy
of an older release promises nothing: then only 2 to 6 count. Unknown is never dead. If the repository did not answer, or
the machine did not look for more than half a promise, then the count begins anew: the box may have tried to copy meanwhile.

Worked example, every_s = 900, a look every minute. The copy of 2:00 is first seen at 2:01. The box dies at 2:05. At 2:15 its
next copy is due. At 2:33 the box has been silent for 32 minutes: it is presumed dead. Had the repository been away from 2:20
to 2:30, that would be so at 3:02. Had the box lived, and only that copy had failed, it would have tried again at 2:16, 2:18,
2:22 and 2:30.

A box whose own link to the repository is cut for more than a quarter of an hour is presumed dead although it trains. It
stops when the link is back and it reads the lease of the next box. Only the provider's word prevents that.
"""

from __future__ import annotations

import enum
from typing import Final

from supervisor.formats import span
from supervisor.policy.upkeep.copies import DONE, IDLE, LEFT
from supervisor.records import Record

_LATE_S: Final = 120.0
_SETTLES_S: Final = 60.0  # a daemon that was only restarted copies within this time
_RARE_S: Final = 330.0  # a line of cron looks every five minutes


class Verdict(enum.Enum):
    NOTHING = "nothing"  # the repository has no copy and no lease
    PAUSED = "paused"  # by the operator
    ENDED = "ended"  # the work is over
    RESTS = "rests"  # no program was to train
    UNKNOWN = "unknown"
    LIVES = "lives"
    DEAD = "dead"


class Sight(Record):
    """What one look at the repository found.

    `named` names the newest copy and lease; empty: there is none. `sign` changes with every sign of life of the box.
    """

    sign: str
    box: str = ""
    then: str = ""  # seconds until the next copy, or one of the words above; empty: an older release said nothing
    paused: str = ""  # who paused it
    presumed: str = ""  # the machine that came to the conclusion that this box is dead
    same: bool = False  # this machine is that box
    there: bool | None = None  # the provider's word; None: unknown, or not asked
    named: str = ""

    @property
    def promise_s(self) -> float | None:
        return float(self.then) if self.then.isdecimal() else None


class Watch(Record):
    """What the looks so far add up to. Times are seconds of this machine's clock that never steps."""

    sign: str = ""
    silent_s: float = 0.0
    gone_s: float | None = None  # silence since the provider first said that the box is gone; None: it does not say so
    looked_s: float | None = None  # the newest look that was answered; None: the count begins anew


class Judgement(Record):
    verdict: Verdict
    why: str


def watched(watch: Watch, sight: Sight | None, now_s: float) -> Watch:
    """The watch after one more look. `sight` None: the repository did not answer."""
    if sight is None:
        return Watch(watch.sign)
    since_s = None if watch.looked_s is None or sight.sign != watch.sign else now_s - watch.looked_s
    if since_s is None or not 0.0 <= since_s <= longest_gap_s(sight):
        return Watch(sight.sign, 0.0, None if sight.there is not False else 0.0, now_s)
    gone_s = None if sight.there is not False else 0.0 if watch.gone_s is None else watch.gone_s + since_s
    return Watch(sight.sign, watch.silent_s + since_s, gone_s, now_s)


def longest_gap_s(sight: Sight) -> float:
    """The longest time between two looks that counts as silence. Examples: 90 s for 60, 330 for 300, 450 for 900."""
    promise_s = sight.promise_s
    return _RARE_S if promise_s is None else max(promise_s / 2, min(promise_s + 30.0, _RARE_S))


def judge(watch: Watch, sight: Sight, after_s: float | None = None) -> Judgement:
    """The verdict on the box that holds the repository, with its evidence in words."""
    box, silent = f"box {sight.box}", f"has been silent for {span(watch.silent_s)}"
    lives = f"{box} gave its last sign of life {span(watch.silent_s)} ago"
    if sight.paused:
        return Judgement(Verdict.PAUSED, f"{sight.paused} paused the next box; `next-box resume` ends that")
    if not sight.sign:
        return Judgement(Verdict.NOTHING, "the repository has no copy and no lease yet")
    if sight.then == DONE:
        return Judgement(Verdict.ENDED, f"the work is over: {box} said so in its last copy")
    if sight.then == IDLE:
        return Judgement(Verdict.RESTS, f"no program was to train on {box} when it made its last copy")
    if sight.same:
        return Judgement(Verdict.DEAD, f"{box} was this box, and its disk is empty now")
    if sight.there:
        return Judgement(Verdict.LIVES, f"the provider says that {box} is there")
    if sight.presumed:
        return Judgement(Verdict.DEAD, f"{sight.presumed} presumes {box} dead, and no sign of life came since")
    if watch.gone_s is not None:
        return _counted(watch.gone_s, _SETTLES_S, f"the provider says that {box} is gone", lives)
    if sight.then == LEFT:
        return _counted(watch.silent_s, _SETTLES_S, f"{box} saved and left, and {silent}", lives)
    limit_s = 2 * sight.promise_s + _LATE_S if after_s is None and sight.promise_s is not None else after_s
    if limit_s is None:
        why = f"the last copy of {box} does not say when the next one comes; name a time: --after"
        return Judgement(Verdict.UNKNOWN, why)
    return _counted(watch.silent_s, limit_s, f"{box} {silent}, of {span(limit_s)} allowed", lives)


def _counted(silent_s: float, limit_s: float, dead: str, lives: str) -> Judgement:
    if silent_s >= limit_s:
        return Judgement(Verdict.DEAD, dead)
    return Judgement(Verdict.LIVES, f"{lives}; it is presumed dead in {span(limit_s - silent_s)}")
