"""What code under test leaves open in this process. Threads of earlier tests may open and close files at any moment."""

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
        return True


def _count() -> int:
    gc.collect()
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
    gc.collect()
    links = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this very loop
            links.append(str(fd.readlink()))
    return sorted(link.removeprefix(f"{directory}/") for link in links if link.startswith(f"{directory}/"))
