"""Open requests from the control socket's threads. The deciding thread answers them."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future

Results = tuple[tuple[str, int, str], ...]


class Replies:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, Future[Results]] = {}
        self._guard = threading.Lock()

    def open(self) -> tuple[int, Future[Results]]:
        """Open a request. Its number goes into the input; the caller waits for its future."""
        with self._guard:
            number = next(self._numbers)
            waiting = self._open[number] = Future()
            return number, waiting

    def answer(self, number: int, results: Results) -> None:
        """Called by the deciding thread. Ignores a request whose caller no longer waits."""
        with self._guard:
            waiting = self._open.pop(number, None)
        if waiting is not None:
            waiting.set_result(results)

    def forget(self, number: int) -> None:
        """The caller no longer waits: drop the request."""
        with self._guard:
            self._open.pop(number, None)

    def abandon(self) -> None:
        """The daemon ends: release all waiting callers, with no results."""
        with self._guard:
            waiting, self._open = list(self._open.values()), {}
        for future in waiting:
            future.set_result(())
