"""Who waits for an answer: requests from the control socket's threads, answered by the deciding thread."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future

Results = tuple[tuple[str, int, str], ...]


class Replies:
    """Open requests by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, Future[Results]] = {}
        self._guard = threading.Lock()

    def open(self) -> tuple[int, Future[Results]]:
        """A new request: its number goes into the input, its future is waited on."""
        with self._guard:
            number = next(self._numbers)
            waiting = self._open[number] = Future()
            return number, waiting

    def answer(self, number: int, results: Results) -> None:
        """By the deciding thread; a request that nobody waits for any more is forgotten."""
        with self._guard:
            waiting = self._open.pop(number, None)
        if waiting is not None:
            waiting.set_result(results)

    def forget(self, number: int) -> None:
        """Nobody waits any more."""
        with self._guard:
            self._open.pop(number, None)

    def abandon(self) -> None:
        """The daemon ends: whoever still waits is let go, with no results."""
        with self._guard:
            waiting, self._open = list(self._open.values()), {}
        for future in waiting:
            future.set_result(())
