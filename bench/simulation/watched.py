"""The load policy with its pre-checks, on a box whose GPU is read: the effect of vetoes, and the cost of missing readings.

The rules are the daemon's own (`policy/box/prechecks.py`). They are asked at every look of the sensors and not only at a
review. A level that is vetoed is left at once, and a veto survives reboots, as in `deciding/hardware.py` and
`deciding/levels.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simulation.hosts import LEVELS, BoxModel
from simulation.play import Play, World
from simulation.policy_player import PolicyPlayer
from simulation.sensors import PROGRAM_BYTES, Sensors, Shown
from supervisor.policy.box import prechecks
from supervisor.policy.box.prechecks import BoxReadings, Need, PrecheckSettings, Rung
from supervisor.policy.level import load
from supervisor.policy.level.load import Cap

_SLOTS: Final = (2, 3, 4, 5, 6, 8)
_COOL: Final = 0.6  # share of the mean wear at which the box reboots: below it no rule objects, so a look changes nothing
_SELDOM_S: Final = 60.0
LADDER: Final = tuple(Rung(name, slots) for name, slots in zip(load.DEFAULT_NAMES, _SLOTS, strict=True))
NEEDS: Final = (Need(0, (PROGRAM_BYTES,) * LEVELS, (None,) * LEVELS),) * max(_SLOTS)


@dataclass(slots=True)
class VetoedPlayer(PolicyPlayer):
    """`PolicyPlayer`, with vetoes. `vetoed` counts them by rule."""

    checks: PrecheckSettings = field(default_factory=PrecheckSettings)
    vetoes: dict[str, int] = field(default_factory=dict)
    objected: dict[str, prechecks.StandingObjection] = field(default_factory=dict)
    vetoed: dict[str, int] = field(default_factory=dict)

    def look(self, shown: Shown, at_s: float, heat: float) -> bool:
        """Look at the GPU once; returns whether the level in force is vetoed now."""
        level = self.state.level
        box = self._box(shown, at_s, heat)
        found = prechecks.objections(self.checks, box)
        if found or self.vetoes or self.objected:
            changes, self.objected = prechecks.weigh(
                self.checks,
                found,
                present=level,
                now_s=at_s,
                vetoes=self.vetoes,
                held=self.objected,
                unseen=prechecks.unseen(box),
                blind=prechecks.blind(box),
            )
            for change in changes:
                if change.cap is None:
                    del self.vetoes[change.rule]
                else:
                    self.vetoes[change.rule] = change.cap
                    self.vetoed[change.rule] = self.vetoed.get(change.rule, 0) + 1
            self.cap = Cap(min([*self.vetoes.values(), len(self.settings.names) - 1]), ", ".join(sorted(self.vetoes)))
        return level > self.cap.level

    def reboot(self, at_s: float, up_s: float, weight: float) -> int:
        before = self.state.level
        self.objected = {}  # a new daemon has no objections yet; vetoes are on record
        step = load.rebooted(self.settings, self.costs, self.state, at_s=at_s, up_s=up_s, weight=weight, cap=self.cap)
        return self._told(step, at_s, before)

    def _box(self, shown: Shown, at_s: float, heat: float) -> BoxReadings:
        level = self.state.level
        gpus = shown.gpus(at_s, level, _SLOTS[level], heat)
        free_bytes = gpus.gpus[0].free_bytes if gpus.gpus else None
        ours_bytes = None if free_bytes is None else _SLOTS[level] * PROGRAM_BYTES
        return BoxReadings(LADDER, level, gpus, None, NEEDS, {0: ours_bytes})


class WatchedPlay(Play):
    """A play that looks at the GPU every few seconds."""

    def __init__(self, host: BoxModel, chooser: VetoedPlayer, seed: int, world: World, sensors: Sensors) -> None:
        self.checked, self.shown, self.look_s = chooser, Shown(sensors, seed), sensors.look_s
        self.next_look_s = 0.0
        super().__init__(host, chooser, seed, world)

    def _step(self, until_s: float) -> None:
        super()._step(min(until_s, self.next_look_s))
        if self.now_s + 1e-6 < self.next_look_s:
            return
        if self.heat < _COOL and not self.checked.vetoes:
            self.checked.objected = {}
            self.next_look_s = self.now_s + _SELDOM_S
            return
        self.next_look_s = self.now_s + self.look_s
        if self.checked.look(self.shown, self.now_s, self.heat):
            self._review()
