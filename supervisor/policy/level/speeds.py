"""How fast each level is compared with the others, estimated from noisy readings that share a common drift.

**Model.** A reading is the kept throughput of a review, in any unit. Its logarithm is

    speed of the level + drift of the box + noise

The drift (episodes get longer, other tenants come and go) is the same for all levels. It is an Ornstein-Uhlenbeck process:
mean 0, standard deviation 8 %, time constant 6 h. A Kalman filter estimates the levels' speeds and the drift together.

**Prior.** One step up the ladder gains 12 +- 12 %. So a level that never ran gets an estimate from its neighbours, with a
wide error. The variance of a speed grows with time: without readings for two days by 2 % (standard deviation).

**Noise** is estimated too: a running mean of the squared forecast errors. On a box whose readings scatter by 25 %, more
readings are needed before the policy concludes anything. When the estimated noise doubles, the standard errors of all
speeds double with it. When the noise turns out to be smaller, the standard errors stay: the drift is as uncertain as
before.

**Worked example.** Three readings of 100 at light, then three of 130 at the next level: that level is faster by 26 +- 8 %,
and the level above it by 41 +- 14 %.

Why not the mean of each level's readings: readings taken one hour apart share the drift, readings taken days apart do not.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

_STEP: Final = 0.12  # prior: the gain of one step up the ladder, as a logarithm ...
_STEP_SD: Final = 0.12  # ... and its standard deviation
_UNIT_SD: Final = 30.0  # prior of the first level: the unit of a reading is not known
_DRIFT_SD: Final = 0.08
_DRIFT_S: Final = 6 * 3600.0
_FADES: Final = 0.02**2 / (48 * 3600.0)  # growth of the variance of a speed, per second
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
    """The estimate before any reading."""
    size = levels + 1
    cov = [0.0] * (size * size)
    for a in range(levels):
        for b in range(levels):
            cov[a * size + b] = _UNIT_SD**2 + _STEP_SD**2 * min(a, b)
    cov[-1] = _DRIFT_SD**2
    return Speeds((*(_STEP * level for level in range(levels)), 0.0), tuple(cov), (0,) * levels)


def aged(speeds: Speeds, for_s: float) -> Speeds:
    """The estimate after `for_s` seconds without a reading: the drift decays, the variance of each speed grows."""
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
    """The estimate after one more reading (> 0) at a level, `after_s` seconds after the previous reading."""
    mean, cov, before, was_noise = aged(speeds, after_s)
    size, noise = len(mean), was_noise
    shared = [a + b for a, b in zip(cov[level * size : level * size + size], cov[-size:], strict=True)]
    variance = shared[level] + shared[-1]  # of the forecast
    error = math.log(reading) - mean[level] - mean[-1]
    if before[level]:
        # The estimated noise after a reading with this forecast error; `variance` is the variance of the forecast.
        so_far, seen = noise * noise, error * error - variance
        most = 9.0 * so_far  # one outlier does not prove that the box is noisier
        seen = most if seen > most else max(_LEAST_NOISE**2, seen)
        noise = math.sqrt((1.0 - _NOISE_GAIN) * so_far + _NOISE_GAIN * seen)
    total = variance + noise * noise
    gains = [each / total for each in shared]
    moved = tuple([m + g * error for m, g in zip(mean, gains, strict=True)])
    # Earlier readings had the same noise, so the variance of the estimates made from them grows too.
    more = (max(noise, _NOISE) / max(was_noise, _NOISE)) ** 2
    removed = [gained * each for gained in gains for each in shared]
    after = tuple([more * (was - less) for was, less in zip(cov, removed, strict=True)])
    readings = (*before[:level], before[level] + 1, *before[level + 1 :])
    return Speeds(moved, after, readings, noise)


def scatters(speeds: Speeds) -> bool:
    """Whether the noise is more than 1.5 times its prior: then one reading says little."""
    return speeds.noise > 1.5 * _NOISE


def gain(speeds: Speeds, level: int, than: int) -> tuple[float, float]:
    """How much faster `level` is than level `than`: the logarithm of their ratio, and its standard deviation."""
    mean, cov, size = speeds.mean, speeds.cov, len(speeds.mean)
    variance = cov[level * size + level] + cov[than * size + than] - 2.0 * cov[level * size + than]
    return mean[level] - mean[than], math.sqrt(max(variance, 0.0))
