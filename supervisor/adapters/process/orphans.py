"""Finds the orphans of a killed shim: they become children of the daemon, which is the sub-reaper above all shims.

A grandchild in its own session and environment has no mark by which it could be found again. Its shim sees it, because the
shim is its sub-reaper (prctl(2), PR_SET_CHILD_SUBREAPER). When the shim itself is killed, the kernel hands the grandchild to
the next sub-reaper above. Without one that is pid 1, among thousands of others: the grandchild would keep running, and a
second trainer would start beside it.

An orphan of an attempt is a child of the daemon in a session other than the daemon's. The daemon's helpers stay in its
session, a shim creates its own session before it starts anything, and no process can enter an existing session. Shims are
children in other sessions too. But they carry a token: a process with a token is found by it, and is left alone here.

Example: shim 90 of Pong is killed. Its worker dies with it (PR_SET_PDEATHSIG). A `setsid env -i sleep` of that worker is now
a child of the daemon, began after the shim, and has no token. The daemon ends it, and Pong starts again.

This works while the daemon lives, and over its re-execution. The orphans of a shim that is killed while no daemon runs go to
pid 1. They can be found only by their session, their mark and their cgroup.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from supervisor import lack
from supervisor.adapters import leftovers, procfs
from workers import contract

_PR_SET_CHILD_SUBREAPER: Final = 36
# The marks of attempts, and of the daemon's own children, whose leftover processes belong to no attempt.
_MARKS: Final = frozenset({contract.ENV_TOKEN, leftovers.ENV})


class Orphans:
    """The orphans that became children of this process. Before `adopt` there are none."""

    def __init__(self) -> None:
        self._home = False
        self._dead: set[tuple[int, int]] = set()  # (pid, start ticks) of the zombies at the last look

    def adopt(self) -> bool:
        """Become the sub-reaper; this survives execve(2), and no child inherits it. False: the kernel refused."""
        self._home = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        return self._home

    def since(self, start_ticks: int) -> list[int]:
        """The pids of living orphans without a mark that began at or after this tick."""
        found = [stat for stat in self._children() if stat.alive and stat.start_ticks >= start_ticks]
        return [stat.pid for stat in found if not _MARKS & procfs.environment(stat.pid).keys()]

    def reap(self, awaited: Callable[[], Collection[int]]) -> None:
        """Reap the orphans that have ended. `awaited` returns the children for which another thread waits.

        Such a thread waits at once. So a child that is a zombie at two checks in a row, and is not awaited, is an orphan.
        Reaping it at the first check could take a shim's exit status away from `Popen.wait`.
        """
        dead = {(stat.pid, stat.start_ticks) for stat in self._children() if not stat.alive}
        for pid, _ in dead & self._dead - {(pid, ticks) for pid, ticks in dead if pid in awaited()}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._dead = dead

    def _children(self) -> list[procfs.Stat]:
        if not self._home:
            return []
        session, stats = os.getsid(0), map(procfs.read_stat, _pids_of_children())
        return [stat for stat in stats if stat is not None and stat.parent == os.getpid() and stat.session != session]


NONE: Final = Orphans()


def _pids_of_children() -> list[int]:
    """The children of every thread of this process; if the kernel does not list them, all processes."""
    try:
        tasks = os.listdir("/proc/self/task")  # noqa: PTH208  a path object each is waste
        lists = [Path(f"/proc/self/task/{task}/children").read_text(encoding="ascii") for task in tasks]
    except OSError as error:  # built without CONFIG_PROC_CHILDREN, or a thread has just ended
        lack.check(error)
        return procfs.pids()
    return [int(word) for text in lists for word in text.split()]
