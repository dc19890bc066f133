"""The load policy with pre-checks in the loop: a GPU that is read at every review, or not (`bench/load.py`, sensitivity).

The temperature follows the wear that a level does: 60 C when cold, 90 C, where it slows down, at the end. Within 3 C of that
no higher level is tried for half an hour, as `policy/prechecks.py` has it. A reading that is missing vetoes nothing, and
lifts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from supervisor.policy.load import Cap
from supervisor.whatif.held import Held

_COLD_C, _SLOWS_C, _MARGIN_C, _CLEAR_S = 60.0, 90.0, 3.0, 1800.0


@dataclass(slots=True)
class Watched(Held):
    """`Held`, told of the temperature by the play that it is in (`box`, set once that is made)."""

    missing: float = 0.0  # share of the readings
    seed: int = 0
    box: Any = None
    hot_s: float | None = None  # when it was hot last
    vetoed: int = 0  # the highest level while it stands
    chance: Random = field(init=False)

    def begin(self) -> int:
        self.chance = Random(f"gpu {self.seed}")
        return Held.begin(self)

    def review(self, at_s: float, up_s: float, reading: float | None) -> int:
        top = len(self.settings.names) - 1
        if self.missing < 1.0 and self.chance.random() >= self.missing:
            celsius = _COLD_C + (_SLOWS_C - _COLD_C) * min(1.0, self.box.heat)
            if celsius >= _SLOWS_C - _MARGIN_C:
                self.hot_s, self.vetoed = at_s, self.state.level
            elif self.hot_s is not None and at_s - self.hot_s >= _CLEAR_S:
                self.hot_s = None
        self.cap = Cap(top) if self.hot_s is None else Cap(min(top, self.vetoed), "a GPU is about to slow down for its heat")
        return Held.review(self, at_s, up_s, reading)
