"""The journal's open files, and whether its paths still lead to them.

SQLite uses the file's name only to open it. If somebody removes or replaces the file later, a commit still succeeds, but
into a file without a name, which disappears with the process. So the writing journal holds its own descriptors of the
database and the WAL. It compares them with the paths before and after each commit (`OpenJournalFiles.check`, a few
microseconds).

| removed or replaced | without this check |
|---|---|
| `journal.sqlite` | commits go into the unlinked file |
| `-wal` | the same; the next process that opens the journal makes a new, empty WAL, and reads its old state or damage |
| `-shm` | two processes make two of them, and neither sees the other's locks |
| one of the first two truncated | committed facts are gone, and SQLite's page cache hides it |

Two traps. Closing any descriptor of a file drops all POSIX locks of the process on it, including SQLite's. So the
descriptors of the database and of `-shm` are closed only after the connection. And SQLite deletes `-wal` by name when its
last connection closes, but not if the database has another inode by then (`databaseIsUnmoved`). So the old connection may be
closed after the swap (`Journal.restore`).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from pathlib import Path
from typing import Final

from supervisor.adapters.foundations import directory, of_path, of_stat
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.schema import beside
from supervisor.files import open_regular
from supervisor.ports import JournalMoved

_WAL_HEADER_BYTES: Final = 32
_FRAME_BYTES: Final = 24 + 4096
_HOLES: Final = """
    SELECT before + 1, seq - 1 FROM (SELECT seq, lag(seq) OVER (ORDER BY seq) AS before FROM fact WHERE seq >= ?)
    WHERE seq > before + 1
"""
_WHOLE: Final = """
    SELECT (SELECT count(*) FROM fact) - (SELECT count(*) FROM fact WHERE seq < :floor)
         = (SELECT max(seq) FROM fact) - (SELECT min(seq) FROM fact WHERE seq >= :floor) + 1
"""  # hardly a twentieth of the time


class OpenJournalFiles:
    """The files of one open journal. Create it before the connection, call `complete` after the connection is open."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = Path(os.path.realpath(path))  # as SQLite does: its WAL is next to the file, not next to a link to it
        self._directory_fd = directory(self._path.parent)
        self._wal_fd = -1
        try:
            self._fd = open_regular(self._path)
        except BaseException:
            os.close(self._directory_fd)
            raise
        self._shm_fd = -1
        self._size_bytes = 0
        self.holes: list[tuple[int, int]] = []  # numbers without a fact when it was opened, as ranges: lost by damage

    def complete(self, db: sqlite3.Connection) -> None:
        """Call when the connection, and with it the WAL, is open. Raises OSError or sqlite3.Error."""
        self._wal_fd = os.open(beside(self._path, "-wal"), os.O_RDONLY | os.O_CLOEXEC)
        self._shm_fd = os.open(beside(self._path, "-shm"), os.O_RDONLY | os.O_CLOEXEC)
        floor = max(schema.floor(db), 1)
        if db.execute(_WHOLE, {"floor": floor}).fetchone() == (0,):
            self.holes = [(int(first), int(last)) for first, last in db.execute(_HOLES, (floor,))]
        self.check()

    def check(self) -> None:
        """Raises JournalMoved if the paths no longer lead to these files, another OSError if that is unknown."""
        if self._fd < 0:
            raise OSError(errno.EIO, "the journal could not be opened again", str(self._path))
        for suffix, fd in (("", self._fd), ("-wal", self._wal_fd), ("-shm", self._shm_fd)):
            path = beside(self._path, suffix)
            now = of_path(path)
            if now is None:
                raise JournalMoved(str(path), f"{path.name} was removed")
            if now != of_stat(os.fstat(fd)):
                raise JournalMoved(str(path), f"{path.name} was replaced by another {now.kind}")
        size_bytes, needed_bytes = os.fstat(self._fd).st_size, self._size_bytes
        if size_bytes < needed_bytes:
            cut = f"{self._path.name} was cut from {needed_bytes:,} to {size_bytes:,} bytes"
            raise JournalMoved(str(self._path), cut)
        self._size_bytes = size_bytes
        # Byte 16 of `-shm`, SQLite's index, has the number of frames (walformat). A small WAL alone proves nothing:
        # `PRAGMA wal_checkpoint(TRUNCATE)` by any process empties it without loss.
        frames = int.from_bytes(os.pread(self._shm_fd, 4, 16), sys.byteorder)
        needed_bytes = _WAL_HEADER_BYTES + frames * _FRAME_BYTES if frames else 0
        size_bytes = os.fstat(self._wal_fd).st_size
        if size_bytes < needed_bytes:
            wal = beside(self._path, "-wal")
            raise JournalMoved(str(wal), f"{wal.name} was cut to {size_bytes:,} of {needed_bytes:,} bytes")

    def check_directory(self) -> None:
        """Raises OSError if the path leads to another directory than the one in which the journal was opened."""
        now = of_path(self._path.parent)
        if now != of_stat(os.fstat(self._directory_fd)):
            state = "was removed" if now is None else "is not the one with which extralife started"
            raise OSError(errno.ESTALE, f"the directory of the journal {state}", str(self._path.parent))

    def close(self) -> None:
        """Call after the connection is closed; the module docstring has the reason."""
        for fd in (self._fd, self._wal_fd, self._shm_fd, self._directory_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._wal_fd = self._shm_fd = self._directory_fd = -1
