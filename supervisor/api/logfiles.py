"""Log files as the API serves them: a tail, or the next bytes after a position that also names the file.

A position is `FILE_ID:OFFSET`. If the path now has another file (rotated), or the file is shorter than the position
(truncated), reading starts again at its beginning, and a note says so. A bare offset would silently read the middle of a
new file. The programs own their logs and may replace them, so only a regular file that is not a link is opened.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from supervisor.files import data_from, held, open_regular
from supervisor.records import Record

TAIL_BYTES: Final = 1600  # as Supervisor's
MOST_BYTES: Final = 1 << 20  # in one answer


class Chunk(Record):
    """Bytes of a log. `note` is why they do not continue the bytes read before: "", "rotated" or "truncated"."""

    data: bytes
    file_id: str
    next_offset: int
    note: str = ""


def read_tail(path: str, size_bytes: int) -> Chunk:
    """The last bytes of a log. Raises OSError when it cannot be read."""
    with _opened(path) as (fd, file_id, end):
        start = data_from(fd, max(0, end - min(size_bytes, MOST_BYTES)))
        data = os.pread(fd, end - start, start)
    return Chunk(data, file_id, start + len(data))


def read_part(path: str, part: Callable[[int], tuple[int, int]]) -> tuple[bytes, int]:
    """(bytes, size of the log). `part` computes from that size where to begin and how much to read. Raises OSError."""
    with _opened(path) as (fd, _, end):
        begin, size_bytes = part(end)
        # Nothing is read beyond the end, however large the offset is.
        return os.pread(fd, min(size_bytes, MOST_BYTES), data_from(fd, min(begin, end))), end


def read_from(path: str, file_id: str, offset: int, limit_bytes: int) -> Chunk:
    """The bytes after a position. An empty `file_id` matches any file. Raises OSError when it cannot be read.

    If the file has just been rotated away, its rest is read first: its last lines are the ones that matter.
    """
    limit_bytes = min(limit_bytes, MOST_BYTES)
    with _opened(path) as (fd, found, end):
        rotated = file_id not in {"", found}
        if rotated:
            with contextlib.suppress(OSError), _opened(f"{path}.1") as (old, name, _):
                if name == file_id and (rest := os.pread(old, limit_bytes, offset)):
                    return Chunk(rest, name, offset + len(rest))
        note = "rotated" if rotated else "truncated" if offset > end else ""
        start = data_from(fd, 0 if note else offset)
        data = os.pread(fd, limit_bytes, start)
    return Chunk(data, found, start + len(data), note)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[int, str, int]]:
    """(descriptor, name of the file, its size)."""
    from supervisor.as_user import log_at  # extralifectl needs it only for `tail`

    with log_at(path):
        fd = open_regular(path)
    with held(fd):
        found = os.fstat(fd)
        yield fd, f"{found.st_dev:x}-{found.st_ino:x}", found.st_size
