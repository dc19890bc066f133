"""The thread of backups, and that of copies off the box: each does one command at a time, beside the rest of the daemon."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from supervisor.adapters import threads
from supervisor.model.inputs import Input
from supervisor.ports import Inbox

C = TypeVar("C")


class Interrupted(BaseException):
    """The daemon is stopping, or a more urgent command has come. The work starts again later: it is no error."""


@dataclass(slots=True)
class Task:
    """Progress, readable from any thread, and the request to stop."""

    over: threading.Event = field(default_factory=threading.Event)
    program: str = ""
    done_bytes: int = 0
    total_bytes: int = 0

    def went_on(self, size_bytes: int) -> None:
        """Call after each piece of work. Counts its bytes, or raises `Interrupted`."""
        self.done_bytes += size_bytes
        if self.over.is_set():
            raise Interrupted


class CopyThread(Generic[C]):
    """Does the commands in turn, and posts the outcome of each as an input.

    A copy may take minutes, and a disk may hang: neither may delay the reading of logs or the collection of evidence.
    """

    def __init__(self, name: str, inbox: Inbox) -> None:
        self._inbox, self._pool, self._guard = inbox, threads.begun(1, name), threading.Lock()
        self._running: tuple[C, Task] | None = None
        self._stopped = False

    def perform(self, command: C) -> None:
        """Queue the command."""
        self._pool.submit(self._do, command)

    def interrupt(self) -> None:
        """End the running command, without an outcome."""
        with self._guard:
            if self._running is not None:
                self._running[1].over.set()

    def stop(self) -> None:
        """End the running command, and drop those that wait: the next daemon starts them again."""
        self._stopped = True
        self.interrupt()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _do(self, command: C) -> None:
        with self._guard:
            self._running = command, (task := Task())
        try:
            if not self._stopped:
                self._inbox.post(self._outcome(command, task))
        except Interrupted:
            pass
        finally:
            with self._guard:
                self._running = None

    def _outcome(self, command: C, task: Task) -> Input:
        """Perform a command. Every failure is an outcome too: without one, the daemon would wait for it forever."""
        raise NotImplementedError
