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

A box stays at a level for hours. Its readings move the other levels' speeds through that level's and the drift's alone, so
while it stays only the covariance of those two is kept up, and what it comes to for the others is written down when the
level changes: the compressed filter of Guivant and Nebot (IEEE Transactions on Robotics and Automation 17(3), 2001), the
same numbers for a quarter of the work. A simulated year has fifty thousand readings.

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
_made: Final = tuple.__new__  # a NamedTuple in half the time: a simulated year has fifty thousand readings


class Stay(NamedTuple):
    """What the readings at one level have come to since it was gone to, for a covariance C as it was then.

    With (l, d) the level and the drift, and o, p any other levels, the covariance is now

        l and d: own, both, drift        o with (l, d): C_o,(l, d) times the matrix ((ll, ld), (dl, dd))
        o with p: scale * C_op - C_o,(l, d) ((told_ll, told_ld), (told_ld, told_dd)) C_(l, d),p, and `faded` more if o is p
    """

    level: int
    own: float
    both: float
    drift: float
    ll: float = 1.0
    ld: float = 0.0
    dl: float = 0.0
    dd: float = 1.0
    told_ll: float = 0.0
    told_ld: float = 0.0
    told_dd: float = 0.0
    scale: float = 1.0
    faded: float = 0.0


class Speeds(NamedTuple):
    """`mean` is the logarithm of each level's speed, then the drift; `cov` their covariance before the stay, row by row."""

    mean: tuple[float, ...]
    cov: tuple[float, ...]
    readings: tuple[int, ...]
    noise: float = _NOISE
    stay: Stay | None = None


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
    mean, cov, readings, noise, stay = speeds
    stay = stay or _stay(cov, len(mean), 0)
    keep = math.exp(-for_s / _DRIFT_S)
    own, both, drift, ld, dd, faded = _aged(stay, keep, for_s)
    stay = stay._replace(own=own, both=both, drift=drift, ld=ld, dd=dd, faded=faded)
    return Speeds((*mean[:-1], mean[-1] * keep), cov, readings, noise, stay)


def read(speeds: Speeds, level: int, reading: float, after_s: float = 0.0) -> Speeds:
    """After one more reading (> 0) at a level, `after_s` in which nobody looked."""
    mean, cov, before, was_noise, stay = speeds
    if stay is None or stay.level != level:
        cov = settled(speeds).cov
        stay = _stay(cov, len(mean), level)
    keep, size, noise = math.exp(-after_s / _DRIFT_S), len(mean), was_noise
    own, both, drift, ld, dd, faded = _aged(stay, keep, after_s)
    own_row, drift_row = own + both, both + drift
    doubt = own_row + drift_row
    miss = math.log(reading) - mean[level] - mean[-1] * keep
    if before[level]:
        noise = _noisy(noise, miss, doubt)
    total = doubt + noise * noise
    by_l, by_d = stay.ll + ld, stay.dl + dd  # what a unit of the others' covariance with l, and with d, has to do with it
    step = miss / total
    l_step, d_step = by_l * step, by_d * step
    with_l, with_d = cov[level * size : level * size + size], cov[-size:]
    moved = [m + l_cov * l_step + d_cov * d_step for m, l_cov, d_cov in zip(mean, with_l, with_d, strict=True)]
    moved[level], moved[-1] = mean[level] + own_row * step, mean[-1] * keep + drift_row * step
    to_l, to_d, share = own_row / total, drift_row / total, by_d / total
    told: tuple[float, ...] = (
        level,
        own - own_row * to_l,
        both - own_row * to_d,
        drift - drift_row * to_d,
        stay.ll - by_l * to_l,
        ld - by_l * to_d,
        stay.dl - by_d * to_l,
        dd - by_d * to_d,
        stay.told_ll + by_l * by_l / total,
        stay.told_ld + by_l * share,
        stay.told_dd + by_d * share,
        stay.scale,
        faded,
    )
    if noise > _NOISE or was_noise > _NOISE:
        more = (max(noise, _NOISE) / max(was_noise, _NOISE)) ** 2  # what was read before was as noisy
        told = (level, *[more * each for each in told[1:]])
    readings = list(before)
    readings[level] += 1
    return _made(Speeds, (tuple(moved), cov, tuple(readings), noise, _made(Stay, told)))


def _noisy(noise: float, miss: float, doubt: float) -> float:
    """The noise, after a reading that misses its forecast by this much."""
    so_far, told = noise * noise, miss * miss - doubt
    most = 9.0 * so_far  # one reading that is far off is not yet a noisier box
    told = most if told > most else told if told > _LEAST_NOISE**2 else _LEAST_NOISE**2
    return math.sqrt((1.0 - _NOISE_GAIN) * so_far + _NOISE_GAIN * told)


def scatters(speeds: Speeds) -> bool:
    """Whether readings miss their forecast by half more than they were taken to: one look then tells little."""
    return speeds.noise > 1.5 * _NOISE


def gain(speeds: Speeds, level: int, than: int) -> tuple[float, float]:
    """How much faster a level is than another: the logarithm of their ratio and its standard deviation."""
    mean, _, _, _, stay = speeds
    if stay is not None and stay.level == than != level:
        variance = _beside(speeds, stay, level)
    else:
        variance = _cell(speeds, level, level) + _cell(speeds, than, than) - 2.0 * _cell(speeds, level, than)
    return mean[level] - mean[than], math.sqrt(variance) if variance > 0.0 else 0.0


def settled(speeds: Speeds) -> Speeds:
    """The same knowledge with all of it in `cov`: the stay is over."""
    cells = range(len(speeds.mean))
    cov = tuple([_cell(speeds, a, b) for a in cells for b in cells])
    return Speeds(speeds.mean, cov, speeds.readings, speeds.noise)


# --- a stay --------------------------------------------------------------------------------------------------------------


def _stay(cov: tuple[float, ...], size: int, level: int) -> Stay:
    return Stay(level, cov[level * size + level], cov[level * size + size - 1], cov[-1])


def _aged(stay: Stay, keep: float, for_s: float) -> tuple[float, float, float, float, float, float]:
    """What fades: `own`, `both`, `drift`, `ld`, `dd` and `faded` after `for_s`, in which the drift has kept this share."""
    fades = _FADES * for_s
    drift = stay.drift * keep * keep + _DRIFT_SD**2 * (1.0 - keep * keep)
    return stay.own + fades, stay.both * keep, drift, stay.ld * keep, stay.dd * keep, stay.faded + fades


def _beside(speeds: Speeds, stay: Stay, other: int) -> float:
    """The variance of how much faster another level is than the one that the box stays at: `_cell` three times, in one."""
    level, own, _, _, ll, _, dl, _, told_ll, told_ld, told_dd, scale, faded = stay
    cov, size = speeds.cov, len(speeds.mean)
    by_l, by_d = cov[other * size + level], cov[other * size + size - 1]
    told = by_l * (by_l * told_ll + 2.0 * by_d * told_ld) + by_d * by_d * told_dd
    return own + scale * cov[other * size + other] + faded - told - 2.0 * (by_l * ll + by_d * dl)


def _cell(speeds: Speeds, a: int, b: int) -> float:
    """The covariance of two levels, or of a level and the drift, which comes after the last level."""
    stay, cov, size = speeds.stay, speeds.cov, len(speeds.mean)
    if stay is None:
        return cov[a * size + b]
    n, at = size - 1, stay.level
    if a in (at, n):
        a, b = b, a
    if a in (at, n):
        return (stay.own if a == at else stay.drift) if a == b else stay.both
    a_l, a_d = cov[a * size + at], cov[a * size + n]
    if b == at:
        return a_l * stay.ll + a_d * stay.dl
    if b == n:
        return a_l * stay.ld + a_d * stay.dd
    b_l, b_d = cov[b * size + at], cov[b * size + n]
    told = b_l * (a_l * stay.told_ll + a_d * stay.told_ld) + b_d * (a_l * stay.told_ld + a_d * stay.told_dd)
    return stay.scale * cov[a * size + b] - told + (stay.faded if a == b else 0.0)
