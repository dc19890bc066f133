"""Threads on a box where no more can be begun (EAGAIN): the work of the daemon goes on.

An ordinary pool begins a thread at its first task. While none can be begun that raises: APScheduler logs a traceback and
skips the job, and a task that was queued already waits until another one comes. A thread for each task raises too, and
what it should have done (to end a hung worker, say) is not done until somebody asks again.
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
    """A pool of that many waiting threads."""
    pool, all_there = ThreadPoolExecutor(threads, name), threading.Barrier(threads)
    for _ in range(threads):
        pool.submit(all_there.wait)
    return pool


class Tasks:
    """Runs each task in a thread of its own, or in one that waits since the start if no thread can be begun.

    Tasks in the waiting thread run one after the other: slower, but none is lost.
    """

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def begin(self, name: str, target: Callable[..., None], *args: object) -> None:
        """Returns at once; never raises."""
        try:
            threading.Thread(target=target, args=args, name=name, daemon=True).start()
        except RuntimeError:  # no thread can be begun
            self._waiting.put(partial(target, *args))

    def close(self) -> None:
        """End the waiting thread, after what it was given."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (task := self._waiting.get()) is not None:
            try:
                task()
            except Exception:  # as a thread of its own would: the next task is not concerned
                log.exception("task_failed")
