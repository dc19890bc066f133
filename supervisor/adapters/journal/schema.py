"""The tables of a journal, and the swap that replaces one journal by a complete new one.

`PRAGMA user_version` is the schema. The table `about` has it too, because a single flipped bit in the header could turn its
number into any other. A journal of another schema is refused and not changed. Triggers refuse to change or remove facts.
Facts below `floor` may be removed, because the archive has them (`archive.py`). A fact's CRC covers its number: otherwise a
flipped bit in the number would move the fact to another place.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import zlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final

from supervisor import files
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
_BUSY_S: Final = 10.0

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


def version(db: sqlite3.Connection) -> int:
    return pragma(db, "user_version")


def table_version(db: sqlite3.Connection) -> int:
    """The schema number in the table `about`."""
    row = db.execute("SELECT value FROM about WHERE name = 'schema'").fetchone()
    return 0 if row is None else _whole(row[0])


def floor(db: sqlite3.Connection) -> int:
    """The number of the first fact that counts. Facts below it are in the archive, even if they are still here too."""
    row = db.execute("SELECT value FROM about WHERE name = 'floor'").fetchone()
    return 0 if row is None else _whole(row[0])


def missing_indexes(db: sqlite3.Connection) -> list[str]:
    """The names of the indexes that this journal lacks. It can be read without them, and an older extralife ignores them."""
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    return [name for name in _INDEXES if name not in there]


def make_indexes(db: sqlite3.Connection, names: Sequence[str]) -> None:
    """A million facts take a second."""
    for name in names:
        db.execute(_INDEXES[name])


def _whole(value: object) -> int:
    if type(value) is not int:
        raise sqlite3.DatabaseError("a number in the table about is damaged")
    return value


def pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
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
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S))
        )  # fmt: skip
        copy = stack.enter_context(contextlib.closing(sqlite3.connect(target)))
        live.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it


def new_file(path: Path) -> None:
    """Create an empty file that only its owner can read; SQLite's own files follow suit. Removes an interrupted build."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        _remove(beside(path, suffix))
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _remove(path: Path) -> None:
    files.make_room(path)
    path.unlink(missing_ok=True)


def finish_swap(path: Path) -> Path | None:
    """Let a rebuilt journal replace the previous one: the end of a salvage, also of an interrupted one.

    The old WAL must be removed durably before the new file gets the name: SQLite would replay it into the new file.
    A file without a second name exists only once, so it is kept as `journal.sqlite.found`. Returns that name, if any.
    """
    rebuilt = beside(path, ".rebuilt")
    if not rebuilt.exists():
        return None
    kept = free_name(path, ".found")
    found = [_vacate(beside(path, suffix), beside(kept, suffix)) for suffix in ("", "-wal", "-shm")]
    sync(path.parent)
    rebuilt.replace(path)
    sync(path.parent)
    return next((name for name in found if name is not None), None)


def make_room(path: Path) -> None:
    """Put aside what is no file under the names that SQLite would open. Raises OSError."""
    for suffix in ("", "-wal", "-shm", ".rebuilt"):
        files.make_room(beside(path, suffix), follow=not suffix)


def _vacate(path: Path, kept: Path) -> Path | None:
    """Make room at a path. A file that would be lost is renamed instead. Returns its new name; None: no file was kept."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    copied = found.st_nlink > 1 or found.st_size == 0 or path.name.endswith("-shm")  # SQLite creates -shm again
    if not (stat.S_ISREG(found.st_mode) and copied):
        path.rename(kept)
        return kept
    if path.name.endswith("-wal") or path.name.endswith("-shm"):  # the new journal replaces the main file in one step
        path.unlink()
    return None


def link_aside(path: Path, kept: Path) -> Path | None:
    """Give the file and its WAL a second name each, so that SQLite would still read the two together.

    Returns the name that represents both; None if neither exists.
    """
    pairs = [(beside(path, suffix), beside(kept, suffix)) for suffix in ("", "-wal")]
    there = [(old, new) for old, new in pairs if old.exists() and (old == path or old.stat().st_size > 0)]
    for old, new in there:
        _link(old, new)
    sync(path.parent)
    return there[0][1] if there else None


def _link(path: Path, kept: Path) -> None:
    try:
        os.link(path, kept)
    except FileExistsError:  # made by an interrupted run
        if not path.samefile(kept):
            raise


def free_name(path: Path, suffix: str) -> Path:
    """`journal.sqlite` + suffix, plus a number if another file already has that name."""
    names = (beside(path, f"{suffix}{number}") for number in ("", *(f"-{n}" for n in range(1, 1000))))
    there = path.exists()
    return next(name for name in names if _is_free(name) or (there and name.exists() and name.samefile(path)))


def _is_free(name: Path) -> bool:
    return not os.path.lexists(name) and not os.path.lexists(beside(name, "-wal"))


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
