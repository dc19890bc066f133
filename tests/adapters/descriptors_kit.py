"""Which descriptors this process has open. What earlier tests have left may close at any time: only more is a leak."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def open_below(directory: Path | str) -> list[str]:
    """The open files below a directory, by their paths in it."""
    gc.collect()
    links = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this very loop
            links.append(str(fd.readlink()))
    return sorted(link.removeprefix(f"{directory}/") for link in links if link.startswith(f"{directory}/"))
