"""What code under test leaves in this process: open files, and threads by their names."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

_SETTLED_S = 5.0


@contextlib.contextmanager
def nothing_stays_open() -> Iterator[None]:
    """No file that is opened within stays open. What threads of earlier tests still close or open for a moment is no fault."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    deadline_s = time.monotonic() + _SETTLED_S
    while (after := len(os.listdir("/proc/self/fd"))) > before:
        assert time.monotonic() < deadline_s, f"{after - before} more files are open than before"
        time.sleep(0.01)


def thread_begun_by(begin: Callable[[], object], name: str) -> threading.Thread:
    """The one thread of this name that begins meanwhile. Earlier tests may have left others that are about to end."""
    others = set(threading.enumerate())
    begin()
    (found,) = (each for each in threading.enumerate() if each.name == name and each not in others)
    return found
