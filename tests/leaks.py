"""What code under test leaves open in this process. Threads of earlier tests may open and close files at any moment.

Garbage in cycles is collected only if too many files are open: among thousands of tests a collection takes up to a second of
CPU, and two hundred tests count their files.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tools import PATIENCE

_SETTLED_S = 5.0 * PATIENCE


class OpenFiles(int):
    """How many files were open. `now <= before` counts again until it holds, for five seconds: then it is a leak."""

    def __le__(self, most: int) -> bool:
        ends_s = time.monotonic() + _SETTLED_S
        while _count() > int(most):
            if time.monotonic() > ends_s:
                return False
            time.sleep(0.01)
            gc.collect()
        return True


def _count() -> int:
    return len(os.listdir("/proc/self/fd"))


def open_files() -> OpenFiles:
    return OpenFiles(_count())


@contextlib.contextmanager
def nothing_stays_open() -> Iterator[None]:
    """No file that is opened within stays open."""
    before = open_files()
    yield
    assert open_files() <= before, "files stay open"


def open_below(directory: Path | str) -> list[str]:
    """The open files below a directory, by their paths in it."""
    if _links_below(directory):
        gc.collect()
    return _links_below(directory)


def _links_below(directory: Path | str) -> list[str]:
    links = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this very loop
            links.append(str(fd.readlink()))
    return sorted(link.removeprefix(f"{directory}/") for link in links if link.startswith(f"{directory}/"))
