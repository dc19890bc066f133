"""What a level is worth: its speed, times the share of it that is kept although the box reboots now and then.

With `rate` reboots per second of running, checkpoints every tau seconds, D seconds of outage a reboot and a penalty of c
seconds of training for each:

    kept(rate) = (x / (e^x - 1) - c * rate) / (1 + rate * D),   x = rate * tau

The first term is the share of an interval that a reboot leaves (1 - x/2 for small x: half an interval is lost a reboot),
the penalty is what a reboot costs beyond lost work and downtime (a replay that refills, the risk, the nuisance), and the
divisor is the wall time a reboot adds.

Worked example: D = 3.5 min, tau = 5 min, c = 10 min. One reboot in 24 h keeps 98.9 %, one in 3 h 91.3 %, one in 18 min
26 %. So a level that is a fifth faster pays only if it lives for about 92 min or more.

Why not just prefer the level without reboots ("find the breaking point and stay below"): a reboot costs some minutes, a
level that is too low costs its share of every hour. The rate is estimated as (prior + reboots) / (prior time + time), so
that a level which never ran is neither safe nor dangerous.
"""

from __future__ import annotations

import math
from typing import Final

from supervisor.records import dataclass

_LEAST_KEPT: Final = 0.001  # a level that loses more than it makes is worth next to nothing, not a negative logarithm
_ONE_IN_TEN: Final = 1.2816  # standard deviations below the mean: a tenth lies below that
PRIOR_UP_S: Final = 2 * 3600.0
PRIOR_MTBF_S: Final = 48 * 3600.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What a reboot and a change of level cost on this box: running medians of what was measured, in seconds."""

    downtime_s: float = 210.0
    interval_s: float = 300.0  # between checkpoints
    change_s: float = 60.0  # of lost training, for each change of level


def reboot_rate(reboots: float, up_s: float) -> float:
    """Reboots per second of running: what was seen, on top of two hours at one reboot in 48 h."""
    return (PRIOR_UP_S / PRIOR_MTBF_S + reboots) / (PRIOR_UP_S + up_s)


def kept(rate: float, costs: Costs, penalty_s: float) -> float:
    """The share of a level's speed that is left at this rate of reboots; never quite nothing."""
    x = rate * costs.interval_s
    survives = 1.0 - x / 2.0 if x < 1e-6 else x / math.expm1(x)
    left = (survives - penalty_s * rate) / (1.0 + rate * costs.downtime_s)
    return max(_LEAST_KEPT, left)


def would_keep(
    steps_per_s: float, error: float, reboots: float, up_s: float, costs: Costs, length_s: float
) -> tuple[float, float]:
    """Steps that a level would have kept in `length_s` of wall time: (expected, at least with 90 % confidence).

    `steps_per_s` is its measured speed without reboots, `error` that speed's standard error as a logarithm. Example: 500
    steps/s +- 3 %, one reboot in 24 h of running; 10 h would have kept 17.9 million steps, and at least 17.0 million.
    """
    expected = steps_per_s * length_s * kept(reboot_rate(reboots, up_s), costs, 0.0)
    slow = steps_per_s * math.exp(-_ONE_IN_TEN * error)
    return expected, min(expected, slow * length_s * kept(1.0 / mtbf_bound_s(reboots, up_s), costs, 0.0))


def mtbf_bound_s(reboots: float, up_s: float, confidence: float = 0.9) -> float:
    """The time between reboots that is exceeded with this confidence.

    The largest rate at which as few reboots as were seen still have a chance of 1 - confidence (Poisson). Example: none
    in 27.3 h: at 90 % at least 11.9 h; one in 24 h: at least 6.2 h. A fractional count is rounded up: the careful side.
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
