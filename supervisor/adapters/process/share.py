"""Sets the share of the processors that a child of the daemon gets beside the programs.

The kernel shares the processors among cgroups first, or else among sessions (`sched_autogroup_enabled`, the default of
most distributions), and only then among the processes of one. Each program has its own, so a child of the daemon gets as
much of a core as a whole program, whatever its `nice` is. Only the weight of its cgroup counts, or the nice value of
its session. A weight of 10 beside 100, or a nice value of 10 beside 0, is a tenth of a program's share.

The child must lead its own session; otherwise the share of the daemon is lowered too.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

from supervisor.adapters.process.cgroups import NONE, Cgroups

_NICE: Final = 10
_TRIES: Final = 5
_TRY_AGAIN_S: Final = 0.1  # the kernel accepts one change per 0.1 s from all non-root processes: else EAGAIN


class Share:
    """Lowers one child at a time. Never raises: a share that cannot be changed stays as it is."""

    def __init__(self, groups: Cgroups = NONE) -> None:
        self._groups = groups

    def lower(self, pid: int) -> None:
        """Lower the session that `pid` leads to a tenth of a program's share."""
        self._groups.put_aside(pid)
        _autogroup(pid, _NICE)

    def restore(self, pid: int) -> None:
        """Give the session the same share as a program."""
        self._groups.restore_aside()
        _autogroup(pid, 0)


def _autogroup(pid: int, nice: int) -> None:
    """Set the session's nice value; does nothing if the kernel has no autogroups, or the child has ended."""
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="ascii")
            return
        time.sleep(_TRY_AGAIN_S)
