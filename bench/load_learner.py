"""An oracle that must learn (a row of `bench/load.py`): it knows the ten boxes exactly, but not which of them it runs on.

It knows every archetype's speeds, reboot rates, wear and the hours at which they change. It starts with a probability of
one in ten for each box, and updates the probabilities with every reading, every reboot and every quiet ten minutes (Bayes).
It runs at the level with the greatest expected kept work, and changes at once between any two levels. The load policy knows
none of this. The gap between this learner and the oracle is the cost of identifying the box, even with such knowledge. The
gap between the policy and this learner is an upper bound of what the policy could gain without knowing the test's boxes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulation.hosts import ARCHETYPES, LEVELS, NEVER, BoxModel
from simulation.play import World, rates

_LEAST = 1e-6  # minimum probability of a box: none is excluded, because the wear of a warm box is only approximate here
_DRIFTS = 0.3  # weight of each reading: readings share a drift, so ten of them have less than ten times the information


@dataclass
class Learner:
    """Implements `play.Chooser`."""

    world: World = field(default_factory=World)
    level: int = 0
    at_s: float = 0.0
    run_s: float = 0.0  # time at this level since the last change or reboot: it determines the wear

    def begin(self) -> int:
        self.hosts = list(ARCHETYPES.values())
        self.worth = [rates(host, self.world) for host in self.hosts]
        self.belief = [1.0 / len(self.hosts)] * len(self.hosts)
        return self._choose()

    def review(self, at_s: float, up_s: float, reading: float | None) -> int:
        likely = [self._survives(host, up_s) for host in self.hosts]
        if reading is not None:
            spread = math.hypot(self.world.noise, self.world.drift)
            misses = [(math.log(reading / host.speeds[self.level])) / spread for host in self.hosts]
            likely = [one * math.exp(-_DRIFTS * miss * miss / 2.0) for one, miss in zip(likely, misses, strict=True)]
        self._weigh(likely)
        self.at_s, self.run_s = at_s, self.run_s + up_s
        return self._choose()

    def reboot(self, at_s: float, up_s: float, weight: float) -> int:
        if weight > 0.0:
            self._weigh([self._survives(host, up_s) * self._hazard(host, up_s) for host in self.hosts])
        self.at_s, self.run_s = at_s, 0.0
        return self._choose()

    def _weigh(self, likely: list[float]) -> None:
        weighed = [max(belief * one, 1e-300) for belief, one in zip(self.belief, likely, strict=True)]
        whole = sum(weighed)
        self.belief = [max(_LEAST, each / whole) for each in weighed]

    def _choose(self) -> int:
        rows = [worth[host.regime(self.at_s)[0]] for host, worth in zip(self.hosts, self.worth, strict=True)]
        means = [sum(b * row[level] for b, row in zip(self.belief, rows, strict=True)) for level in range(LEVELS)]
        best = max(range(LEVELS), key=means.__getitem__)
        if best != self.level:
            self.level, self.run_s = best, 0.0
        return self.level

    def _rates(self, host: BoxModel) -> tuple[float, float]:
        regime = host.regimes[host.regime(self.at_s)[0]]
        return regime.mtbf_h[self.level] * 3600.0, regime.wear_min[self.level] * 60.0

    def _survives(self, host: BoxModel, up_s: float) -> float:
        """The probability of `up_s` more seconds of training without a reboot."""
        mtbf_s, wear_s = self._rates(host)
        return math.exp(-up_s / mtbf_s) * _lives(self.run_s + up_s, wear_s) / max(1e-9, _lives(self.run_s, wear_s))

    def _hazard(self, host: BoxModel, up_s: float) -> float:
        """The reboot rate per second at that moment."""
        mtbf_s, wear_s = self._rates(host)
        if wear_s == NEVER:
            return 1.0 / mtbf_s
        worn = 1.0 / (0.28 * wear_s) if 0.8 * wear_s < self.run_s + up_s < 1.2 * wear_s else 1e-9
        return 1.0 / mtbf_s + worn


def _lives(run_s: float, wear_s: float) -> float:
    """The probability that a level lives for `run_s` if it wears out after 0.86 to 1.14 times `wear_s`."""
    return 1.0 if wear_s == NEVER else min(1.0, max(1e-9, (1.14 * wear_s - run_s) / (0.28 * wear_s)))
