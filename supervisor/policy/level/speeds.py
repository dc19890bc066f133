"""How fast each level is compared with the others, from noisy readings that share a common drift.

A reading is the kept throughput of a review, in any unit. Its logarithm is taken to be

    speed of the level + drift of the box + noise

where the drift (games get longer, other tenants come and go) is common to all levels, has a standard deviation of 8 %
and forgets itself in six hours. The levels' speeds and the drift are estimated together by a Kalman filter; before any
reading a step up the ladder is believed to gain 12 +- 12 %, so a level that never ran inherits what its neighbours have
shown, with honest doubt. Knowledge fades: a speed not looked at for two days is doubted by 2 % more.

The noise is not believed either: it is the running mean of what readings miss their forecast by, so a box whose readings
scatter by a quarter is given more of them before anything is concluded. And what was concluded before is doubted by as
much: when the noise turns out to be twice what it was taken for, so does the doubt about every level. Without that, one low
reading of a level in an hour's climb was believed for a week, because it had been weighed with a noise of 12 %. A noise
that turns out to be less takes no doubt away: the drift is as unknown as before.

Worked example: three readings of 100 at light, three of 130 at the next level: it is faster by 26 +- 8 % or so, and the
level above by 41 +- 14 %.

Why not the plain mean of each level: readings an hour apart share the drift, readings days apart do not; a level judged by
three readings on a slow afternoon would be held slow for ever.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

_STEP: Final = 0.12  # a step up gains this, in logarithms, while nobody has looked ...
_STEP_SD: Final = 0.12  # ... give or take
_UNIT_SD: Final = 30.0  # the unit of a reading is not known
_DRIFT_SD: Final = 0.08
_DRIFT_S: Final = 6 * 3600.0
_FADES: Final = 0.02**2 / (48 * 3600.0)  # variance per second
_NOISE: Final = 0.12
_NOISE_GAIN: Final = 0.05
_LEAST_NOISE: Final = 0.03


class Speeds(NamedTuple):
    """`mean` is the logarithm of each level's speed, then the drift; `cov` their covariance, row by row."""

    mean: tuple[float, ...]
    cov: tuple[float, ...]
    readings: tuple[int, ...]
    noise: float = _NOISE


def unread(levels: int) -> Speeds:
    """Before any reading."""
    size = levels + 1
    cov = [0.0] * (size * size)
    for a in range(levels):
        for b in range(levels):
            cov[a * size + b] = _UNIT_SD**2 + _STEP_SD**2 * min(a, b)
    cov[-1] = _DRIFT_SD**2
    return Speeds((*(_STEP * level for level in range(levels)), 0.0), tuple(cov), (0,) * levels)


def aged(speeds: Speeds, for_s: float) -> Speeds:
    """After `for_s` in which nobody looked: the drift forgets itself, speeds are doubted more."""
    mean, cov, readings, noise = speeds
    keep, fades, size = math.exp(-for_s / _DRIFT_S), _FADES * for_s, len(mean)
    faded = list(cov)
    for level in range(size - 1):
        faded[level * (size + 1)] += fades
        faded[level * size + size - 1] *= keep
        faded[(size - 1) * size + level] *= keep
    faded[-1] = faded[-1] * keep * keep + _DRIFT_SD**2 * (1.0 - keep * keep)
    return Speeds((*mean[:-1], mean[-1] * keep), tuple(faded), readings, noise)


def read(speeds: Speeds, level: int, reading: float, after_s: float = 0.0) -> Speeds:
    """After one more reading (> 0) at a level, `after_s` in which nobody looked."""
    mean, cov, before, was_noise = aged(speeds, after_s)
    size, noise = len(mean), was_noise
    doubts = [a + b for a, b in zip(cov[level * size : level * size + size], cov[-size:], strict=True)]
    doubt = doubts[level] + doubts[-1]
    miss = math.log(reading) - mean[level] - mean[-1]
    if before[level]:
        noise = _noisy(noise, miss, doubt)
    total = doubt + noise * noise
    gains = [each / total for each in doubts]
    moved = tuple([m + g * miss for m, g in zip(mean, gains, strict=True)])
    # What was read before was as noisy: it is doubted by as much.
    more = (max(noise, _NOISE) / max(was_noise, _NOISE)) ** 2
    told = [gained * each for gained in gains for each in doubts]
    after = tuple([more * (was - less) for was, less in zip(cov, told, strict=True)])
    readings = (*before[:level], before[level] + 1, *before[level + 1 :])
    return Speeds(moved, after, readings, noise)


def _noisy(noise: float, miss: float, doubt: float) -> float:
    """The noise, after a reading that misses its forecast by this much."""
    so_far, told = noise * noise, miss * miss - doubt
    most = 9.0 * so_far  # one reading that is far off is not yet a noisier box
    told = most if told > most else max(_LEAST_NOISE**2, told)
    return math.sqrt((1.0 - _NOISE_GAIN) * so_far + _NOISE_GAIN * told)


def scatters(speeds: Speeds) -> bool:
    """Whether readings miss their forecast by half more than they were taken to: one look then tells little."""
    return speeds.noise > 1.5 * _NOISE


def gain(speeds: Speeds, level: int, than: int) -> tuple[float, float]:
    """How much faster a level is than another: the logarithm of their ratio and its standard deviation."""
    mean, cov, size = speeds.mean, speeds.cov, len(speeds.mean)
    variance = cov[level * size + level] + cov[than * size + than] - 2.0 * cov[level * size + than]
    return mean[level] - mean[than], math.sqrt(max(variance, 0.0))
