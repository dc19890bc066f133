"""The queue of inputs for the deciding thread.

It is bounded and never blocks a poster, and a flood of readings cannot push out an exit. Readings coalesce: a newer sample
replaces an older one that was not taken yet, but keeps its reports. All other inputs keep their order.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import Final, TypeVar

from supervisor.model.inputs import Input, Sampled

T = TypeVar("T", bound=Input)

_MOST: Final = 10_000  # a hundred times what 200 programs can post in a second; more means a fault


class Inbox:
    def __init__(self) -> None:
        self._items: deque[Input] = deque()
        self._sampled: Sampled | None = None
        self._changed = threading.Condition()
        self.dropped = 0

    def post(self, item: Input) -> None:
        """Add an input. Never waits for the taker. When the queue is full, the new input is dropped and counted."""
        with self._changed:
            if isinstance(item, Sampled):
                old = self._sampled
                self._sampled = item if old is None else replace(item, reports=(*old.reports, *item.reports)[-_MOST:])
            elif len(self._items) >= _MOST:
                self.dropped += 1
            else:
                self._items.append(item)
            self._changed.notify()

    def put_back(self, item: Input) -> None:
        """Return an input that could not be handled yet, to the front of the queue. A newer sample in the queue stays."""
        with self._changed:
            if not isinstance(item, Sampled):
                self._items.appendleft(item)
            elif self._sampled is None:
                self._sampled = item
            else:
                self._sampled = replace(self._sampled, reports=(*item.reports, *self._sampled.reports)[-_MOST:])

    def newest_look(self) -> Sampled | None:
        """The waiting readings, without taking them."""
        with self._changed:
            return self._sampled

    def withdraw(self, kind: type[T]) -> list[T]:
        """Take out all inputs of one kind, oldest first, regardless of their position."""
        with self._changed:
            found = [item for item in self._items if isinstance(item, kind)]
            self._items = deque(item for item in self._items if not isinstance(item, kind))
            return found

    def take(self, timeout_s: float | None) -> Input | None:
        """The oldest input, or None after `timeout_s`. Exits and requests come before readings."""
        with self._changed:
            if not self._items and self._sampled is None:
                self._changed.wait(timeout_s)
            if self._items:
                return self._items.popleft()  # post() takes the base class for its callers
            sampled, self._sampled = self._sampled, None
            return sampled
