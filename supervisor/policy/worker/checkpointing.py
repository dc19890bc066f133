"""How often a program saves a checkpoint: the interval with the least waste, from measurements on this box.

C is the time that a save blocks training; lambda is the failure rate of this program at this level on this box. The waste
of an interval tau is about C / tau (saving) + lambda * tau / 2 (work lost at a failure); it is least at

* tau = sqrt(2 C / lambda)                                            (Young 1974, first order), and with M = 1 / lambda
* tau = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / (18 M)) - C, M if C >= 2M   (Daly 2006, higher order).

`lambda` is the mean of a Gamma posterior, (k + a) / (T + b): k failures in T seconds of running, which include the
present uptime although it has not ended. Waste is linear in lambda, so only its mean is needed; the mean of M would be
infinite for small k.

**Hazard-aware**: once five reboots are known at a level, the hazard h(u) at the present uptime u replaces lambda: a kernel
estimate over the uptimes at which the box rebooted, shrunk towards the exponential by n / (n + 5).

The result is clamped to [`min_s`, `max_s`]. A new value is used only when it differs by more than `move` (a fifth): around
the optimum the waste is almost constant.

Worked example: C = 1 s, reboots every 18 min: tau = 45.8 s and 6 % waste; a fixed 10 minutes wastes 27-41 %.
"""

from __future__ import annotations

import math
from typing import Final

from supervisor.formats import span
from supervisor.keys import key
from supervisor.records import Record

_REBOOTS_FOR_HAZARD: Final = 5
_LEAST_COST_S: Final = 0.001  # keeps the interval above zero for a save too short to measure


class CheckpointSettings(Record):
    """`[checkpoint]` in the config. All times in seconds."""

    min_s: float = key(5.0, "shortest interval between two checkpoints", up_to="max_s")
    max_s: float = key(300.0, "longest interval between two checkpoints")
    first_s: float = key(10.0, "interval while the cost of a save is unknown")
    move: float = key(0.2, "the interval is changed only when it would move by more than this share", low=0, high=1)
    prior_failures: float = key(1.0, "weight of the assumed failure rate, in failures")
    prior_mtbf_s: float = key(4 * 3600.0, "assumed time between failures before any were measured")


class History(Record):
    """Failures and running times so far. `uptimes_s` are the uptimes at which the box rebooted uncleanly at this level."""

    program_failures: int = 0
    program_exposure_s: float = 0.0
    reboots: int = 0
    level_exposure_s: float = 0.0
    uptimes_s: tuple[float, ...] = ()
    uptime_s: float | None = None  # of the present boot


class IntervalVerdict(Record):
    interval_s: float
    why: str


def daly_s(cost_s: float, mtbf_s: float) -> float:
    """Daly's higher-order optimum, in seconds."""
    if cost_s >= 2.0 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2.0 * mtbf_s)
    return math.sqrt(2.0 * cost_s * mtbf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - cost_s


def posterior_rate(settings: CheckpointSettings, failures: int, exposure_s: float) -> float:
    """Mean of the Gamma posterior of a failure rate, per second."""
    prior_exposure_s = settings.prior_failures * settings.prior_mtbf_s
    return (failures + settings.prior_failures) / (exposure_s + prior_exposure_s)


def hazard(uptimes_s: tuple[float, ...], uptime_s: float, rate: float) -> float:
    """The reboot hazard per second at `uptime_s`, shrunk towards the constant `rate`.

    Nelson-Aalen increments 1/(number still up), smoothed by a Gaussian kernel whose width is a normal-reference
    bandwidth, 1.06 sd n^(-1/5), at least 30 s. Beyond the longest known uptime the last estimate stays in use.
    """
    n = len(uptimes_s)
    if n < _REBOOTS_FOR_HAZARD:
        return rate
    ordered = sorted(uptimes_s)
    mean = sum(ordered) / n
    spread = math.sqrt(sum((u - mean) ** 2 for u in ordered) / (n - 1))
    width = max(30.0, 1.06 * spread * math.pow(n, -0.2))
    at_s = min(uptime_s, ordered[-1])
    scale = width * math.sqrt(2.0 * math.pi)
    kernel = sum(
        math.exp(-0.5 * ((at_s - died_s) / width) ** 2) / (scale * (n - index)) for index, died_s in enumerate(ordered)
    )
    weight = n / (n + _REBOOTS_FOR_HAZARD)
    return weight * kernel + (1.0 - weight) * rate


def choose(
    settings: CheckpointSettings, history: History, *, cost_s: float | None, current_s: float | None
) -> IntervalVerdict | None:
    """The interval to use from now on, or None to keep `current_s`.

    `cost_s` is the measured time that a save blocks training; while it is unknown, the interval is `first_s`.
    """
    if cost_s is None:
        if current_s is not None:
            return None
        first_s = _clamp(settings, settings.first_s)
        return IntervalVerdict(first_s, f"no save measured yet: begins with a save every {span(first_s)}")
    own_rate = posterior_rate(settings, history.program_failures, history.program_exposure_s)
    box_rate = posterior_rate(settings, history.reboots, history.level_exposure_s)
    aware = history.uptime_s is not None and len(history.uptimes_s) >= _REBOOTS_FOR_HAZARD
    if history.uptime_s is not None:
        box_rate = hazard(history.uptimes_s, history.uptime_s, box_rate)
    mtbf_s = 1.0 / (own_rate + box_rate)
    best_s = _clamp(settings, daly_s(max(cost_s, _LEAST_COST_S), mtbf_s))
    if current_s is not None and abs(best_s - current_s) <= settings.move * current_s:
        return None
    kind = "at this uptime" if aware else "on average"
    why = f"a save costs {span(cost_s)}, one failure in {span(mtbf_s)} {kind}: saves every {span(best_s)}"
    return IntervalVerdict(best_s, why)


def _clamp(settings: CheckpointSettings, interval_s: float) -> float:
    return min(settings.max_s, max(settings.min_s, interval_s))
