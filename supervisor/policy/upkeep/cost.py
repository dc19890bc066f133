"""The cost of the box, what it was spent on, and what is left to pay: by measured rates, else "not known".

The rule. The bill is the price of an hour times the wall time since the window began, whether the box trained or not. It
is divided by the accounts of the slots (`accounting.py`), which add up to the paid time: a cause's dollars are the bill
times its share of the slots' seconds. So the causes add up to the bill, and *useful* is the part for work that was kept.

The rate of a level is kept steps per paid slot and second (`accounting.py`), so it includes reboots, restarts and
rolled-back work at that level. Below `LEAST_S` of paid time, or without a kept step, a level has no rate. The time to finish
assumes that each game goes to the slot that is free first, the most important game first. If the remaining steps of one game
are unknown, the whole time is unknown.

Worked example. $2 an hour, 10 h, two slots: $20. Of the slots' 20 h, 17 h were productive, 2 h LOST and 1 h HOST_DOWN:
useful $17, lost work $2, downtime $1. 36,000,000 steps of 4 frames were kept: $20 for 144 million frames is $0.139 per
million. Their rate is 36,000,000 / (2 x 36,000 s) = 500 steps/s a slot. Three games with 9, 9 and 18 million steps to go
need 5, 5 and 10 slot-hours; on two slots the third begins after 5 h: 15 h, $30.

The range of the time to finish: a level's paid time is cut into four to eight equal blocks of half an hour or more. Their
rates scatter with reboots, restarts and drift. The mean's standard error times Student's t gives a range that holds the
true rate nine times in ten, if blocks are independent. Below two paid hours, or where the range includes a rate of 0, there
is no range.

Why not dollars per computed frame: a level that computes twice as much and loses half of it would look cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import fsum, sqrt
from statistics import mean, stdev
from typing import Final

from supervisor.formats import usd
from supervisor.keys import key
from supervisor.policy.upkeep.accounting import Account
from supervisor.records import Record

LEAST_S: Final = 600.0  # paid time that a level needs before it has a rate
_HOUR_S: Final = 3600.0
_BLOCK_S: Final = 1800.0  # shortest block: positions are recorded only every ten minutes
_FEWEST_BLOCKS: Final = 4
_T_90: Final = (2.353, 2.132, 2.015, 1.943, 1.895)  # Student's t for 3 to 7 degrees of freedom, 90 % two-sided
MOST_BLOCKS: Final = _FEWEST_BLOCKS + len(_T_90) - 1

# Name of the cause in reports -> its accounts. Every account is in exactly one cause.
USEFUL: Final = "useful"
CAUSES: Final[dict[str, tuple[Account, ...]]] = {
    USEFUL: (Account.PRODUCTIVE,),
    "downtime": (Account.HOST_DOWN, Account.DAEMON_DOWN),
    "lost work": (Account.LOST,),
    "unproven work": (Account.UNPROVEN,),
    "start-up": (Account.STARTUP, Account.RESTORE, Account.WARMUP),
    "checkpoint stalls": (Account.CHECKPOINT_STALL,),
    "restarts": (Account.DETECT, Account.TERMINATE, Account.BACKOFF),
    "waiting to start": (Account.ADMISSION,),
    "before an announced end": (Account.NOTICE,),
    "tests": (Account.EVALUATE,),
    "slow": (Account.SLOW,),
    "idle slots": (Account.IDLE,),
    "unknown": (Account.UNKNOWN,),
}


class CostSettings(Record):
    """`[cost]` in the config; None: not configured."""

    usd_per_hour: float | None = key(
        None, "price of an hour of this box; without it `cost` shows only hours and shares", unset="not known"
    )
    budget_usd: float | None = key(
        None, 'dollars that this box may cost in all; then an end is reached (`when_done.when = ["budget"]`)'
    )
    until: str = key("", "time at which an end is reached likewise, such as `2026-12-01T08:00:00+01:00`", unset="none")


class Cause(Record):
    """One line of the bill. `usd` is None without a price, `share` while nothing was paid."""

    name: str
    hours: float  # slot-hours
    share: float | None
    usd: float | None


class Bill(Record):
    """The time and cost of a window by cause. The hours of the causes add up to `slot_hours`, their dollars to `usd`."""

    wall_hours: float
    slot_hours: float
    usd: float | None
    causes: tuple[Cause, ...]


def usd_of(hours: float | None, usd_per_hour: float | None) -> float | None:
    """The price of so many hours in dollars; None when either is not known."""
    return None if hours is None or usd_per_hour is None else hours * usd_per_hour


def limit_reached(rules: CostSettings, *, paid_s: float, wall_s: float | None) -> str:
    """Which limit of [cost] is reached, as a clause; empty: none. `wall_s` None: the clock is not set."""
    spent = usd_of(paid_s / _HOUR_S, rules.usd_per_hour)
    if rules.budget_usd is not None and spent is not None and spent >= rules.budget_usd:
        return f"{usd(spent)} of the budget of {usd(rules.budget_usd)} are spent"
    if rules.until and wall_s is not None and wall_s >= datetime.fromisoformat(rules.until).timestamp():
        return f"the time of [cost] until, {rules.until}, has passed"
    return ""


def bill(wall_s: float, seconds: Mapping[Account, float], usd_per_hour: float | None) -> Bill:
    """The cost of `wall_s` of the box, divided by the accounts of its slots' `seconds`. Causes without time are left out."""
    paid_s = fsum(seconds.values())
    usd = usd_of(wall_s / _HOUR_S, usd_per_hour)
    causes = []
    for name, accounts in CAUSES.items():
        spent_s = fsum(seconds.get(account, 0.0) for account in accounts)
        if spent_s > 0 or name == USEFUL:
            share = spent_s / paid_s if paid_s > 0 else None
            causes.append(Cause(name, spent_s / _HOUR_S, share, None if share is None or usd is None else usd * share))
    return Bill(wall_s / _HOUR_S, paid_s / _HOUR_S, usd, tuple(causes))


def usd_per_million(usd: float | None, frames: float | None) -> float | None:
    """Dollars per million useful frames; None without a price, or while no frame was kept."""
    return None if usd is None or not frames else usd / (frames / 1e6)


def slot_rate(kept_steps: float, slot_s: float, paid_s: float) -> float | None:
    """Kept steps per slot and second at a level that was in force for `paid_s`; None: there is too little data."""
    if kept_steps <= 0 or slot_s <= 0 or paid_s < LEAST_S:
        return None
    return kept_steps / slot_s


def blocks(paid_s: float) -> int:
    """The number of equal blocks into which a level's paid time is cut; 0: it is too short for a range."""
    count = min(int(paid_s / _BLOCK_S), MOST_BLOCKS)
    return count if count >= _FEWEST_BLOCKS else 0


def spread_of(rates: Sequence[float]) -> float | None:
    """Half of the range of the mean rate, as a share of that mean, from four to eight blocks; None: unknown.

    Example: 480, 500, 500, 520 -> 0.038.
    """
    if not rates:
        return None
    middle = mean(rates)
    half = _T_90[len(rates) - _FEWEST_BLOCKS] * stdev(rates) / sqrt(len(rates))
    return half / middle if half < middle else None


def hours_to_finish(lengths_s: Sequence[float | None], slots: int) -> float | None:
    """Hours until the last of these games is done, given in order of importance; None when one length is not known."""
    known = [length for length in lengths_s if length is not None]
    if slots < 1 or len(known) < len(lengths_s):
        return None
    return makespan(known, slots) / _HOUR_S


def makespan(lengths: Iterable[float], slots: int) -> float:
    """When the last job ends, if each job goes to the slot that is free first. Example: 5, 5 and 10 on two slots: 15."""
    ends = [0.0] * slots
    for length in lengths:
        first = ends.index(min(ends))
        ends[first] += length
    return max(ends)
