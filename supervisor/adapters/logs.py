"""Rotation of worker logs that cannot be reopened: the worker writes with O_APPEND and knows nothing of us.

Copy, then truncate: the writer's next line lands at the new end. What is written between the copy's last read and the
truncation is lost (microseconds; at most a few lines of a very chatty worker). A pipe through the daemon would lose
nothing and cost the worker its life, or its progress, whenever the daemon is away.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def rotate(path: Path, max_bytes: int, backups: int) -> bool:
    """Copy `path` to `path.1` (.1 to .2 ...) and empty it, if it is larger than `max_bytes`. True if it was.

    On a full disk the log is emptied without a copy, because the log is what fills it; the older copies stay. Any other
    trouble is raised as OSError, with the log and its copies as they were.
    """
    try:
        if path.stat().st_size <= max_bytes:
            return False
    except FileNotFoundError:
        return False
    if backups > 0:
        aside = path.with_name(f"{path.name}.tmp")
        try:
            _copy(path, aside)
        except OSError as error:
            aside.unlink(missing_ok=True)
            if error.errno not in _FULL:
                raise
        else:
            _shift(path, backups)
            aside.replace(_copy_of(path, 1))
    os.truncate(path, 0)
    return True


def _copy(path: Path, to: Path) -> None:
    with path.open("rb") as source, to.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _shift(path: Path, backups: int) -> None:
    """Make room for a new `.1`; the oldest is overwritten."""
    for number in range(backups - 1, 0, -1):
        older = _copy_of(path, number)
        if older.exists():
            older.replace(_copy_of(path, number + 1))


def _copy_of(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
