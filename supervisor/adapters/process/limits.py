"""Limits on open files: the daemon uses as many as the hard limit allows, a worker as many as the daemon was given.

A program takes up to six descriptors of the daemon: its shim's pidfd, its notify socket, its control record, its state in
/proc, its run directory and its checkpoints. So the usual soft limit of 1,024 is enough for some 150 programs. The limit is
soft because programs that use select(2) break above it. So a worker starts with the limit that the daemon was started with.

Some descriptors stay free for the daemon itself. Without them it could not open the journal, answer a client or wait for
the end of a shim. Example: of 1,024 files 128 are kept free, so 149 programs can run; of 100 files half, so 8.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

GIVEN_FILES: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # the soft limit that this process was started with
FILES_PER_PROGRAM: Final = 6
_KEPT_FREE: Final = 128
_MOST_FILES: Final = 65_536  # where the hard limit is in the millions: no daemon needs more


def raise_files() -> None:
    """Raise the soft limit as far as allowed. If the kernel refuses, it stays as it was."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    _set_files(_MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES), least=GIVEN_FILES)


def no_room(programs: int) -> str | None:
    """Why another program cannot run beside this many; None when it can."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = max(1, (files - min(_KEPT_FREE, files // 2)) // FILES_PER_PROGRAM)
    if programs < (_MOST_FILES if files == resource.RLIM_INFINITY else most):
        return None
    return f"{programs} programs need all of the {files} open files that are allowed: raise LimitNOFILE= or `ulimit -n`"


def restore_files() -> None:
    """Restore the original limit, for the next image of this program, which raises it again."""
    _set_files(GIVEN_FILES)


def _set_files(soft: int, least: int = 0) -> None:
    if least == resource.RLIM_INFINITY or soft < least:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
