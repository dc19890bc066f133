"""Ends the children of a daemon that was killed: they keep running, and nothing enforces their time limit any more.

A leftover restic would read a directory that the next daemon empties, and hold a lock. A user's hung command would stay for
ever, one more after each kill. So each child that the daemon waits for carries a mark in its environment, which names the
daemon. The next daemon first ends every marked child whose daemon is gone. Workers have no mark: they outlive the daemon.

The mark consists of the PID namespace, the parent's pid and start ticks, and for a user's command its session. In that
case only the command itself is ended: a process that it put into the background, in its own session, was meant to stay.

PR_SET_PDEATHSIG alone is not enough: the child has to set it after the fork, and loses it when it executes a file that has
capabilities (restic often has, to read everything).

Example: daemon 812 (start tick 5000) is killed. A restic with `EXTRALIFE_CHILD_OF=4026531836:812:5000:tree` still runs.
There is no process 812 with start tick 5000, so the next daemon ends this restic. It leaves alone the restic of another
daemon, and that of `extralifectl offsite check`.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from supervisor.adapters import procfs

ENV: Final = "EXTRALIFE_CHILD_OF"
_WHOLE_TREE: Final = "tree"  # no number: a session whose leader is outside of this container is 0


def mark(*, of_user: bool = False) -> dict[str, str]:
    """The variable for a child's environment. `of_user`: a user's command; it must lead a process group in our session."""
    stat = procfs.read_stat(os.getpid())
    if stat is None:
        return {}
    session = stat.session if of_user else _WHOLE_TREE
    return {ENV: f"{procfs.pid_namespace()}:{stat.pid}:{stat.start_ticks}:{session}"}


def end() -> list[str]:
    """End the children whose parents are gone; return their names. A mark that this process itself inherited is ignored."""
    os.environ.pop(ENV, None)
    ended = []
    for pid in procfs.pids():
        value = procfs.environment(pid).get(ENV)
        if value is None or pid == os.getpid():
            continue
        stat = procfs.read_stat(pid)
        if stat is not None and _is_left_over(stat, value) and procfs.send_verified(pid, stat.start_ticks, signal.SIGKILL):
            ended.append(stat.name)
    return ended


def _is_left_over(stat: procfs.Stat, value: str) -> bool:
    try:
        *numbers, session = value.split(":")
        namespace, parent, start_ticks = map(int, numbers)
        own_session = None if session == _WHOLE_TREE else int(session)
    except ValueError:
        return False
    if namespace != procfs.pid_namespace() or procfs.is_alive(parent, start_ticks):
        return False
    return own_session is None or (stat.session == own_session and stat.group == stat.pid)
