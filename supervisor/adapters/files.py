"""Opens files in directories that a program owns: opening never hangs and never follows a link.

A worker runs as the daemon's own user, so it can put anything in its run directory: a log that links to another user's file,
an exit record that is a FIFO, a report file of gigabytes. The daemon opens regular files only. It follows no link in the
last part of a path, never waits for the other end of a FIFO, and limits how many bytes it reads.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """Open an existing regular file and return its descriptor. Raises OSError, also for a link, a FIFO or a device."""
    # Without O_NONBLOCK, opening a FIFO waits for its other end. The flag has no effect on a regular file.
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return fd


def read_bounded(path: str, limit_bytes: int, from_byte: int = 0) -> bytes:
    """The last `limit_bytes` of the file's content after `from_byte`; empty when the file can't be read.

    A file that is now shorter than `from_byte` was truncated by a rotation: then all of it is new.
    """
    try:
        fd = open_regular(path)
    except (OSError, ValueError):
        return b""
    try:
        size = os.fstat(fd).st_size
        begin = from_byte if from_byte <= size else 0
        return os.pread(fd, limit_bytes, max(begin, size - limit_bytes))
    except OSError:
        return b""
    finally:
        os.close(fd)


def create(path: str | os.PathLike[str], mode: int = 0o600) -> int:
    """Create an empty file at `path` and return its descriptor. An existing file or link there is removed, not followed."""
    Path(path).unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
