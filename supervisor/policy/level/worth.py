"""The worth of a level: its speed, times the share of its training that is kept in spite of reboots.

With `rate` reboots per second of running, a checkpoint every tau seconds, D seconds of outage per reboot and a penalty of
c seconds of training per reboot:

    kept(rate) = (x / (e^x - 1) - c * rate) / (1 + rate * D),   x = rate * tau

The first term is the share of a checkpoint interval that survives. For small x it is 1 - x/2: a reboot loses half an
interval. The penalty is the cost of a reboot beyond lost work and downtime (a replay buffer that must refill, the risk, the
nuisance).

Worked example: D = 3.5 min, tau = 5 min, c = 10 min. One reboot in 24 h keeps 98.9 %, one in 3 h 91.3 %, one in 18 min 26
%.

Why not just prefer the level without reboots ("find the breaking point and stay below"): a reboot costs some minutes, but a
level that is too low costs its share of every hour. The rate is estimated as (prior + reboots) / (prior time + time).
"""

from __future__ import annotations

import math
from typing import Final

from supervisor.records import Record

_LEAST_KEPT: Final = 0.001  # for a level that loses more than it makes: the logarithm of a negative share does not exist
_ONE_IN_TEN: Final = 1.2816  # standard deviations below the mean: a tenth of a normal distribution lies below that
PRIOR_UP_S: Final = 2 * 3600.0
PRIOR_MTBF_S: Final = 48 * 3600.0


class Costs(Record):
    """The costs of a reboot and of a change of level on this box: running medians of measurements, in seconds."""

    downtime_s: float = 210.0
    interval_s: float = 300.0  # between checkpoints
    change_s: float = 60.0  # training lost by each change of level


def reboot_rate(reboots: float, up_s: float) -> float:
    """Estimated reboots per second of running: the measured ones, added to a prior of two hours at one reboot in 48 h."""
    return (PRIOR_UP_S / PRIOR_MTBF_S + reboots) / (PRIOR_UP_S + up_s)


def kept(rate: float, costs: Costs, penalty_s: float) -> float:
    """The share of a level's speed that remains at this rate of reboots; at least `_LEAST_KEPT`."""
    x = rate * costs.interval_s
    survives = 1.0 - x / 2.0 if x < 1e-6 else x / math.expm1(x)
    left = (survives - penalty_s * rate) / (1.0 + rate * costs.downtime_s)
    return max(_LEAST_KEPT, left)


def would_keep(
    steps_per_s: float, error: float, reboots: float, up_s: float, costs: Costs, length_s: float
) -> tuple[float, float]:
    """Steps that a level would have kept in `length_s` of wall time: (expected value, lower bound at 90 % confidence).

    `steps_per_s` is its measured speed without reboots; `error` is the standard error of the logarithm of that speed.
    Example: 500 steps/s +- 3 %, one reboot in 24 h of running: 10 h would have kept 17.9 million steps, at least 17.0
    million.
    """
    expected = steps_per_s * length_s * kept(reboot_rate(reboots, up_s), costs, 0.0)
    slow = steps_per_s * math.exp(-_ONE_IN_TEN * error)
    return expected, min(expected, slow * length_s * kept(1.0 / mtbf_bound_s(reboots, up_s), costs, 0.0))


def mtbf_bound_s(reboots: float, up_s: float, confidence: float = 0.9) -> float:
    """A lower bound of the mean time between reboots, at this confidence.

    It belongs to the largest rate at which so few reboots still have a probability of 1 - confidence (Poisson). Example:
    none in 27.3 h: at 90 % at least 11.9 h; one in 24 h: at least 6.2 h. A fractional count is rounded up.
    """
    seen = math.ceil(reboots)
    low, high = 0.0, 4.0 * (seen + 3.0)
    for _ in range(60):
        middle = (low + high) / 2.0
        term = total = math.exp(-middle)
        for k in range(1, seen + 1):
            term *= middle / k
            total += term
        low, high = (middle, high) if total > 1.0 - confidence else (low, middle)
    return up_s / high
