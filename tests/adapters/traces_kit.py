"""The threads that code under test begins in this process, by their names."""

from __future__ import annotations

import threading
from collections.abc import Callable


def thread_begun_by(begin: Callable[[], object], name: str) -> threading.Thread:
    """The one thread of this name that begins meanwhile. Earlier tests may have left others that are about to end."""
    others = set(threading.enumerate())
    begin()
    (found,) = (each for each in threading.enumerate() if each.name == name and each not in others)
    return found
