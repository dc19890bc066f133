"""Children of a daemon that was killed: they run on, and nobody holds them to their time limit any more.

restic would read a directory that the next daemon empties, and hold a lock. A command of a user that hangs would stay for
ever, one more after each kill. So a child that the daemon awaits carries a mark in its environment that names the daemon,
and the next daemon ends those whose daemon is gone before it does anything else. Workers carry none: they are to outlive it.

The mark: namespace of process numbers, number and start ticks of the parent, and for commands of a user its session. Of
those only the command itself is ended: what it has put into the background, in a session of its own, was meant to stay.

PR_SET_PDEATHSIG alone would not do: it has to be set behind the fork, in the child, and is lost when the child executes a
file that has capabilities (restic often has, to read everything).

Example: daemon 812 (start tick 5000) is killed. A restic with `EXTRALIFE_CHILD_OF=4026531836:812:5000:0` lives. No process
812 with start tick 5000 does: it is ended. The restic of another daemon, or of `supervisorctl offsite check`, is left alone.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from supervisor.adapters import procfs

ENV: Final = "EXTRALIFE_CHILD_OF"
_WHOLE_TREE: Final = 0


def mark(*, of_user: bool = False) -> dict[str, str]:
    """For the environment of a child. `of_user`: a command of a user, which must lead a group in this process's session."""
    stat = procfs.read_stat(os.getpid())
    if stat is None:
        return {}
    session = stat.session if of_user else _WHOLE_TREE
    return {ENV: f"{_namespace()}:{stat.pid}:{stat.start_ticks}:{session}"}


def end() -> list[str]:
    """End the children of parents that are gone; their names. A mark that this process has inherited means nothing."""
    os.environ.pop(ENV, None)
    ended = []
    for pid in procfs.pids():
        said = _said(pid)
        if said is None or pid == os.getpid():
            continue
        stat = procfs.read_stat(pid)
        if stat is not None and _is_left_over(stat, said) and procfs.send_verified(pid, stat.start_ticks, signal.SIGKILL):
            ended.append(stat.name)
    return ended


def _is_left_over(stat: procfs.Stat, said: str) -> bool:
    try:
        namespace, parent, start_ticks, session = map(int, said.split(":"))
    except ValueError:
        return False
    if namespace != _namespace() or procfs.is_alive(parent, start_ticks):
        return False
    return session == _WHOLE_TREE or (stat.session == session and stat.group == stat.pid)


def _said(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to somebody else
        return None
    start = f"{ENV}=".encode()
    found = next((each for each in variables if each.startswith(start)), None)
    return None if found is None else found[len(start) :].decode("ascii", "replace")


def _namespace() -> int:
    """The inode of this process's namespace: a container's process 7 is not the host's."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
