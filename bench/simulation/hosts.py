"""Simulated boxes: how fast each level is, and when the box reboots.

Ten archetypes, and new ones drawn at random. A box has one or more *regimes*. A regime has a mean time between reboots
for every level (a Poisson process), and a wear limit for some levels: minutes at that level until the box reboots, give
or take 14 %. At levels without a wear limit the box cools, with a time constant of ten minutes. Regimes change once, at a
given hour, or every day.

Levels are light 2x32, 3x48, medium 4x64, 5x96, 6x128, heavy 8x256; speeds are relative to light.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

LEVELS: Final = 6
NEVER: Final = math.inf
_DAYS_TABLE: Final = (1.0, 1.35, 1.67, 1.9, 2.1, 2.5)  # from the days for a set of games: 10 at light, 6 medium, 4 heavy
_EPISODES_TABLE: Final = (1.0, 1.15, 1.25, 1.15, 1.05, 0.9)  # from its episodes an hour, which fall above medium
_FLAT_TABLE: Final = (1.0, 1.4, 1.7, 1.85, 1.95, 2.02)
_NONE: Final = (NEVER,) * LEVELS


@dataclass(frozen=True, slots=True)
class Regime:
    """One behaviour of a box: mean hours between reboots at each level, and minutes at a level until it reboots by wear."""

    mtbf_h: tuple[float, ...] = _NONE
    wear_min: tuple[float, ...] = _NONE


@dataclass(frozen=True, slots=True)
class BoxModel:
    """A box. `changes` are (hour, regime) in order, the first at hour 0; with `daily` they repeat every 24 h."""

    name: str
    speeds: tuple[float, ...]
    regimes: tuple[Regime, ...]
    changes: tuple[tuple[float, int], ...] = ((0.0, 0),)
    daily: bool = False

    def regime(self, at_s: float) -> tuple[int, float]:
        """The index of the regime at a time, and the time of the next change."""
        hours = at_s / 3600.0
        base = 24.0 * math.floor(hours / 24.0) if self.daily else 0.0
        index, until = self.changes[0][1], base + 24.0 if self.daily else NEVER
        for hour, number in self.changes:
            if base + hour <= hours + 1e-9:
                index = number
            else:
                until = base + hour
                break
        return index, until * 3600.0


_USERS = Regime((NEVER, NEVER, NEVER, 24.0, 3.0, NEVER), (*_NONE[:5], 17.5))
_ROBUST = Regime()
_BAD_HOURS = Regime((NEVER, 40.0, 4.0, 2.0, 1.0, 0.45))

ARCHETYPES: Final = {
    host.name: host
    for host in (
        BoxModel("seed", _DAYS_TABLE, (_USERS,)),
        BoxModel("seedeps", _EPISODES_TABLE, (_USERS,)),
        BoxModel("robust", _DAYS_TABLE, (_ROBUST,)),
        BoxModel("fragile", _DAYS_TABLE, (Regime((NEVER, 4.0, 0.7, 0.5, 0.35, 0.25)),)),
        BoxModel("basehaz", _FLAT_TABLE, (Regime((6.0,) * LEVELS),)),
        BoxModel("smooth", _DAYS_TABLE, (Regime((100.0, 40.0, 16.0, 6.0, 2.0, 0.6)),)),
        BoxModel("overheat", _DAYS_TABLE, (Regime(_NONE, (*_NONE[:4], 75.0, 17.5)),)),
        BoxModel("degrade", _DAYS_TABLE, (_ROBUST, _USERS), ((0.0, 0), (4.3 * 24.0, 1))),
        BoxModel("fixed", _DAYS_TABLE, (_USERS, _ROBUST), ((0.0, 0), (2.3 * 24.0, 1))),
        BoxModel("diurnal", _DAYS_TABLE, (_ROBUST, _BAD_HOURS), ((0.0, 0), (10.0, 1), (20.0, 0)), daily=True),
    )
}


def drawn(seed: int) -> BoxModel:
    """A box drawn at random: a speed curve that may dip, a breaking level, and for half of them a change of regime."""
    chance = Random(f"host {seed}")
    speeds = _curve(chance)
    first = _regime(chance)
    kind = chance.random()
    name = f"fresh{seed}"
    if kind < 0.5:
        return BoxModel(name, speeds, (first,))
    second = _regime(chance)
    if kind < 0.85:
        return BoxModel(name, speeds, (first, second), ((0.0, 0), (24.0 * chance.uniform(0.5, 6.0), 1)))
    start = chance.uniform(1.0, 14.0)
    return BoxModel(name, speeds, (first, second), ((0.0, 0), (start, 1), (start + chance.uniform(4.0, 9.0), 0)), daily=True)


def _curve(chance: Random) -> tuple[float, ...]:
    step = chance.uniform(0.05, 0.35)
    speeds, speed = [1.0], 1.0
    dip = chance.randrange(2, LEVELS) if chance.random() < 0.25 else LEVELS
    for level in range(1, LEVELS):
        speed *= math.exp(-chance.uniform(0.02, 0.15) if level >= dip else step * chance.uniform(0.5, 1.3))
        step *= chance.uniform(0.7, 1.05)
        speeds.append(speed)
    return tuple(speeds)


def _regime(chance: Random) -> Regime:
    breaks = chance.randrange(1, LEVELS + 2)  # the first bad level; LEVELS or more: no level is bad
    base_h = chance.choice((NEVER, NEVER, 200.0, 50.0, 12.0))
    mtbf_h, wear_min = [], []
    bad_h = math.exp(chance.uniform(math.log(0.3), math.log(6.0)))
    worn = chance.random() < 0.4
    for level in range(LEVELS):
        over = level - breaks
        own_h = bad_h / 2.0**over if over >= 0 else bad_h * 8.0 ** (-over)
        hurt = over >= 0 or (over == -1 and not worn)
        rate = 1.0 / base_h + (1.0 / own_h if hurt and not (worn and over >= 0) else 0.0)
        mtbf_h.append(1.0 / rate if rate else NEVER)
        wear_min.append(max(8.0, 60.0 * bad_h / 2.0**over) if worn and over >= 0 else NEVER)
    return Regime(tuple(mtbf_h), tuple(wear_min))
