"""What the GPU of a simulated box shows, and how much of it is missing.

One GPU of 80 GiB on which every level fits. It warms with the wear of the box (`play.Play.heat`): 60 C at rest, and 90 C,
where its hardware slows it down, at the wear that kills the box on the mean. A box that does not wear out stays below
70 C. So on a box that dies of heat the readings say it before, if only just; on any other they never speak against anything.

What is missing is `None` in what the pre-checks are shown (`policy/box/readings.py`), never zero. Each of free memory,
temperature and the reasons for which clocks are held back goes missing on its own for a share of the looks; the driver as
a whole does for hours at a time, and then the GPUs are unknown.
"""

from __future__ import annotations

from random import Random
from typing import Final

from supervisor.policy.box.readings import Gpu, Gpus
from supervisor.records import dataclass
from supervisor.simulation.hosts import NEVER

_GIB: Final = 2**30
TOTAL_BYTES: Final = 80 * _GIB
PROGRAM_BYTES: Final = 4 * _GIB
_REST_C: Final = 60.0
_SLOWDOWN_C: Final = 90.0
_LOAD_C: Final = 1.5  # for each level


@dataclass(frozen=True, slots=True)
class Sensors:
    """How the readings fail. `gap_h` is how long the driver is away each time, `between_h` how long it is there: means."""

    look_s: float = 20.0
    missing: float = 0.0  # share of looks, of each reading on its own; 1: for ever
    gap_h: float = 0.0
    between_h: float = NEVER


class Shown:
    """The readings of one play: mutable, drawn from the seed, and from nothing that the play itself draws."""

    def __init__(self, sensors: Sensors, seed: int) -> None:
        self.sensors = sensors
        self._chance = Random(f"sensors {seed}")  # noqa: S311  a simulation
        self._away = False
        self._turns_s = self._next_s()

    def _next_s(self) -> float:
        mean_h = self.sensors.gap_h if self._away else self.sensors.between_h
        return self._chance.expovariate(1.0) * mean_h * 3600.0 if mean_h < NEVER else NEVER

    def gpus(self, at_s: float, level: int, slots: int, heat: float) -> Gpus:
        """What is known of the GPU now."""
        while at_s >= self._turns_s:
            self._away = not self._away
            self._turns_s += self._next_s()
        if self._away:
            return Gpus(None, "it does not answer")
        warm_c = _REST_C + _LOAD_C * level
        temperature_c = warm_c + (_SLOWDOWN_C - warm_c) * heat
        reasons = ("hw_thermal_slowdown",) if temperature_c >= _SLOWDOWN_C else ("sw_power_cap",)
        there = [self._chance.random() >= self.sensors.missing for _ in range(3)]
        return Gpus((
            Gpu(
                0, total_bytes=TOTAL_BYTES, slowdown_c=_SLOWDOWN_C,
                free_bytes=TOTAL_BYTES - slots * PROGRAM_BYTES if there[0] else None,
                temperature_c=temperature_c if there[1] else None,
                reasons=reasons if there[2] else None,
            ),
        ))  # fmt: skip
