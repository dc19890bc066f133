"""The cost of the box, what it was spent on, and what is left to pay: by measured rates, else "not known".

The rule. The bill is the price of an hour times the wall time since the window began, whether the box trained or not. It
is divided by the accounts of the slots (`accounting.py`), which add up to the paid time: a cause's dollars are the bill
times its share of the slots' seconds. So the causes add up to the bill, and *useful* is the part for work that was kept.

The rate of a program at a level is its kept steps per second in which it was neither WAITING nor IDLE. It has reboots,
restarts and rolled-back work in it. Below `LEAST_S` of that time, or without a kept step, it is the mean rate of
its kind: of the built-in games, or of its group of scripts. Each program goes to the slot that is free first, the most
important one first. The time to finish is that of all programs whose remaining steps and rate are known; the others
are named. If there are none, it is unknown.

Worked example. $2 an hour, 10 h, two slots: $20. Of the slots' 20 h, 17 h were TRAINING, 2 h LOST and 1 h DOWN:
useful $17, lost work $2, downtime $1. 36,000,000 steps of 4 frames were kept: $20 for 144 million frames is $0.139 per
million. Pong kept 27,000,000 of them in 36,000 s: 750 steps/s; Qbert 9,000,000: 250. With 13.5 and 9 million steps to go
they need 5 and 10 h. Boxing never ran: by their mean, 500, 9 million take 5 h after Pong. In all 10 h, $20.

The range of the time to finish: a level's paid time is cut into four to eight equal blocks of half an hour or more. Their
rates scatter with reboots, restarts and drift. The mean's standard error times Student's t gives a range that holds the
true rate nine times in ten, if blocks are independent. Below two paid hours, or where the range includes a rate of 0, there
is no range.

Why not dollars per computed frame: a level that computes twice as much and loses half of it would look cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

USEFUL: Final = "useful"
CAUSES: Final = {  # account -> its name on a bill
    Account.TRAINING: USEFUL, Account.DOWN: "downtime", Account.LOST: "lost work",
    Account.RESTARTING: "starts and restarts", Account.SAVING: "saving", Account.WAITING: "waiting to start",
    Account.IDLE: "idle slots", Account.UNKNOWN: "unknown",
}  # fmt: skip


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
    for account, name in CAUSES.items():
        spent_s = seconds.get(account, 0.0)
        if spent_s > 0 or name == USEFUL:
            share = spent_s / paid_s if paid_s > 0 else None
            causes.append(Cause(name, spent_s / _HOUR_S, share, None if share is None or usd is None else usd * share))
    return Bill(wall_s / _HOUR_S, paid_s / _HOUR_S, usd, tuple(causes))


def usd_per_million(usd: float | None, frames: float | None) -> float | None:
    """Dollars per million useful frames; None without a price, or while no frame was kept."""
    return None if usd is None or not frames else usd / (frames / 1e6)


def rate(kept_steps: float, for_s: float) -> float | None:
    """Kept steps per second at a level; None: there is too little data."""
    return kept_steps / for_s if kept_steps > 0 and for_s >= LEAST_S else None


def rates(kept_steps: Mapping[str, float], held_s: Mapping[str, float], kinds: Mapping[str, str]) -> dict[str, float]:
    """The rate at a level of each program of `kinds`: its own, else the mean of its kind. Without both it is left out."""
    own = {name: known for name in kinds if (known := rate(kept_steps.get(name, 0.0), held_s.get(name, 0.0))) is not None}
    alike = {kind: mean(own[name] for name in own if kinds[name] == kind) for kind in {kinds[name] for name in own}}
    return {name: own.get(name, alike[kind]) for name, kind in kinds.items() if kind in alike}


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


def hours_to_finish(lengths_s: Sequence[float], slots: int) -> float | None:
    """Hours until the last of these programs is done, each on the slot that is free first; None: there is no slot."""
    if slots < 1:
        return None
    ends = [0.0] * slots
    for length in lengths_s:
        ends[ends.index(min(ends))] += length
    return max(ends) / _HOUR_S
