"""The sampling thread. It posts one `Sampled` per period, and one at once (but not too often) after a notification.

It also detects a change of the wall clock against CLOCK_BOOTTIME. Readings may block in /proc or on a disk, so the deciding
thread does not take them. A reading that hangs makes workers "unknown", but the daemon still responds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from supervisor.adapters.host.gpu_nvml import NvmlGpu
from supervisor.adapters.host.host import LocalHost
from supervisor.adapters.threads import Repeated
from supervisor.model.inputs import ClockMoved, Sampled
from supervisor.ports import Clock, Inbox, Probes, ahead_s

_LEAST_S: Final = 0.05  # between two samples after notifications: 20 a second are enough for people and decisions
_STEP_S: Final = 2.0  # a smaller change is a gradual correction of the wall clock, not a step


class Sampler(Repeated):
    def __init__(
        self, probes: Probes, clock: Clock, inbox: Inbox, period_s: float, wake: threading.Event,
        clock_moved: Callable[[], None], gpu: NvmlGpu, host: LocalHost,
    ) -> None:  # fmt: skip
        """Any thread may set `wake` to request a sample before the period is over.

        `clock_moved` is called when the wall clock was set, so that calendar jobs can be rescheduled.
        """
        super().__init__("sampler", vital=True)
        self._probes, self._clock, self._inbox = probes, clock, inbox
        self._period_s = period_s
        self._wake, self._clock_moved = wake, clock_moved
        self._gpu, self._host = gpu, host
        self._offset_s: float | None = None

    def stop(self) -> None:
        self._over.set()
        self._wake.set()
        super().stop()

    def look(self) -> None:
        offset_s = ahead_s(self._clock)
        if self._offset_s is None:
            self._offset_s = offset_s
        elif abs(offset_s - self._offset_s) > _STEP_S:
            self._inbox.post(ClockMoved(self._clock.now_s(), offset_s - self._offset_s))
            self._offset_s = offset_s
            self._clock_moved()
        began_s = self._clock.now_s()
        samples, reports = self._probes.sample(), self._probes.reports()
        self._inbox.post(Sampled(began_s, samples, reports, began_s, self._gpu.newest(), self._host.newest()))

    def _turn(self) -> None:
        self.look()
        self._over.wait(_LEAST_S)
        self._wake.wait(self._period_s - _LEAST_S)
        self._wake.clear()
