"""When the next box is rented.

The rule. A machine that is always on looks at the repository. If the box that holds it is presumed dead (`rules.py`), the
machine runs the operator's command, which rents a box from the template. That box takes over by itself. Then:

1. Only one box is awaited. The command runs again if the same box is still presumed dead after 20, 40, 80 ... minutes (from
   `arrives_s`), at most four hours. If the command itself failed, it runs again after 1, 2, 4 ... minutes, at most four
   hours.
2. The command succeeds at most `a_day` times in 24 hours, and fails at most ten times as often.
3. If it reports a price above `usd_per_hour`, it does not run again.
4. If another machine presumed the same box dead first, that machine rents. This one does so 20 minutes later, if need be.
5. It never runs while the operator has paused it, after the work is over, or while it is unknown whether the box is dead.

Worked example, a_day = 4: box A is presumed dead at 2:00, and the command succeeds. The new box never takes over, because
its image is broken. The command runs again at 2:20, 3:00 and 4:20, then not before 2:00 of the next day.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from supervisor.features.next_box.rules import Judgement, Verdict
from supervisor.formats import span, usd
from supervisor.policy.upkeep.alarm import CRITICAL, INFO, WARNING
from supervisor.records import Record, replace

RENTED, FAILED, LEFT_TO = "succeeded", "failed", "left to another machine"
ORDERED: Final = "ordered"  # the command was started; without an outcome it may have succeeded
AWAY: Final = "away"
_DAY_S: Final = 86_400.0
_FAILED_S: Final = 60.0
_LONGEST_S: Final = 4 * 3600.0
_FAILURES: Final = 10


class RentRules(Record):
    a_day: int = 4
    usd_per_hour: float | None = None
    arrives_s: float = 1200.0  # from the command until the new box has taken over


class Try(Record):
    """One run of the command, or the decision to leave it to another machine. `of`: the sign of the box presumed dead."""

    what: str
    of: str
    wall_s: float
    usd_per_hour: float | None = None


class Step(Record):
    """`do`: rent, wait or end. `key` stays while nothing has changed. `severity`: of the alert about it; empty: none."""

    do: str
    key: str
    why: str
    severity: str = ""


def away(error: str) -> Step:
    return Step("wait", AWAY, f"the repository does not answer: {error}")


def next_step(rules: RentRules, tries: Sequence[Try], found: Judgement, of: str, wall_s: float) -> Step:
    """What the machine does now. `tries`: the oldest first; `of`: the sign of the box that `found` judges."""
    ends = [each for each, after in pairwise((*tries, None)) if each is not None and (each.what != ORDERED or after is None)]
    tries = [replace(each, what=RENTED) if each.what == ORDERED else each for each in ends]
    if found.verdict is not Verdict.DEAD:
        do = "end" if found.verdict is Verdict.ENDED else "wait"
        return Step(do, found.verdict.value, found.why, _SEVERITIES.get(found.verdict, ""))
    dear = next((each.usd_per_hour for each in reversed(tries) if each.what == RENTED), None)
    if rules.usd_per_hour is not None and dear is not None and dear > rules.usd_per_hour:
        why = f"{found.why}; the last box costs {usd(dear)} an hour, above the limit of {usd(rules.usd_per_hour)}"
        return Step("wait", "price", why, CRITICAL)
    for what, most in ((RENTED, rules.a_day), (FAILED, _FAILURES * rules.a_day)):
        lately = [each for each in tries if each.what == what and wall_s - each.wall_s < _DAY_S]
        if len(lately) >= most:
            why = f"{found.why}; the command {what} {most} times in 24 hours, the limit"
            return Step("wait", f"{what} too often", why, CRITICAL)
    same = [each for each in tries if each.of == of]
    if same:
        newest = same[-1]
        row = sum(1 for each in same if each.what == newest.what)
        first_s = _FAILED_S if newest.what == FAILED else rules.arrives_s
        left_s = newest.wall_s + min(first_s * 2.0 ** min(row - 1, 20), _LONGEST_S) - wall_s
        if left_s > 0.0:
            why = f"{found.why}; {_THEN[newest.what]}, next try in {span(left_s)}"
            return Step("wait", f"{newest.what} {row}", why)
    return Step("rent", "rent", found.why)


_SEVERITIES: Final = {Verdict.ENDED: INFO, Verdict.PAUSED: INFO, Verdict.UNKNOWN: WARNING}
_THEN: Final = {
    RENTED: "the rented box has not taken over yet",
    FAILED: "the command failed",
    LEFT_TO: "another machine rents the next box",
}
