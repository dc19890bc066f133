"""The tables of a journal, and the swap that replaces one journal by a complete new one.

`PRAGMA user_version` is the schema. The table `about` has it too, because a single flipped bit in the header could turn its
number into any other. A journal of another schema is refused and not changed. Triggers refuse to change or remove facts.
Facts below `floor` may be removed, because the archive has them (`archive.py`). A fact's CRC covers its number: otherwise a
flipped bit in the number would move the fact to another place.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sqlite3
import stat
import tempfile
import zlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from supervisor import files, filesystems
from supervisor.adapters.durable import sync

APPLICATION_ID: Final = 0x584C4A31  # "XLJ1": identifies this database, also for file(1)

Row = tuple[int, float, float, str, str, int, str, int]  # as COLUMNS
COLUMNS: Final = "seq, at_s, wall_s, boot_id, kind, version, body, crc"
INSERT: Final = f"INSERT INTO fact ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  constants only

SCHEMA: Final = 2
_TABLES: Final = (
    """
    CREATE TABLE fact (
        seq INTEGER PRIMARY KEY,
        at_s REAL NOT NULL,
        wall_s REAL NOT NULL,
        boot_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        body TEXT NOT NULL,
        crc INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE TABLE about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
    """
    CREATE TRIGGER fact_is_never_changed BEFORE UPDATE ON fact
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END
    """,
    """
    CREATE TRIGGER fact_is_never_replaced BEFORE INSERT ON fact WHEN EXISTS (SELECT 1 FROM fact WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END
    """,
    """
    CREATE TRIGGER fact_is_never_removed BEFORE DELETE ON fact
    WHEN OLD.seq >= (SELECT value FROM about WHERE name = 'floor')
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END
    """,
    f"INSERT INTO about VALUES ('schema', {SCHEMA})",  # noqa: S608  constants only
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA}",
)
_BUSY_S: Final = 5.0

# The text after this key, up to the next quote, is the program's name as JSON. A quote inside of a text has a backslash.
_KEY: Final = '"program":"'
_AFTER: Final = f"substr(body, instr(body, '{_KEY}') + {len(_KEY)})"
OF_PROGRAM: Final = f"instr(body, '{_KEY}') AND substr({_AFTER}, 1, instr({_AFTER}, '\"') - 1)"
_INDEXES: Final = {
    "fact_by_kind": "CREATE INDEX fact_by_kind ON fact (kind)",
    "fact_by_program": f"CREATE INDEX fact_by_program ON fact ({OF_PROGRAM.partition(' AND ')[2]}) "
    f"WHERE {OF_PROGRAM.partition(' AND ')[0]}",
}


def crc_of(row: Row) -> int:
    """The CRC over all columns of a row except the last."""
    seq, at_s, wall_s, boot_id, kind, version, body, _ = row
    return zlib.crc32(f"{seq}|{at_s!r}|{wall_s!r}|{boot_id}|{kind}|{version}|{body}".encode())


def about(db: sqlite3.Connection, name: str) -> int:
    """A number of the table `about`; 0: it is not there."""
    row = db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
    if row is not None and type(row[0]) is not int:
        raise sqlite3.DatabaseError("a number in the table about is damaged")
    return 0 if row is None else int(row[0])


def floor(db: sqlite3.Connection) -> int:
    """The number of the first fact that counts. Facts below it are in the archive, even if they are still here too."""
    return about(db, "floor")


def missing_indexes(db: sqlite3.Connection) -> list[str]:
    """The names of the indexes that this journal lacks. It can be read without them, and an older extralife ignores them."""
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    return [name for name in _INDEXES if name not in there]


def make_indexes(db: sqlite3.Connection, names: Sequence[str]) -> None:
    """A million facts take a second."""
    for name in names:
        db.execute(_INDEXES[name])


def row_of(line: str | bytes) -> Row:
    """A row that was written as a line of JSON. Raises ValueError or TypeError, also if its CRC does not match."""
    seq, at_s, wall_s, boot_id, kind, version, body, crc = json.loads(line)
    row = int(seq), at_s, wall_s, boot_id, kind, version, body, crc
    if crc_of(row) != crc:
        raise ValueError("its CRC does not match")
    return row


# --- of any database of the state directory -------------------------------------------------------------------------------


def opened(path: Path, how: str = "mode=ro") -> sqlite3.Connection:
    """A connection to an existing file, for any thread. Raises OSError if `require_room` does."""
    require_room(path)
    uri = f"file:{quote(os.fspath(path.absolute()))}?{how}"
    return sqlite3.connect(
        uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, factory=_Connection
    )


class _Connection(sqlite3.Connection):
    """The last one of a file writes its log back when it is closed. Without room for that it stays open."""

    def close(self) -> None:
        try:
            with contextlib.suppress(sqlite3.Error):  # it is closed already, or damaged
                require_room(path_of(self))
            super().close()
        except OSError:
            _left_open.append(self)

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.ProgrammingError):  # it was never open
            self.close()


_left_open: Final[list[sqlite3.Connection]] = []


def path_of(db: sqlite3.Connection) -> Path:
    return Path(db.execute("PRAGMA database_list").fetchone()[2])


def require_room(path: Path) -> None:
    """Raise a write's OSError where a full disk would end this process: SQLite stores into `-shm` through a memory map.

    A file system that copies on write needs room for each such store, and without room the kernel sends SIGBUS.
    """
    if filesystems.copies_on_write(_kind_of(path.parent)):
        try:
            write_somewhere(path.parent)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None


_kind_of: Final = functools.cache(filesystems.kind_of)


def write_somewhere(directory: Path, sync: Callable[[int], object] = lambda _: None) -> None:
    """Write as much as a commit needs to a file without a name. Raises OSError. A network's quota needs a `sync`."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(bytes(64 * 1024))
        sync(file.fileno())


def defect(db: sqlite3.Connection) -> str:
    """What SQLite's own check of the whole file finds; empty: nothing."""
    found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if found == "ok" else found.splitlines()[-1]


def pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    require_room(path_of(db))
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has rolled back by itself after some errors
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


# --- building aside, and then one rename ---------------------------------------------------------------------------------


def build(path: Path, rows: Sequence[Row], *, before_rename: Callable[[], None] = lambda: None, floor: int = 0) -> None:
    """Build a complete new journal of these rows at `path`. It is synced before it gets its name."""
    aside = beside(path, ".building")
    new_file(aside)
    with contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = FULL")
        with transaction(db):
            for statement in _TABLES:
                db.execute(statement)
            make_indexes(db, [*_INDEXES])
            db.execute("INSERT INTO about VALUES ('floor', ?)", (floor,))
            db.executemany(INSERT, rows)
        db.execute("PRAGMA journal_mode = WAL")
    sync(aside)
    before_rename()
    files.make_room(path)
    aside.replace(path)
    sync(path.parent)


def copy_database(source: Path, target: Path) -> None:
    """Copy a database consistently while a process writes it: one read transaction, which blocks no writer (WAL)."""
    with contextlib.closing(opened(source)) as live, contextlib.closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it


def new_file(path: Path) -> None:
    """Create an empty file that only its owner can read; SQLite's own files follow suit. Removes an interrupted build."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        files.make_room(beside(path, suffix))
        beside(path, suffix).unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def finish_swap(path: Path) -> None:
    """Let a rebuilt journal replace the previous one: the end of a salvage, also of an interrupted one.

    The old WAL must be removed durably before the new file gets the name: SQLite would replay it into the new file.
    A file without a second name exists only once, so it is kept as `journal.sqlite.found`.
    """
    rebuilt = beside(path, ".rebuilt")
    if not rebuilt.exists():
        return
    kept = free_name(path, ".found")
    for suffix in ("", "-wal", "-shm"):
        old = beside(path, suffix)
        if not os.path.lexists(old):
            continue
        found = old.lstat()
        copied = found.st_nlink > 1 or found.st_size == 0 or suffix == "-shm"  # SQLite creates -shm again
        if not (stat.S_ISREG(found.st_mode) and copied):  # it would be lost
            old.rename(beside(kept, suffix))
        elif suffix:  # the new journal replaces the main file in one step
            old.unlink()
    sync(path.parent)
    rebuilt.replace(path)
    sync(path.parent)


def make_room(path: Path) -> None:
    """Put aside what is no file under the names that SQLite would open. Raises OSError."""
    for suffix in ("", "-wal", "-shm", ".rebuilt"):
        files.make_room(beside(path, suffix), follow=not suffix)


def link_aside(path: Path, kept: Path) -> None:
    """Give the file and its WAL a second name each, so that SQLite would still read the two together."""
    for suffix in ("", "-wal"):
        old, new = beside(path, suffix), beside(kept, suffix)
        if not old.exists() or (suffix and not old.stat().st_size):
            continue
        try:
            os.link(old, new)
        except FileExistsError:  # made by an interrupted run
            if not old.samefile(new):
                raise
    sync(path.parent)


def free_name(path: Path, suffix: str) -> Path:
    """`journal.sqlite` + suffix, plus a number if another file already has that name."""
    names = (beside(path, f"{suffix}{number}") for number in ("", *(f"-{n}" for n in range(1, 1000))))
    there = path.exists()
    return next(
        name for name in names
        if not (os.path.lexists(name) or os.path.lexists(beside(name, "-wal")))
        or (there and name.exists() and name.samefile(path))
    )  # fmt: skip


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
