"""How many files may be open: as many as the hard limit allows in the daemon, as many as it was given in its workers.

A program takes four descriptors of the daemon: its shim's pidfd, its notify socket, its control record and its state in
/proc. So the usual soft limit of 1,024 ends at some 250 programs. It is soft because programs that use select(2) break
above it: a worker starts with the one that the daemon was started with.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

GIVEN_FILES: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # the soft limit that this process was started with
_MOST_FILES: Final = 65_536  # where the hard limit is in the millions: no daemon needs more


def raise_files() -> None:
    """As many as allowed. A kernel that refuses leaves it as it was."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    _set_files(_MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES), least=GIVEN_FILES)


def restore_files() -> None:
    """Back to what was given: for the next image of this program, which raises it again."""
    _set_files(GIVEN_FILES)


def _set_files(soft: int, least: int = 0) -> None:
    if least == resource.RLIM_INFINITY or soft < least:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
