"""A thread for one task; where no thread can be begun, the caller does the task itself.

A box that is out of processes (EAGAIN) is out of them for seconds or minutes. Training that ends with "can't start new
thread" at its next save would lose more than the moment that the save takes on the training thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def begun_or_done(name: str, task: Callable[..., None], *args: object) -> threading.Thread | None:
    """The thread that does it; None: it is done already."""
    thread = threading.Thread(target=task, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        task(*args)
        return None
    return thread
