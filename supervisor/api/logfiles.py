"""Log files as the API serves them: a tail, or the next bytes after a position that also names the file.

A position is `FILE_ID:OFFSET`. When the file at the path is another one (rotated), or shorter than the position
(truncated), reading starts again at its beginning and says so. A bare offset would silently read the middle of a new
file. The programs own their logs, so a log must be a regular file and no link: otherwise it is not opened at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from supervisor.adapters.files import open_regular
from supervisor.records import dataclass

TAIL_BYTES: Final = 1600  # as Supervisor's
MOST_BYTES: Final = 1 << 20  # in one answer


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a log. `note` says why they do not continue what was read before: "", "rotated" or "truncated"."""

    data: bytes
    file_id: str
    next_offset: int
    note: str = ""


def read_tail(path: str, size_bytes: int) -> Chunk:
    """The last bytes of a log. Raises OSError when it cannot be read."""
    fd, file_id, end = _open(path)
    try:
        start = max(0, end - min(size_bytes, MOST_BYTES))
        data = os.pread(fd, end - start, start)
    finally:
        os.close(fd)
    return Chunk(data, file_id, start + len(data))


def read_part(path: str, part: Callable[[int], tuple[int, int]]) -> tuple[bytes, int]:
    """(bytes, size of the log). `part` says by that size where to begin and how much to read. Raises OSError."""
    fd, _, end = _open(path)
    try:
        begin, size_bytes = part(end)
        begin = min(begin, end)  # beyond the end there is nothing, however far
        return os.pread(fd, min(size_bytes, MOST_BYTES), begin), end
    finally:
        os.close(fd)


def read_from(path: str, file_id: str, offset: int, limit_bytes: int) -> Chunk:
    """The bytes after a position. An empty `file_id` is any file. Raises OSError when it cannot be read.

    A file that was rotated away a moment ago is read to its end first: its last lines are why one looks.
    """
    fd, found, end = _open(path)
    try:
        if file_id not in {"", found}:
            rest = _rest(f"{path}.1", file_id, offset, limit_bytes)
            if rest is not None:
                return rest
        note = "rotated" if file_id not in {"", found} else "truncated" if offset > end else ""
        start = 0 if note else offset
        data = os.pread(fd, min(limit_bytes, MOST_BYTES), start)
    finally:
        os.close(fd)
    return Chunk(data, found, start + len(data), note)


def _rest(path: str, file_id: str, offset: int, limit_bytes: int) -> Chunk | None:
    try:
        fd, found, _ = _open(path)
    except OSError:
        return None
    try:
        data = os.pread(fd, min(limit_bytes, MOST_BYTES), offset) if found == file_id else b""
    finally:
        os.close(fd)
    return Chunk(data, found, offset + len(data)) if data else None


def _open(path: str) -> tuple[int, str, int]:
    fd = open_regular(path)
    found = os.fstat(fd)
    return fd, f"{found.st_dev:x}-{found.st_ino:x}", found.st_size
