"""Where the time of a training loop goes, in shares that add up to 1: act, env, learn, copy, save, test, rest.

The loop says `to(LEARN)` when it turns to something else. That is one reading of the clock and three list items, 0.2 us,
some six times a vector step of milliseconds: below 0.1 % of it, so that it is never switched off.

On CUDA the processor only hands work over, and a clock of its own would book the waiting for it on whatever reads a
result first. There a share is measured on the device's own time line: an event at each turn, for the first turns after
each look (reading events is left to the look, which waits for the device anyway).
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
SAVE: Final = 4  # checkpoints, as far as they stop the loop
TEST: Final = 5  # test games
REST: Final = 6  # reporting, counting
PARTS: Final = ("act", "env", "learn", "copy", "save", "test", "rest")

_SAMPLED: Final = 512  # turns timed by events after each look


class Stopwatch:
    """`to(PART)` books the time since the last call on what was going on until now."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns, new_event: Callable[[], Any] | None = None) -> None:
        self._clock, self._new_event = clock, new_event
        self._spent = [0] * len(PARTS)
        self._part, self._since = REST, clock()
        self._events: list[Any] = []  # made once, used again after each look
        self._marked: list[int] = []  # the part that begins at each event

    def to(self, part: int) -> None:
        """From now on `part`."""
        now = self._clock()
        self._spent[self._part] += now - self._since
        self._part, self._since = part, now
        if self._new_event is not None:
            self._mark(part)

    def shares(self) -> dict[str, float]:
        """Shares since the last call, by name, adding up to 1; nothing when no time has passed. Begins anew."""
        self.to(self._part)
        spent: list[float] = list(self._spent)
        if len(self._marked) > 1:
            spent = self._on_the_device()
        self._spent, self._marked = [0] * len(PARTS), []
        whole = sum(spent)
        return {name: took / whole for name, took in zip(PARTS, spent, strict=True)} if whole > 0 else {}

    def _mark(self, part: int) -> None:
        place = len(self._marked)
        if place >= _SAMPLED:
            return
        if place == len(self._events) and self._new_event is not None:
            self._events.append(self._new_event())
        self._events[place].record()
        self._marked.append(part)

    def _on_the_device(self) -> list[float]:
        """The ms between two events, booked on the part that began at the first. Waits for the last of them."""
        spent = [0.0] * len(PARTS)
        count = len(self._marked)
        self._events[count - 1].synchronize()
        for place in range(count - 1):
            spent[self._marked[place]] += self._events[place].elapsed_time(self._events[place + 1])
        return spent


def timed_on(device_type: str) -> Stopwatch:
    """The stopwatch for a device: the processor's clock, or CUDA's events."""
    if device_type != "cuda":
        return Stopwatch()
    import torch

    return Stopwatch(new_event=lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
