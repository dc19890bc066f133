"""Files in directories that a program owns: whatever it has put in their place, opening them neither hangs nor strays.

A worker runs as the daemon's own user and can do with its run directory what it likes: a log that is a link to a file of
somebody else's, an exit record that is a FIFO, a report file of gigabytes. The daemon opens regular files only, follows
no link in the last part of a path, waits for nobody, and reads no more than it was going to.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """A descriptor of a regular file that is there already. Raises OSError: also for a link, a FIFO, a device."""
    # O_NONBLOCK: opening a FIFO would wait for its other end. It means nothing to a regular file.
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return fd


def read_bounded(path: str, limit_bytes: int, from_byte: int = 0) -> bytes:
    """The last `limit_bytes` of the file's part after `from_byte`; empty when it can't be read.

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
    """A descriptor of a new, empty file at `path`. What was there before, a link too, is removed and not followed."""
    Path(path).unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
