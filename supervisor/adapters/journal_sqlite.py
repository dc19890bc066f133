"""The durable record: facts in one append-only SQLite table, committed before anything is done about them.

The deciding thread holds the one writing `Journal`. Everyone else (the API, `supervisorctl` when the daemon is dead)
opens a `JournalReader` of their own; WAL lets them read while the daemon writes.

The rules:

* WAL with `synchronous=FULL`: `append` returns when the facts are on the disk. Measured: 0.3 ms (p50) on a fast virtual
  disk, 6 ms (p99: 0.1 s) on a busy one; facts are few. NORMAL costs 0.01 ms and may lose the newest ones at a power
  cut, which is the very event that this project lives with. `bench/journal_commit.py` measures it on your disk.
* One transaction an `append`: all its facts, or `OSError` and none of them. (If the disk fails in the middle of the
  commit *and* the daemon dies before its next append, they may turn up after all, still all of them: the fold treats
  an intent without a deed as "never begun".)
* Triggers refuse UPDATE, DELETE and REPLACE: history is not edited, by us neither.
* A new journal is built aside, synced and renamed into place, so an empty or headless file is always damage and never
  mistaken for a first start.
* A journal of a newer schema or of another program is refused (`JournalRefused`), and so is one with facts of a newer
  extralife; nothing is changed in it.
* Damage (`JournalDamaged`) is found by SQLite's `quick_check` when it is opened, and by a CRC of each row and the codec
  when it is read: SQLite itself has no checksums, and a flipped bit in a body would be folded into the state without a
  word, or one in a kind taken for a newer extralife's. `open_or_salvage` then keeps the damaged files aside and builds
  a new journal from every row that can still be read, under its old number. What was lost is counted and told.

Why not JSON lines: a torn tail, no transaction over several facts, no reader beside the writer.
`supervisorctl journal --jsonl` exports them.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from supervisor.core.codec import MalformedFact, UnknownFact, decode, encode
from supervisor.core.facts import Fact, Stamped

SCHEMA: Final = 1  # PRAGMA user_version
APPLICATION_ID: Final = 0x584C4A31  # "XLJ1": file(1) and we can tell this database from any other

_BUSY_TIMEOUT_S: Final = 5.0
_PAGE_ROWS: Final = 1000
_LEAST_ROW_BYTES: Final = 40  # a boot id alone has 32: bounds the search for rows when the last number is unreadable

_CREATE: Final = f"""
BEGIN;
CREATE TABLE fact (
    seq INTEGER PRIMARY KEY,
    at_s REAL NOT NULL,
    wall_s REAL NOT NULL,
    boot_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
CREATE TRIGGER fact_is_never_changed BEFORE UPDATE ON fact BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER fact_is_never_removed BEFORE DELETE ON fact BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER fact_is_never_replaced BEFORE INSERT ON fact WHEN EXISTS (SELECT 1 FROM fact WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA};
COMMIT;
"""  # noqa: S608  constants only
_COLUMNS: Final = "seq, at_s, wall_s, boot_id, kind, version, body, crc"
_INSERT: Final = f"INSERT INTO fact ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  constants only
_READ: Final = f"SELECT {_COLUMNS} FROM fact WHERE seq > ? ORDER BY seq LIMIT {_PAGE_ROWS}"  # noqa: S608
_READ_ONE: Final = f"SELECT {_COLUMNS} FROM fact WHERE seq = ?"  # noqa: S608

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ERRNO: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}

Row = tuple[int | None, float, float, str, str, int, str, int]  # as _COLUMNS; no number yet: SQLite gives the next


class JournalRefused(OSError):
    """The journal is whole, and not for this program: of a newer schema, or not a journal at all."""


class JournalDamaged(OSError):
    """The journal cannot be read as a whole. The file has not been touched."""


@dataclass(frozen=True, slots=True)
class Salvage:
    """What became of a damaged journal. `lost` is None when nobody can know how many facts it held."""

    damaged_path: str
    why: str
    saved: int
    lost: int | None

    def __str__(self) -> str:
        lost = "an unknown number of facts is lost" if self.lost is None else f"{self.lost} facts are lost"
        return (
            f"the journal was damaged ({self.why}): {self.saved} facts were saved, {lost}; it is kept as {self.damaged_path}"
        )


class JournalReader:
    """A read-only look at a journal, beside a daemon that may be writing it. Close it soon: it may hold files open.

    Needs no permission to write: where SQLite cannot make its shared-memory file (a read-only mount, another user's
    directory), a private copy is read. Then no daemon writes it either, or that file would exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        if not self._path.exists():
            msg = f"{self._path}: there is no journal"
            raise FileNotFoundError(errno.ENOENT, msg)
        try:
            self._db = _connect_readonly(self._path)
        except OSError as error:
            if isinstance(error, JournalDamaged | JournalRefused):
                raise
            self._db = self._of_a_copy()

    def read(self, after_seq: int = 0) -> Iterator[Stamped]:
        """The facts after `after_seq`, oldest first; those that are written meanwhile too."""
        return _read(self._db, self._path, after_seq)

    def close(self) -> None:
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _of_a_copy(self) -> sqlite3.Connection:
        self._copy = tempfile.TemporaryDirectory(prefix="extralife-journal-")
        copy = Path(self._copy.name) / "journal.sqlite"
        try:
            shutil.copyfile(self._path, copy)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(_beside(self._path, "-wal"), _beside(copy, "-wal"))
            return _connect_readonly(copy, named=self._path)
        except BaseException:
            self._copy.cleanup()
            raise


class Journal:
    """The writing side (`ports.Journal`). One at a time, one thread at a time; the state directory's lock sees to it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the journal, or make a new one. Raises JournalRefused, JournalDamaged or another OSError."""
        self._path = Path(path)
        _finish_swap(self._path)
        if not self._path.exists():
            _build(self._path, [])
        # Looked at read-only first: a writing connection would move the WAL into a damaged file when it is closed.
        _connect_readonly(self._path).close()
        self._db = _connect(self._path)

    def append(self, facts: Sequence[Fact], *, at_s: float, wall_s: float, boot_id: str) -> list[Stamped]:
        """All of them in one transaction that has reached the disk, or OSError and none of them.

        Raises ValueError (MalformedFact) for what could not be read back: a fault in the caller, not of the disk.
        """
        if not (math.isfinite(at_s) and math.isfinite(wall_s)):
            msg = f"a fact needs finite times, not at_s={at_s!r} and wall_s={wall_s!r}"
            raise ValueError(msg)
        at_s, wall_s = at_s + 0.0, wall_s + 0.0  # a float, and never -0.0, which SQLite gives back as 0.0
        rows = [_row(at_s, wall_s, boot_id, *encode(fact)) for fact in facts]
        if not rows:
            return []
        with _as_os_error(self._path), _transaction(self._db):
            seqs = [self._db.execute(_INSERT, row).lastrowid or 0 for row in rows]
        return [Stamped(seq, at_s, wall_s, boot_id, fact) for seq, fact in zip(seqs, facts, strict=True)]

    def read(self, after_seq: int = 0) -> Iterator[Stamped]:
        """The facts after `after_seq`, oldest first."""
        return _read(self._db, self._path, after_seq)

    def close(self) -> None:
        self._db.close()


def open_or_salvage(path: str | os.PathLike[str], *, wall_s: float) -> tuple[Journal, list[Stamped], Salvage | None]:
    """The journal and all its facts, for the daemon's start. With a Salvage, something was lost: say it loudly.

    Raises JournalRefused (a newer or foreign journal) or another OSError (the disk); the file is then as it was.
    """
    path = Path(path)
    _finish_swap(path)
    try:
        facts, lost = _read_all(path), None
    except JournalDamaged:
        lost = salvage(path, wall_s=wall_s)
        facts = _read_all(path)
    return Journal(path), facts, lost


def salvage(path: str | os.PathLike[str], *, wall_s: float) -> Salvage:
    """Put a damaged journal aside and build a new one, at the same path, of every row that can be read.

    The damaged file and its WAL stay untouched, as `journal.sqlite.damaged-<wall seconds>`. A crash at any moment leaves
    either the damaged journal in place or the new one: see `_finish_swap`.
    """
    path = Path(path)
    rows, lost, why = _readable_rows(path)
    damaged = _free_name(path, int(wall_s))
    with _as_os_error(path):
        _build(_beside(path, ".rebuilt"), rows, before_rename=lambda: _link_aside(path, damaged))
    _finish_swap(path)
    return Salvage(str(damaged), why, len(rows), lost)


# --- opening ---------------------------------------------------------------------------------------------------------


def _read_all(path: Path) -> list[Stamped]:
    if not path.exists():
        return []
    with JournalReader(path) as reader:
        return list(reader.read())


def _connect(path: Path) -> sqlite3.Connection:
    with _as_os_error(path):
        # Not bound to the thread that opens it: the daemon folds the journal before its deciding thread begins.
        db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            db.close()
            raise
        return db


def _connect_readonly(path: Path, *, named: Path | None = None) -> sqlite3.Connection:
    with _as_os_error(named or path):
        uri = f"file:{quote(os.fspath(path.absolute()))}?mode=ro"
        db = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _refuse_strangers(db, named or path)
        except BaseException:
            db.close()
            raise
        return db


def _refuse_strangers(db: sqlite3.Connection, path: Path) -> None:
    """Identity first, then wholeness: a newer schema must not be called damage."""
    if path.stat().st_size == 0:
        msg = f"{path}: the journal is damaged: the file is empty"
        raise JournalDamaged(msg)
    application_id = _pragma(db, "application_id")
    if application_id != APPLICATION_ID:
        msg = f"{path}: this is not a journal of extralife (SQLite application id {application_id:#x}): move it aside"
        raise JournalRefused(msg)
    schema = _pragma(db, "user_version")
    if schema != SCHEMA:
        msg = f"{path}: the journal has schema {schema}, this extralife knows {SCHEMA}: start the newer extralife again"
        raise JournalRefused(msg)
    found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    if found != "ok":
        msg = f"{path}: the journal is damaged: {found.splitlines()[-1]}"
        raise JournalDamaged(msg)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has rolled back by itself after some errors
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _as_os_error(path: Path) -> Generator[None]:
    """SQLite's errors as the OSErrors that they are: one sentence with the file in it."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # a fault of ours: no disk did this
    except sqlite3.DatabaseError as error:
        # The primary result code. Python's own "could not decode to UTF-8" has none: that is damage too.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _DAMAGE:
            msg = f"{path}: the journal is damaged: {error}"
            raise JournalDamaged(msg) from error
        raise OSError(_ERRNO.get(code, errno.EIO), f"the journal: {error}", os.fspath(path)) from error


def _read(db: sqlite3.Connection, path: Path, after_seq: int) -> Iterator[Stamped]:
    """Page by page: one long SELECT would hold the WAL for as long as the reader takes."""
    while True:
        with _as_os_error(path):
            rows: list[Row] = db.execute(_READ, (after_seq,)).fetchall()
        for row in rows:
            yield _stamped(path, row)
        if len(rows) < _PAGE_ROWS:
            return
        after_seq = rows[-1][0] or 0


def _row(at_s: float, wall_s: float, boot_id: str, kind: str, version: int, body: str) -> Row:
    return None, at_s, wall_s, boot_id, kind, version, body, _crc(at_s, wall_s, boot_id, kind, version, body)


def _crc(at_s: float, wall_s: float, boot_id: str, kind: str, version: int, body: str) -> int:
    return zlib.crc32(f"{at_s!r}|{wall_s!r}|{boot_id}|{kind}|{version}|{body}".encode())


def _fact_of(row: Row) -> Fact:
    """Raises MalformedFact for a damaged row, UnknownFact for a whole one that a newer extralife wrote."""
    _, at_s, wall_s, boot_id, kind, version, body, crc = row
    if _crc(at_s, wall_s, boot_id, kind, version, body) != crc:
        msg = "its CRC does not match"
        raise MalformedFact(msg)
    return decode(kind, version, body)


def _stamped(path: Path, row: Row) -> Stamped:
    seq = row[0] or 0
    try:
        return Stamped(seq, row[1], row[2], row[3], _fact_of(row))
    except UnknownFact as error:
        msg = f"{path}: row {seq}: {error}: start the newer extralife again"
        raise JournalRefused(msg) from error
    except MalformedFact as error:
        msg = f"{path}: the journal is damaged: row {seq}: {error}"
        raise JournalDamaged(msg) from error


# --- building aside, and then one rename ---------------------------------------------------------------------------------


def _build(path: Path, rows: Sequence[Row], *, before_rename: Callable[[], None] = lambda: None) -> None:
    """A whole new journal of these rows at `path`: synced before it gets its name."""
    aside = _beside(path, ".building")
    for suffix in ("", "-wal", "-shm", "-journal"):
        _beside(aside, suffix).unlink(missing_ok=True)  # of a build that was interrupted
    os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))  # SQLite's own files follow suit
    with _as_os_error(path), contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_CREATE)
        with _transaction(db):
            db.executemany(_INSERT, rows)
        db.execute("PRAGMA journal_mode = WAL")
    _sync(aside)
    before_rename()
    aside.replace(path)
    _sync(path.parent)


def _finish_swap(path: Path) -> None:
    """Let a rebuilt journal take the place of the damaged one: the last steps of `salvage`, or of one cut short.

    The old WAL must be gone, durably, before the new file has the name: SQLite would replay it into the new file.
    """
    rebuilt = _beside(path, ".rebuilt")
    if not rebuilt.exists():
        return
    for suffix in ("-wal", "-shm"):
        _beside(path, suffix).unlink(missing_ok=True)
    _sync(path.parent)
    rebuilt.replace(path)
    _sync(path.parent)


def _link_aside(path: Path, damaged: Path) -> None:
    """A second name for the damaged file and its WAL, named so that SQLite would still read the two together."""
    os.link(path, damaged)
    with contextlib.suppress(FileNotFoundError):
        os.link(_beside(path, "-wal"), _beside(damaged, "-wal"))
    _sync(path.parent)


def _readable_rows(path: Path) -> tuple[list[Row], int | None, str]:
    """(rows, how many were lost, the first thing that was wrong). Row by row: one bad page hides only its own."""
    rows: list[Row] = []
    lost, why = 0, ""
    db = sqlite3.connect(f"file:{quote(os.fspath(path.absolute()))}?mode=ro", uri=True, isolation_level=None)
    with contextlib.closing(db):
        try:
            db.execute("PRAGMA writable_schema = ON")  # or SQLite would not look into a file that lacks its last pages
            db.execute(_READ_ONE, (0,)).fetchone()
        except sqlite3.DatabaseError as error:
            return [], None, str(error)
        last = _last_seq(db)
        for seq in range(1, 1 + (path.stat().st_size // _LEAST_ROW_BYTES if last is None else last)):
            try:
                row = db.execute(_READ_ONE, (seq,)).fetchone()
                if row is not None:
                    _fact_of(row)
                    rows.append(row)
            except UnknownFact:
                rows.append(row)  # whole, only newer: not ours to drop
            except (sqlite3.DatabaseError, MalformedFact) as error:
                lost, why = lost + 1, why or f"row {seq}: {error}"
    return rows, None if last is None else lost, why or "nothing that could be read was wrong"


def _last_seq(db: sqlite3.Connection) -> int | None:
    """The number of the last row; None if the way to it is damaged."""
    try:
        return int(db.execute("SELECT coalesce(max(seq), 0) FROM fact").fetchone()[0])
    except sqlite3.DatabaseError:
        return None


def _free_name(path: Path, wall_s: int) -> Path:
    """`journal.sqlite.damaged-<wall seconds>`, with a number behind it when that one is taken."""
    names = (_beside(path, f".damaged-{wall_s}{suffix}") for suffix in ("", *(f"-{n}" for n in range(1, 1000))))
    return next(name for name in names if not name.exists())


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
