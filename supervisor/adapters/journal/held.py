"""The journal's open files, and whether its paths still lead to them.

SQLite looks for its file by name only when it opens it. If somebody removes or replaces the file afterwards, a commit
still succeeds, into a file without a name, and is gone with the process. So the writing journal holds a descriptor of its
own on the database and on the WAL, and compares before and after each commit (`Held.check`, a few microseconds).

| removed or replaced | without this check |
|---|---|
| `journal.sqlite` | commits go into the unlinked file |
| `-wal` | the same; whoever opens the journal makes a new, empty WAL, and reads its old state or damage |
| `-shm` | two processes make two of them, and know nothing of each other's locks |
| one of the first two cut short | committed facts are gone, and SQLite's page cache hides it |

Two traps. Closing any descriptor of a file drops all POSIX locks of the process on it, SQLite's too: descriptors of the
database and of `-shm` are closed only after the connection. And SQLite deletes `-wal` by name when its last connection
closes, but not if the database has another inode by then (`databaseIsUnmoved`): so the old connection may be closed after
the swap.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
from pathlib import Path
from typing import Final

from supervisor.adapters.foundations import directory, of_fd, of_path
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.salvage import carve_bytes
from supervisor.adapters.journal.schema import COLUMNS, Row, beside, crc_of
from supervisor.ports import JournalMoved

_WAL_HEADER_BYTES: Final = 32
_FRAME_BYTES: Final = 24 + 4096
_EVERY: Final = f"SELECT {COLUMNS} FROM fact WHERE seq >= ? AND seq <= ? ORDER BY seq"  # noqa: S608  constants only
_HOLES: Final = """
    SELECT before + 1, seq - 1 FROM (SELECT seq, lag(seq) OVER (ORDER BY seq) AS before FROM fact WHERE seq >= ?)
    WHERE seq > before + 1
"""


class OpenJournalFiles:
    """The files of one open journal. Made before the connection, completed after it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = Path(os.path.realpath(path))  # SQLite, too, puts a WAL beside the file and not beside a link to it
        self._directory_fd = directory(self._path.parent)
        self._wal_fd = -1
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            os.close(self._directory_fd)
            raise
        self.identity = of_fd(self._fd)
        self._shm_fd = -1
        self._size_bytes = 0
        self._first = 0
        self._holes: list[tuple[int, int]] = []  # ranges of numbers that no fact has: lost with an earlier damage

    def complete(self, db: sqlite3.Connection) -> None:
        """The connection is open, and with it the WAL. Raises OSError or sqlite3.Error."""
        self._wal_fd = os.open(beside(self._path, "-wal"), os.O_RDONLY | os.O_CLOEXEC)
        self._shm_fd = os.open(beside(self._path, "-shm"), os.O_RDONLY | os.O_CLOEXEC)
        self._first = max(schema.floor(db), 1)
        self._holes = [(int(first), int(last)) for first, last in db.execute(_HOLES, (self._first,))]
        self.check()

    def check(self) -> None:
        """Raises JournalMoved when the paths do not lead to these files any more, another OSError when that is unknown."""
        if self._fd < 0:
            raise OSError(errno.EIO, "the journal could not be opened again", str(self._path))
        for suffix, fd in self._fds():
            path = beside(self._path, suffix)
            now, ours = of_path(path), of_fd(fd)
            if now is None:
                raise JournalMoved(str(path), f"{path.name} was removed")
            if not now.same(ours):
                raise JournalMoved(str(path), f"{path.name} was replaced by another {now.kind}")
        size_bytes, needed_bytes = os.fstat(self._fd).st_size, self._size_bytes
        if size_bytes < needed_bytes:
            cut = f"{self._path.name} was cut from {needed_bytes:,} to {size_bytes:,} bytes"
            raise JournalMoved(str(self._path), cut)
        self._size_bytes = size_bytes
        size_bytes, needed_bytes = os.fstat(self._wal_fd).st_size, _wal_bytes(os.pread(self._shm_fd, 20, 0))
        if size_bytes < needed_bytes:
            wal = beside(self._path, "-wal")
            raise JournalMoved(str(wal), f"{wal.name} was cut to {size_bytes:,} of {needed_bytes:,} bytes")

    def note_hole(self, first: int, last: int) -> None:
        """These numbers are given to no fact: theirs were lost before this journal was opened."""
        if first <= last:
            self._holes.append((first, last))

    def _fds(self) -> tuple[tuple[str, int], ...]:
        return ("", self._fd), ("-wal", self._wal_fd), ("-shm", self._shm_fd)

    def check_directory(self) -> None:
        """Raises OSError when the directory at the path is not the one that the journal was opened in."""
        now = of_path(self._path.parent)
        if now is None or not now.same(of_fd(self._directory_fd)):
            state = "was removed" if now is None else "is not the one with which extralife started"
            raise OSError(errno.ESTALE, f"the directory of the journal {state}", str(self._path.parent))

    def rows(self, db: sqlite3.Connection, last: int) -> tuple[int, list[Row], int]:
        """(floor, every fact up to `last` that can be read, how many can't): by SQLite, else from the files' pages."""
        floor, rows = self._first, []
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            floor = max(schema.floor(db), 1)
            rows = [row for row in db.execute(_EVERY, (floor, last)) if crc_of(row) == row[7]]
        expected = last - floor + 1 - sum(max(0, end - max(first, floor) + 1) for first, end in self._holes)
        if len(rows) < expected:
            carved = carve_bytes(_whole(self._fd), _whole(self._wal_fd))
            both = {**{seq: row for seq, row in carved.items() if floor <= seq <= last}, **{row[0]: row for row in rows}}
            rows = [row for _, row in sorted(both.items())]
        starts_whole = bool(rows) and rows[0][0] == floor and rows[0][4] == "Snapshot"
        return floor if starts_whole else 0, rows, expected - len(rows)

    def damaged_name(self, wall_s: float) -> Path | None:
        """The name under which our file is to be kept if not all of it could be read; None: it has no name any more."""
        now = of_path(self._path)
        ours = now is not None and now.same(self.identity)
        return schema.free_name(self._path, f".damaged-{int(wall_s)}") if ours else None

    def spare(self) -> None:
        """Give those of our files that still have a name a second one: all of their facts are in the new journal."""
        schema.forget_replaced(self._path)
        for suffix, fd in (("", self._fd), ("-wal", self._wal_fd)):
            path = beside(self._path, suffix)
            now = of_path(path)
            if now is not None and now.same(of_fd(fd)):
                os.link(path, beside(self._path, schema.REPLACED + suffix))

    def close(self) -> None:
        """After the connection: see above."""
        for fd in (self._fd, self._wal_fd, self._shm_fd, self._directory_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._wal_fd = self._shm_fd = self._directory_fd = -1


def _wal_bytes(index: bytes) -> int:
    """How large the WAL must be by SQLite's index of it: the number of its frames is at byte 16 of `-shm` (walformat).

    Its size alone says nothing: `PRAGMA wal_checkpoint(TRUNCATE)` by anybody empties it, and loses nothing.
    """
    frames = int.from_bytes(index[16:20], sys.byteorder)
    return _WAL_HEADER_BYTES + frames * _FRAME_BYTES if frames else 0


def _whole(fd: int) -> bytes:
    """All of an open file, whether it has a name or not; what cannot be read is left out."""
    parts: list[bytes] = []
    at = 0
    with contextlib.suppress(OSError):
        while part := os.pread(fd, 2**20, at):
            parts.append(part)
            at += len(part)
    return b"".join(parts)
