"""The readings of a simulated box's GPU, and how many of them are missing.

The box has one GPU of 80 GiB on which every level fits. It warms with the wear of the box (`play.Play.heat`): 60 C at
rest, and 90 C, where its hardware slows it down, at the mean wear that makes the box reboot. A box that does not wear out
stays below 70 C. So on a box that reboots because of heat the readings show it before, if only just. On any other box the
pre-checks never object.

A missing reading is `None` for the pre-checks (`policy/box/readings.py`), never zero. Free memory, temperature and the
clock reasons go missing independently, each for a share of the looks. The driver as a whole goes missing for hours at a
time, and then the GPUs are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from simulation.hosts import NEVER
from supervisor.policy.box.readings import Gpu, Gpus

_GIB: Final = 2**30
TOTAL_BYTES: Final = 80 * _GIB
PROGRAM_BYTES: Final = 4 * _GIB
_REST_C: Final = 60.0
_SLOWDOWN_C: Final = 90.0
_LOAD_C: Final = 1.5  # for each level


@dataclass(frozen=True, slots=True)
class Sensors:
    """How the readings fail. Means: the driver is missing for `gap_h` each time, and answers for `between_h` in between."""

    look_s: float = 20.0
    missing: float = 0.0  # share of looks without a reading, independently for each reading; 1: always
    gap_h: float = 0.0
    between_h: float = NEVER


class Shown:
    """The readings of one play: mutable, drawn from the seed, independently of the random numbers of the play itself."""

    def __init__(self, sensors: Sensors, seed: int) -> None:
        self.sensors = sensors
        self._chance = Random(f"sensors {seed}")
        self._away = False
        self._turns_s = self._next_s()

    def _next_s(self) -> float:
        mean_h = self.sensors.gap_h if self._away else self.sensors.between_h
        return self._chance.expovariate(1.0) * mean_h * 3600.0 if mean_h < NEVER else NEVER

    def gpus(self, at_s: float, level: int, slots: int, heat: float) -> Gpus:
        """The readings of the GPU now."""
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
