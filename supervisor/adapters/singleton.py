"""One daemon per state directory: a lock that the kernel releases with the process, however it ends.

Taken before the journal is opened. A second daemon on the same state directory would start every program again beside
the first; a pid file would refuse a start after each power cut, or accept a second one once the pid was reused.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Taken(Exception):
    """Another daemon owns the state directory; the message names it."""


class Singleton:
    """The held lock. Closes on exec: a daemon that re-executes itself takes it again, workers never inherit it."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd, self.path = fd, path

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def hold(path: str) -> Singleton:
    """Take the lock file, creating it, and leave our pid in it. Raises Taken or OSError, each with what to do."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        parent = Path(path).parent
        raise OSError(
            error.errno, f"cannot use {parent} as state directory: {error.strerror}; create it or choose another state_dir"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        who = f"pid {holder}" if holder.isdigit() else "pid unknown"
        raise Taken(
            f"another supervisord ({who}) runs on {Path(path).parent}: stop that one first, or choose another state_dir"
        ) from None
    except OSError:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return Singleton(fd, path)
