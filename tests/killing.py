"""SIGKILL between two states of the disk: what a process that dies at any moment leaves behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

CALLS = ("rename", "mkdir", "fsync", "link", "unlink", "rmdir")


def killed(do: Callable[[], object], at: int) -> int:
    """Do it in a child that is killed before its call number `at` that changes the disk: its code, -9, or 0 if it got through."""
    pid = os.fork()
    if pid == 0:
        _die_before(at)
        try:
            do()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _die_before(at: int) -> None:
    count = [at]

    def counted(real):
        def call(*args, **more):
            count[0] -= 1
            if count[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)

        return call

    for each in CALLS:
        setattr(os, each, counted(getattr(os, each)))
