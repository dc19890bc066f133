"""Where the time of a training loop goes, in shares that add up to 1: act, env, learn, copy, save, test, rest.

The loop calls `to(LEARN)` when it changes its activity. A call reads the clock once and updates three list items: 0.2 us,
about six times per vector step of milliseconds. This is below 0.1 % of the time, so the stopwatch is always on.

On CUDA the CPU only queues work, and a CPU clock would charge the wait for it to the first reader of a result. There the
shares are measured on the device's own time line, with an event at each change of activity. Only the first changes after
each call of `shares` are timed. Only `shares` reads the events, because it waits for the device anyway.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ACT: Final = 0  # choosing actions
ENV: Final = 1  # waiting for the environments
LEARN: Final = 2  # updates
COPY: Final = 3  # storing experience and drawing batches from it
SAVE: Final = 4  # checkpoints: the time during which they block the loop
TEST: Final = 5  # test games
REST: Final = 6  # reporting, counting
PARTS: Final = ("act", "env", "learn", "copy", "save", "test", "rest")

_SAMPLED: Final = 512  # changes of activity timed by events after each call of `shares`


class Stopwatch:
    """`to(PART)` adds the time since the last call to the activity that ends now."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns, new_event: Callable[[], Any] | None = None) -> None:
        self._clock, self._new_event = clock, new_event
        self._spent = [0] * len(PARTS)
        self._part, self._since = REST, clock()
        self._events: list[Any] = []  # created once, reused after each call of `shares`
        self._marked: list[int] = []  # the part that begins at each event

    def to(self, part: int) -> None:
        """Begin the activity `part` now."""
        now = self._clock()
        self._spent[self._part] += now - self._since
        self._part, self._since = part, now
        if self._new_event is not None:
            self._mark(part)

    def shares(self) -> dict[str, float]:
        """Shares since the last call, by name, adding up to 1; empty when no time has passed. Resets the counts."""
        self.to(self._part)
        spent: list[float] = list(self._spent)
        if len(self._marked) > 1:
            spent = self._on_the_device()
        self._spent, self._marked = [0] * len(PARTS), []
        whole = sum(spent)
        return {name: took / whole for name, took in zip(PARTS, spent, strict=True)} if whole > 0 else {}

    def _mark(self, part: int) -> None:
        index = len(self._marked)
        if index >= _SAMPLED:
            return
        if index == len(self._events) and self._new_event is not None:
            self._events.append(self._new_event())
        self._events[index].record()
        self._marked.append(part)

    def _on_the_device(self) -> list[float]:
        """Milliseconds per activity: the time between two events belongs to the activity that began at the first.

        Waits for the last event.
        """
        spent = [0.0] * len(PARTS)
        count = len(self._marked)
        self._events[count - 1].synchronize()
        for index in range(count - 1):
            spent[self._marked[index]] += self._events[index].elapsed_time(self._events[index + 1])
        return spent


def timed_on(device_type: str) -> Stopwatch:
    """The stopwatch for a device: by the CPU's clock, or by CUDA's events."""
    if device_type != "cuda":
        return Stopwatch()
    import torch

    return Stopwatch(new_event=lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
