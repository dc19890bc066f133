"""Durable files: after a power cut they are whole and under their name, or the file before is.

A write lasts only when the file's data is synced. A name lasts only when its directory is synced. So a file is written under
another name, synced, renamed, and then its directory is synced. `tests/recorded.py` checks that order in the system calls.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

REFLINK = "reflink"
_FICLONE = 0x40049409  # ioctl_ficlone(2)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def sync(path: str | os.PathLike[str]) -> None:
    """A file's data, or the names in a directory."""
    _sync(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def sync_directory(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """The names in it. Raises NotADirectoryError for anything else."""
    _sync(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd))


def _sync(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Every byte; one call of write(2) may take fewer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def create(path: str | os.PathLike[str], data: bytes, mode: int = 0o600) -> None:
    """A new file with this content, synced; its directory is not. Raises FileExistsError, also for a link."""
    fd = os.open(path, _NEW, mode)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes, *, aside: Path, before_rename: Callable[[], object] = lambda: None) -> None:
    """The file's new content, or all of the old one. `aside` is in the same directory; a leftover of that name is removed.

    `before_rename` runs once the new content is on the disk.
    """
    aside.unlink(missing_ok=True)
    try:
        create(aside, data)
        before_rename()
        aside.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    sync_directory(path.parent)


def clone(source: int, target: Path) -> str:
    """The same blocks under another file, until one of them is written to: btrfs, XFS, bcachefs."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        fcntl.ioctl(fd, _FICLONE, source)
    except OSError:
        target.unlink()
        return ""
    finally:
        os.close(fd)
    return REFLINK
