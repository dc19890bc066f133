"""Keeps the daemon's work going on a box where no new thread can be started (EAGAIN).

An ordinary pool starts a thread at its first task. While no thread can be started, that raises: APScheduler logs a traceback
and skips the job, and a task that was already queued waits until the next one comes. A thread per task raises too. Then its
work (ending a hung worker, for example) is not done until somebody requests it again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

log = structlog.get_logger()


def begun(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads all run already and wait for tasks."""
    pool, all_there = ThreadPoolExecutor(threads, name), threading.Barrier(threads)
    for _ in range(threads):
        pool.submit(all_there.wait)
    return pool


class Tasks:
    """Runs each task in its own thread, or in one spare thread (running since the start) if no thread can be started.

    Tasks in the spare thread run one after the other: slower, but none is lost.
    """

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def begin(self, name: str, target: Callable[..., None], *args: object) -> None:
        """Run a task. Returns at once; never raises."""
        try:
            threading.Thread(target=target, args=args, name=name, daemon=True).start()
        except RuntimeError:  # no thread can be started
            self._waiting.put(partial(target, *args))

    def close(self) -> None:
        """End the spare thread after its queued tasks."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (task := self._waiting.get()) is not None:
            try:
                task()
            except Exception:  # as in its own thread: a failed task must not affect the next one
                log.exception("task_failed")
