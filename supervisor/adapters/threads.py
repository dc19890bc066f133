"""Pools whose threads are all begun at once: on a box where no more can be begun, their work goes on.

An ordinary pool begins a thread at its first task. While nothing can be forked (EAGAIN) that raises: APScheduler logs a
traceback and skips the job, and a task that was queued already waits until another one comes.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor


def begun(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool of that many waiting threads."""
    pool, all_there = ThreadPoolExecutor(threads, name), threading.Barrier(threads)
    for _ in range(threads):
        pool.submit(all_there.wait)
    return pool
