"""A thread for one task; where no thread can be begun, the caller does the task itself.

A box that is out of processes (EAGAIN) is out of them for seconds or minutes. Training that ends with "can't start new
thread" at its next save would lose more than the moment that the save takes on the training thread. A worker that has
not begun to train loses nothing: it ends with one sentence, and the next attempt finds more room or says so again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# CPython's own words, and the kernel's (EAGAIN), as C++ passes them on from envpool.
_REFUSALS: Final = ("can't start new thread", "resource temporarily unavailable")
NO_THREADS: Final = (
    "no more threads can be started here: too many processes run for this user, service or box (`ulimit -u`, TasksMax=, "
    "kernel.threads-max), or memory is short"
)


def is_refused(error: RuntimeError) -> bool:
    """Whether this says that the kernel began no thread; pthread_create(3), EAGAIN."""
    return any(sign in str(error).lower() for sign in _REFUSALS)


def begun_or_done(name: str, task: Callable[..., None], *args: object) -> threading.Thread | None:
    """The thread that does it; None: it is done already."""
    thread = threading.Thread(target=task, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        task(*args)
        return None
    return thread
