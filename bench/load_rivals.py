"""The ladders and bandits that `bench/load.py` compares with the load policy. Levels are indexes, times are seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

from simulation.hosts import LEVELS

from supervisor.policy.level.worth import Costs, kept

TOP = LEVELS - 1


@dataclass
class ManualLadder:
    """A careful person: one level up after a quiet hour; one down at each reboot, and never up again after the first."""

    after_s: float = 3600.0
    level: int = 0
    frozen: bool = False
    quiet_s: float = 0.0

    def begin(self) -> int:
        return self.level

    def review(self, _at_s: float, up_s: float, _reading: float | None) -> int:
        self.quiet_s += up_s
        if not self.frozen and self.quiet_s >= self.after_s and self.level < TOP:
            self.level, self.quiet_s = self.level + 1, 0.0
        return self.level

    def reboot(self, _at_s: float, _up_s: float, weight: float) -> int:
        if weight > 0:
            self.level, self.frozen = max(0, self.level - 1), True
        return self.level


@dataclass
class RetryLadder:
    """One level down at a reboot, up again after an hour. The wait doubles for that level, up to eight hours."""

    first_s: float = 3600.0
    most_s: float = 8 * 3600.0
    level: int = 0
    quiet_s: float = 0.0
    next_s: list[float] = field(default_factory=lambda: [0.0] * LEVELS)
    fails: list[float] = field(default_factory=lambda: [0] * LEVELS)

    def begin(self) -> int:
        return self.level

    def review(self, at_s: float, up_s: float, _reading: float | None) -> int:
        self.quiet_s += up_s
        if self.quiet_s > 4 * 3600.0:
            self.fails[self.level] = 0
        if self.level < TOP and self.quiet_s >= 1800.0 and at_s >= self.next_s[self.level + 1]:
            self.level, self.quiet_s = self.level + 1, 0.0
        return self.level

    def reboot(self, at_s: float, _up_s: float, weight: float) -> int:
        self.quiet_s = 0.0
        if weight > 0 and self.level > 0:
            level = self.level
            self.next_s[level] = at_s + min(self.most_s, self.first_s * 2.0 ** self.fails[level])
            self.fails[level] += 1
            self.level -= 1
        return self.level


@dataclass
class ProbeCycle:
    """One level down at a reboot. Every four hours it probes one level up, and keeps climbing after a quiet half hour."""

    cycle_s: float = 4 * 3600.0
    level: int = 0
    quiet_s: float = 0.0
    next_s: float = 0.0
    climbing: bool = True

    def begin(self) -> int:
        return self.level

    def review(self, at_s: float, up_s: float, _reading: float | None) -> int:
        self.quiet_s += up_s
        if self.level < TOP and self.quiet_s >= 1800.0 and (self.climbing or at_s >= self.next_s):
            self.level, self.quiet_s, self.climbing = self.level + 1, 0.0, True
        return self.level

    def reboot(self, at_s: float, _up_s: float, weight: float) -> int:
        self.quiet_s = 0.0
        if weight > 0 and self.level > 0:
            self.level, self.climbing, self.next_s = self.level - 1, False, at_s + self.cycle_s
        return self.level


@dataclass
class Bandit:
    """Bayesian estimates for each level, which fade with a half-life.

    Each hour it chooses the level by a random draw (Thompson sampling) or by the upper confidence bound.
    """

    seed: int = 0
    by_lot: bool = True
    half_life_s: float = 24 * 3600.0
    cusum: bool = False
    penalty_s: float = 600.0
    level: int = 0
    stretch_s: float = 0.0
    up: list[float] = field(default_factory=lambda: [0.0] * LEVELS)
    deaths: list[float] = field(default_factory=lambda: [0.0] * LEVELS)
    speed: list[float] = field(default_factory=lambda: [0.0] * LEVELS)
    count: list[float] = field(default_factory=lambda: [0.0] * LEVELS)
    alarm: float = 0.0

    def begin(self) -> int:
        self.chance = Random(f"bandit {self.seed}")
        self.costs = Costs()
        return self.level

    def review(self, _at_s: float, up_s: float, reading: float | None) -> int:
        self._ran(up_s)
        if reading is not None:
            level = self.level
            self.count[level] = min(self.count[level] + 1.0, 60.0)
            self.speed[level] += (math.log(reading) - self.speed[level]) / self.count[level]
        if self.stretch_s >= 3600.0 - 1.0:
            self._choose()
        return self.level

    def reboot(self, _at_s: float, up_s: float, weight: float) -> int:
        self._ran(up_s)
        level = self.level
        self.deaths[level] += weight
        if self.cusum and weight > 0:
            self.alarm += math.log(8.0)
            if self.alarm > 4.0:
                self.up[level], self.deaths[level], self.alarm = min(self.up[level], 3600.0), 1.0, 0.0
        if weight > 0:
            self._choose()
        return self.level

    def _ran(self, up_s: float) -> None:
        self.stretch_s += up_s
        fade = 0.5 ** (up_s / self.half_life_s)
        self.up = [each * fade for each in self.up]
        self.deaths = [each * fade for each in self.deaths]
        self.up[self.level] += up_s
        if self.cusum:
            rate = (0.04 + self.deaths[self.level]) / (7200.0 + self.up[self.level])
            self.alarm = max(0.0, self.alarm - 7.0 * up_s * rate)

    def _worth(self, level: int) -> float:
        a, b = 0.2 + self.deaths[level], 6 * 3600.0 + self.up[level]
        known = max((k for k in range(level + 1) if self.count[k]), default=None)
        guess = 0.0 if known is None else self.speed[known] + 0.12 * (level - known)
        mean = self.speed[level] if self.count[level] else guess
        error = 0.1 / math.sqrt(self.count[level]) if self.count[level] else 0.12
        if self.by_lot:
            rate, speed = self.chance.gammavariate(a, 1.0 / b), mean + error * self.chance.gauss(0.0, 1.0)
        else:
            rate, speed = max(0.0, a - math.sqrt(a)) / b, mean + error
        return speed + math.log(kept(rate, self.costs, self.penalty_s))

    def _choose(self) -> None:
        self.stretch_s = 0.0
        highest = min(TOP, self.level + 1)
        self.level = max(range(highest + 1), key=self._worth)
