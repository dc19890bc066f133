"""A box's own past as a simulated host: the record of each level in its journal, with its uncertainty.

The true properties of the box are unknown; many different boxes would fit the journal. So several boxes are *drawn*, and
the policy is played on each:

* **speeds** from the uncertainty that all readings together leave (`policy/level/speeds.py`), relative to the lightest
  level with a reading;
* **reboots** of a level from the Gamma distribution that follows from its reboots and its training time, on top of the
  prior of two hours at one reboot in 48 h (`policy/level/worth.py`);
* **wear** where three or more runs at a level ended in a reboot after nearly the same time: then the level makes the box
  reboot after that time, within the uncertainty of the mean of these runs;
* a level that **never ran** has no record. It is drawn from the same prior, and never safer than the level below it: its
  printed numbers are a guess, and marked as one.

Worked example: light ran for 30 h without a reboot, medium for 5 h, heavy has rebooted five times after 16 to 18 min.
Every drawn box has a heavy that reboots after about 17 min; one in seven has a medium that reboots every few hours.

Why not play the one most likely box: a level with no reboot in five hours would then never reboot, and the oracle would
know it. But the cost of finding that out is exactly what the simulation should show. The box is assumed not to change.
"""

from __future__ import annotations

import math
from random import Random
from statistics import mean, median, stdev
from typing import Final

from supervisor.policy.level.speeds import Speeds
from supervisor.policy.level.worth import PRIOR_MTBF_S, PRIOR_UP_S, Costs
from supervisor.records import dataclass
from supervisor.simulation.hosts import NEVER, BoxModel, Regime
from supervisor.simulation.play import World

_WEARS: Final = 3  # runs with nearly the same length that prove wear
_ALIKE: Final = 0.25  # largest scatter (standard deviation / mean) of such runs; without wear it is 1


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a level: training time, reboots by weight, and the length of each run that a reboot ended."""

    up_s: float = 0.0
    reboots: float = 0.0
    died_s: tuple[float, ...] = ()

    @property
    def wear_s(self) -> float | None:
        """The time after which this level makes the box reboot, if it is always about the same; else None."""
        if len(self.died_s) < _WEARS or stdev(self.died_s) > _ALIKE * mean(self.died_s):
            return None
        return mean(self.died_s)


@dataclass(frozen=True, slots=True)
class Past:
    """The data from the journal. Times count from its first fact about the ladder; `path`, `deaths` are (seconds, level)."""

    names: tuple[str, ...]
    records: tuple[Record, ...]
    speeds: Speeds
    for_s: float
    path: tuple[tuple[float, int], ...]
    deaths: tuple[tuple[float, int], ...]
    ran_s: tuple[float, ...]  # seconds of training at each level in that time
    meant: int = 0  # number of reboots that do not count against any level
    reviews_s: tuple[float, ...] = ()
    downtimes_s: tuple[float, ...] = ()
    intervals_s: tuple[float, ...] = ()
    changes_s: tuple[float, ...] = ()

    @property
    def unit(self) -> int:
        """The level whose speed is 1: the lightest one with a reading."""
        return next((level for level, count in enumerate(self.speeds.readings) if count), 0)

    @property
    def costs(self) -> Costs:
        """The costs of a reboot and of a change of level: medians where there are measurements, else the defaults."""
        guess, down_s, interval_s, change_s = Costs(), self.downtimes_s, self.intervals_s, self.changes_s
        return Costs(
            downtime_s=median(down_s) if down_s else guess.downtime_s,
            interval_s=median(interval_s) if interval_s else guess.interval_s,
            change_s=median(change_s) if change_s else guess.change_s,
        )


def world(past: Past) -> World:
    """The world of every drawn box: reviews, intervals, downtimes and noise as in the journal."""
    usual, costs = World(), past.costs
    up_h = sum(record.up_s for record in past.records) / 3600.0
    return World(
        review_s=max(1.0, median(past.reviews_s)) if past.reviews_s else usual.review_s,
        interval_s=max(1.0, costs.interval_s),
        downtime_s=(min(past.downtimes_s), max(past.downtimes_s)) if past.downtimes_s else usual.downtime_s,
        change_s=costs.change_s,
        noise=past.speeds.noise,
        unrelated_h=up_h / past.meant if past.meant and up_h else NEVER,
    )


def drawn_from(past: Past, seed: int) -> BoxModel:
    """A box drawn at random from those that fit the journal."""
    chance = Random(f"past {seed}")  # noqa: S311  a simulation
    mtbf_h: list[float] = []
    wear_min: list[float] = []
    for record in past.records:
        died_after_s = record.wear_s
        if died_after_s is not None:
            doubt_s = stdev(record.died_s) / math.sqrt(len(record.died_s))
            mtbf_h.append(NEVER)
            wear_min.append(max(1.0, chance.gauss(died_after_s, doubt_s)) / 60.0)
            continue
        shape, over_s = PRIOR_UP_S / PRIOR_MTBF_S + record.reboots, PRIOR_UP_S + record.up_s
        rate = chance.gammavariate(shape, 1.0 / over_s)
        own_h = 1.0 / rate / 3600.0 if rate > 1e-12 else NEVER
        unknown = not record.up_s and bool(mtbf_h)
        mtbf_h.append(min(own_h, mtbf_h[-1]) if unknown else own_h)
        wear_min.append(wear_min[-1] if unknown else NEVER)
    return BoxModel(f"drawn {seed}", _speeds(past, chance), (Regime(tuple(mtbf_h), tuple(wear_min)),))


def _speeds(past: Past, chance: Random) -> tuple[float, ...]:
    """Speeds relative to the unit, drawn together: an unknown drift affects all levels that were read in the same hours."""
    speeds, unit = past.speeds, past.unit
    size, cov = len(speeds.mean), speeds.cov
    others = [level for level in range(size - 1) if level != unit]

    def between(a: int, b: int) -> float:
        """The covariance of two levels' speeds, each less the unit's."""
        return cov[a * size + b] - cov[a * size + unit] - cov[unit * size + b] + cov[unit * size + unit]

    lower: list[list[float]] = []  # the Cholesky factor
    for i, a in enumerate(others):
        row: list[float] = []
        for j, b in enumerate(others[: i + 1]):
            left = between(a, b) - sum(x * y for x, y in zip(row, lower[j] if j < i else row, strict=False))
            row.append(math.sqrt(max(left, 1e-12)) if i == j else left / lower[j][j])
        lower.append(row)
    lots = [chance.gauss(0.0, 1.0) for _ in others]
    found = {unit: 1.0}
    for row, level in zip(lower, others, strict=True):
        miss = sum(x * y for x, y in zip(row, lots, strict=False))
        found[level] = math.exp(speeds.mean[level] - speeds.mean[unit] + miss)
    return tuple(found[level] for level in range(size - 1))
