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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import add, itemgetter, mul, sub
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


@dataclass(frozen=True, slots=True)
class Speeds:
    """`mean` is the logarithm of each level's speed, then the drift; `cov` their covariance, row by row."""

    mean: tuple[float, ...]
    cov: tuple[float, ...]
    readings: tuple[int, ...]
    noise: float = _NOISE

    @property
    def levels(self) -> int:
        return len(self.readings)


class _Shape(NamedTuple):
    """How a symmetric matrix of this size is taken apart and put together; `half` is its upper triangle, row by row.

    A reading moves every cell of the covariance, and a simulated year has fifty thousand readings.
    """

    half: Callable[[list[float]], tuple[float, ...]]
    by_row: Callable[[list[float]], tuple[float, ...]]  # a vector's element for each cell of the half, by its row ...
    by_column: Callable[[list[float]], tuple[float, ...]]  # ... and by its column
    whole: Callable[[list[float]], tuple[float, ...]]


@cache
def _shape(size: int) -> _Shape:
    cells = [(a, b) for a in range(size) for b in range(a, size)]
    places = {cell: place for place, cell in enumerate(cells)}
    back = [places[min(a, b), max(a, b)] for a in range(size) for b in range(size)]
    half = itemgetter(*[a * size + b for a, b in cells])
    return _Shape(half, itemgetter(*[a for a, _ in cells]), itemgetter(*[b for _, b in cells]), itemgetter(*back))


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
    mean, cov = _aged(speeds, for_s)
    return Speeds(mean, tuple(cov), speeds.readings, speeds.noise)


def _aged(speeds: Speeds, for_s: float) -> tuple[tuple[float, ...], list[float]]:
    n, cov = len(speeds.readings), list(speeds.cov)
    keep, fades = math.exp(-for_s / _DRIFT_S), _FADES * for_s
    cov[:: n + 2] = [c + fades for c in cov[:: n + 2]]
    cov[n :: n + 1] = cov[n * n + n :] = [c * keep for c in cov[n * n + n :]]  # it is symmetric
    cov[-1] = speeds.cov[-1] * keep * keep + _DRIFT_SD**2 * (1.0 - keep * keep)
    return (*speeds.mean[:n], speeds.mean[n] * keep), cov


def read(speeds: Speeds, level: int, reading: float, after_s: float = 0.0) -> Speeds:
    """After one more reading (> 0) at a level, `after_s` in which nobody looked."""
    mean, old = _aged(speeds, after_s)
    before, noise, size = speeds.readings, speeds.noise, len(mean)
    shape, n = _shape(size), size - 1
    row = list(map(add, old[level * size : level * size + size], old[n * size :]))
    doubt = row[level] + row[n]
    miss = math.log(reading) - mean[level] - mean[n]
    if before[level]:
        told = max(_LEAST_NOISE**2, miss * miss - doubt)
        told = min(told, 9.0 * noise * noise)  # one reading that is far off is not yet a noisier box
        noise = math.sqrt((1.0 - _NOISE_GAIN) * noise * noise + _NOISE_GAIN * told)
    total = doubt + noise * noise
    more = (max(noise, _NOISE) / max(speeds.noise, _NOISE)) ** 2  # what was read before was as noisy
    share = more / total
    half = shape.half(old) if more == 1.0 else [more * cell for cell in shape.half(old)]
    less = map(mul, shape.by_row(row), shape.by_column([share * each for each in row]))
    cov = shape.whole(list(map(sub, half, less)))
    moved = tuple([m + r * miss / total for m, r in zip(mean, row, strict=True)])
    return Speeds(moved, cov, (*before[:level], before[level] + 1, *before[level + 1 :]), noise)


def scatters(speeds: Speeds) -> bool:
    """Whether readings miss their forecast by half more than they were taken to: one look then tells little."""
    return speeds.noise > 1.5 * _NOISE


def gain(speeds: Speeds, level: int, than: int) -> tuple[float, float]:
    """How much faster a level is than another: the logarithm of their ratio and its standard deviation."""
    size = speeds.levels + 1
    cov = speeds.cov
    variance = cov[level * size + level] + cov[than * size + than] - 2.0 * cov[level * size + than]
    return speeds.mean[level] - speeds.mean[than], math.sqrt(max(0.0, variance))
