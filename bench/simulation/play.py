"""A simulated box and a chooser of its level, played against each other for some days.

Work is speed times training time, less the work since the last checkpoint at each reboot, less a penalty of some minutes
of training for each reboot. Its unit is seconds of training at light. All random numbers come from the seed: two plays of
one seed differ only by the decisions of their choosers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Final, Protocol

from simulation.hosts import NEVER, BoxModel

DAY_S: Final = 86400.0
_COOLS_S: Final = 600.0
_DRIFT_S: Final = 6 * 3600.0


class Chooser(Protocol):
    """A chooser of the level: it gets a report of ten minutes of training, or of a reboot, and answers with a level."""

    def begin(self) -> int: ...

    def review(self, at_s: float, up_s: float, reading: float | None) -> int: ...

    def reboot(self, at_s: float, up_s: float, weight: float) -> int: ...


@dataclass(frozen=True, slots=True)
class World:
    """The conditions that are the same for every box of a bench."""

    review_s: float = 600.0
    interval_s: float = 300.0
    downtime_s: tuple[float, float] = (150.0, 270.0)
    change_s: float = 60.0
    noise: float = 0.10
    drift: float = 0.08
    penalty_s: float = 300.0  # seconds of training that the score subtracts for each reboot
    missing: float = 0.0  # share of readings that are missing
    mislabelled: float = 0.0  # share of reboots with the wrong weight
    unrelated_h: float = NEVER  # mean time between reboots of weight 0


@dataclass(slots=True)
class Played:
    """The result of a play: kept work and reboots up to each mark; `path` and `deaths` are (seconds, level)."""

    work: list[float] = field(default_factory=list)
    reboots: list[int] = field(default_factory=list)
    path: list[tuple[float, int]] = field(default_factory=list)
    deaths: list[tuple[float, int]] = field(default_factory=list)


class Play:
    """One play. Mutable and simple for speed: a simulated year must take a second or two."""

    def __init__(self, host: BoxModel, chooser: Chooser, seed: int, world: World) -> None:
        self.host, self.chooser, self.world = host, chooser, world
        self.deaths_chance = Random(f"deaths {seed}")
        self.readings_chance = Random(f"readings {seed}")
        self.now_s = self.work = self.heat = self.drift = 0.0
        self.reboots = 0
        self.since_s = 0.0  # training since the last review or reboot
        self.unsaved_s = 0.0  # training since the last checkpoint
        self.fuse = self.deaths_chance.expovariate(1.0)
        self.melts_at = self.deaths_chance.uniform(0.86, 1.14)
        self.pull_chance = Random(f"plug {seed}")
        self.pulled_s = self._next_pull_s()
        number, self.change_s = host.regime(0.0)
        self.regime = host.regimes[number]
        self.level = chooser.begin()
        self.played = Played(path=[(0.0, self.level)])

    def _next_pull_s(self) -> float:
        mean_s = self.world.unrelated_h * 3600.0
        return self.pull_chance.expovariate(1.0) * mean_s if mean_s < NEVER else NEVER

    def run(self, marks_s: tuple[float, ...]) -> Played:
        for mark_s in marks_s:
            while self.now_s < mark_s:
                self._step(mark_s)
            self.played.work.append(self.work)
            self.played.reboots.append(self.reboots)
        return self.played

    def _step(self, until_s: float) -> None:
        if self.now_s + 1e-3 >= self.change_s:  # never true for a box that does not change
            number, self.change_s = self.host.regime(self.now_s)
            self.regime = self.host.regimes[number]
        regime, world, level, change_s = self.regime, self.world, self.level, self.change_s
        mtbf_s, wear_s = regime.mtbf_h[level] * 3600.0, regime.wear_min[level] * 60.0
        left_s, until_s, change_s = world.review_s - self.since_s, until_s - self.now_s, change_s - self.now_s
        if until_s < left_s or change_s < left_s:  # this test first, because `min` takes as long as ten such lines
            left_s = min(left_s, until_s, max(1e-3, change_s))
        dies_s = self.fuse * mtbf_s
        if wear_s < NEVER:
            dies_s = min(dies_s, (self.melts_at - self.heat) * wear_s)
        if self.pulled_s <= dies_s and self.pulled_s <= left_s:
            left_s, dies_s = max(0.0, self.pulled_s), NEVER
        dies = dies_s <= left_s
        for_s = max(0.0, dies_s) if dies else left_s
        self.fuse -= for_s / mtbf_s
        self.heat = self.heat + for_s / wear_s if wear_s < NEVER else self.heat * math.exp(-for_s / _COOLS_S)
        self.now_s += for_s
        self.pulled_s -= for_s
        self.since_s += for_s
        self.unsaved_s = (self.unsaved_s + for_s) % world.interval_s
        self.work += self.host.speeds[level] * for_s
        if dies or self.pulled_s <= 0.0:
            self._die(pulled=not dies)
        elif self.since_s >= world.review_s - 1e-6:
            self._review()

    def _die(self, *, pulled: bool) -> None:
        """The box reboots: by itself, or because someone pulled its plug (`pulled`)."""
        world, chance = self.world, self.deaths_chance
        self.work -= self.host.speeds[self.level] * (self.unsaved_s + world.penalty_s)
        self.reboots += 1
        self.played.deaths.append((self.now_s, self.level))
        self.now_s += chance.uniform(*world.downtime_s)
        self.melts_at, self.heat = chance.uniform(0.86, 1.14), 0.0
        if not pulled:
            self.fuse = chance.expovariate(1.0)
        weight = 0.0 if pulled else 1.0
        if world.mislabelled and chance.random() < world.mislabelled:
            weight = 1.0 - weight
        if pulled:
            self.pulled_s = self._next_pull_s()
        up_s, self.since_s, self.unsaved_s = self.since_s, 0.0, 0.0
        chosen = self.chooser.reboot(self.now_s, up_s, weight)
        if chosen != self.level:  # all programs start anyway, so the change costs nothing
            self.level = chosen
            self.played.path.append((self.now_s, chosen))

    def _review(self) -> None:
        world, chance = self.world, self.readings_chance
        fade = math.exp(-self.since_s / _DRIFT_S)
        self.drift = self.drift * fade + world.drift * math.sqrt(1.0 - fade * fade) * chance.gauss(0.0, 1.0)
        reading: float | None = self.host.speeds[self.level] * math.exp(self.drift + world.noise * chance.gauss(0.0, 1.0))
        if world.missing and chance.random() < world.missing:
            reading = None
        up_s, self.since_s = self.since_s, 0.0
        chosen = self.chooser.review(self.now_s, up_s, reading)
        if chosen != self.level:
            self.level = chosen
            self.unsaved_s = 0.0
            self.heat *= math.exp(-world.change_s / _COOLS_S)
            self.now_s += world.change_s
            self.played.path.append((self.now_s, chosen))


@dataclass(slots=True)
class Fixed:
    """Always the same level."""

    level: int

    def begin(self) -> int:
        return self.level

    def review(self, _at_s: float, _up_s: float, _reading: float | None) -> int:
        return self.level

    def reboot(self, _at_s: float, _up_s: float, _weight: float) -> int:
        return self.level


@cache
def rates(host: BoxModel, world: World) -> tuple[tuple[float, ...], ...]:
    """Kept work per second of every level in every regime, from a play of 200 days for each."""
    for_s, world = 200.0 * DAY_S, replace(world, review_s=DAY_S)  # a fixed level needs no reviews
    return tuple(
        tuple(
            Play(BoxModel(host.name, host.speeds, (regime,)), Fixed(level), 0, world).run((for_s,)).work[0] / for_s
            for level in range(len(host.speeds))
        )
        for regime in host.regimes
    )


def oracle(host: BoxModel, seed: int, world: World, marks_s: tuple[float, ...]) -> Played:
    """The result of the best level of each regime: an oracle knows all rates, and changes level without delay."""
    best = [max(range(len(row)), key=row.__getitem__) for row in rates(host, world)]
    play = Play(host, Fixed(best[host.regime(0.0)[0]]), seed, world)
    played = Played()
    for mark_s in marks_s:
        while play.now_s < mark_s:
            number, change_s = host.regime(play.now_s)
            if best[number] != play.level:
                play.level = best[number]
                play.chooser = Fixed(play.level)
                play.played.path.append((play.now_s, play.level))
            play.run((min(mark_s, max(change_s, play.now_s + 1e-3)),))
        played.work.append(play.work)
        played.reboots.append(play.reboots)
    played.path, played.deaths = play.played.path, play.played.deaths
    return played
