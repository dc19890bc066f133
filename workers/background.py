"""A thread for one task; if no thread can be started, the caller runs the task itself.

A box that has no processes left (EAGAIN) recovers within seconds or minutes. If training ended with "can't start new
thread" at its next save, it would lose more than the time of a save on the training thread. A worker that has not begun
to train loses nothing: it ends with one sentence, and the next attempt succeeds or fails in the same way.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# CPython's message, and the kernel's (EAGAIN), which envpool's C++ passes on.
_REFUSALS: Final = ("can't start new thread", "resource temporarily unavailable")
NO_THREADS: Final = (
    "no more threads can be started here: too many processes run for this user, service or box (`ulimit -u`, TasksMax=, "
    "kernel.threads-max), or memory is short"
)


def is_refused(error: RuntimeError) -> bool:
    """Whether this error means that the kernel started no thread; pthread_create(3), EAGAIN."""
    return any(sign in str(error).lower() for sign in _REFUSALS)


def run_in_thread(name: str, task: Callable[..., None], *args: object) -> threading.Thread | None:
    """The thread that runs the task; None: the caller's thread has already run it."""
    thread = threading.Thread(target=task, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        task(*args)
        return None
    return thread
