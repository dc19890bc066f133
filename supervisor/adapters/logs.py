"""Rotation of worker logs that cannot be reopened: the worker writes with O_APPEND and knows nothing of us.

Copy, then truncate: the writer's next line lands at the new end. What is written between the copy's last read and the
truncation is lost (microseconds; at most a few lines of a very chatty worker). A pipe through the daemon would lose
nothing and cost the worker its life, or its progress, whenever the daemon is away.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def rotate(path: Path, max_bytes: int, backups: int) -> bool:
    """Copy `path` to `path.1` (and .1 to .2 ...) and empty it, if it is larger than `max_bytes`. True if it was.

    Raises OSError; on a full disk the log is emptied without a copy, because the log is what fills it.
    """
    try:
        if path.stat().st_size <= max_bytes:
            return False
    except FileNotFoundError:
        return False
    for number in range(backups - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    if backups:
        _copy(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def _copy(path: Path, to: Path) -> None:
    aside = to.with_name(f"{to.name}.tmp")
    try:
        with path.open("rb") as source, aside.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except OSError:
        aside.unlink(missing_ok=True)
        return
    aside.replace(to)
