"""The load policy as a chooser: the level that the daemon would choose on a simulated box."""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.policy.level import load
from supervisor.policy.level.load import Cap, LoadSettings, LoadState
from supervisor.policy.level.worth import Costs


@dataclass(slots=True)
class PolicyPlayer:
    """`policy/level/load.py` with its state. If `whys` is a list, it collects (when, level, why) for each change."""

    start: int = 0
    settings: LoadSettings = field(default_factory=LoadSettings)
    costs: Costs = field(default_factory=Costs)
    state: LoadState = field(init=False)
    cap: Cap = field(init=False)
    whys: list[tuple[float, int, str]] | None = None

    def begin(self) -> int:
        levels = len(self.settings.names)
        self.cap = Cap(levels - 1)
        self.state = load.begin(levels, min(self.start, levels - 1))
        return self.state.level

    def review(self, at_s: float, up_s: float, reading: float | None) -> int:
        before = self.state.level
        step = load.reviewed(self.settings, self.costs, self.state, at_s=at_s, up_s=up_s, reading=reading, cap=self.cap)
        return self._told(step, at_s, before)

    def reboot(self, at_s: float, up_s: float, weight: float) -> int:
        before = self.state.level
        step = load.rebooted(self.settings, self.costs, self.state, at_s=at_s, up_s=up_s, weight=weight)
        return self._told(step, at_s, before)

    def _told(self, step: load.Step, at_s: float, before: int) -> int:
        self.state, verdict = step
        if self.whys is not None and verdict.level != before:
            self.whys.append((at_s, verdict.level, verdict.why))
        return verdict.level
