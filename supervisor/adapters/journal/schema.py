"""The tables of a journal, its versions, and the steps from one to the next.

The rules:

* `PRAGMA user_version` is the schema. A newer one is refused and not touched; an older one is upgraded when the daemon
  opens it, and read as it is by everyone else.
* An upgrade works on a copy. Each step is one transaction; then every row of the copy is compared with the journal's, and
  only then does it take the journal's name, by a rename. Killed at any moment it leaves either the old journal or the
  new one, whole. The old one is kept beside it, as `journal.sqlite.schema-1`.
* A step is never changed again: journals of all ages meet it. A test makes a new journal of the steps and compares.

| schema | since it |
|---|---|
| 1 | facts, and triggers that refuse to change or remove them |
| 2 | facts below `floor` may be removed (`journal_archive.py`); a fact's CRC covers its number; the schema stands in a
table too, not only in the header |

Why not in place: one transaction would do for SQLite's part, but then nothing is left to go back to when a step was wrong.
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

from supervisor.adapters.durable import sync

APPLICATION_ID: Final = 0x584C4A31  # "XLJ1": file(1) and we can tell this database from any other

Row = tuple[int, float, float, str, str, int, str, int]  # as COLUMNS
COLUMNS: Final = "seq, at_s, wall_s, boot_id, kind, version, body, crc"
INSERT: Final = f"INSERT INTO fact ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  constants only

_SCHEMA_1: Final = (
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
    """
    CREATE TRIGGER fact_is_never_changed BEFORE UPDATE ON fact
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END
    """,
    """
    CREATE TRIGGER fact_is_never_removed BEFORE DELETE ON fact
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END
    """,
    """
    CREATE TRIGGER fact_is_never_replaced BEFORE INSERT ON fact WHEN EXISTS (SELECT 1 FROM fact WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END
    """,
    f"PRAGMA application_id = {APPLICATION_ID}",
)
_NEVER_CHANGED: Final = _SCHEMA_1[1]
_SCHEMA_2: Final = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
    "INSERT INTO about VALUES ('schema', 2), ('floor', 0)",
    "DROP TRIGGER fact_is_never_removed",
    """
    CREATE TRIGGER fact_is_never_removed BEFORE DELETE ON fact
    WHEN OLD.seq >= (SELECT value FROM about WHERE name = 'floor')
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END
    """,
    "DROP TRIGGER fact_is_never_changed",
    f"UPDATE fact SET crc = crc_2({COLUMNS})",  # noqa: S608  constants only
    _NEVER_CHANGED,
)
STEPS: Final = {0: _SCHEMA_1, 1: _SCHEMA_2}  # from -> what makes the next of it
SCHEMA: Final = len(STEPS)
REPLACED: Final = ".replaced"


def crc_of(row: Row, schema: int = SCHEMA) -> int:
    """The CRC of all that a row says. Schema 1 left out the number: a bit flipped in it moved a fact to another place."""
    seq, at_s, wall_s, boot_id, kind, version, body, _ = row
    text = f"{at_s!r}|{wall_s!r}|{boot_id}|{kind}|{version}|{body}"
    return zlib.crc32((text if schema == 1 else f"{seq}|{text}").encode())


def climb(db: sqlite3.Connection, schema: int, to: int = SCHEMA) -> None:
    """Step by step from one schema to another, each in one transaction. 0 is an empty database."""
    db.create_function("crc_2", 8, lambda *row: crc_of(row, 2), deterministic=True)
    for older in range(schema, to):
        with transaction(db):
            for statement in STEPS[older]:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {older + 1}")


def version(db: sqlite3.Connection) -> int:
    return pragma(db, "user_version")


def told_version(db: sqlite3.Connection) -> int:
    """The schema as the table says it: the header's number is one bit flip away from any other."""
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'about'").fetchone() is None:
        return 1
    row = db.execute("SELECT value FROM about WHERE name = 'schema'").fetchone()
    return 0 if row is None else _whole(row[0])


def floor(db: sqlite3.Connection) -> int:
    """The number of the first fact that counts: what is below it lies in the archive, even if it is still here too."""
    if version(db) < 2:
        return 0
    row = db.execute("SELECT value FROM about WHERE name = 'floor'").fetchone()
    return 0 if row is None else _whole(row[0])


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


# --- upgrading ---------------------------------------------------------------------------------------------------------


def upgrade(path: Path, old: sqlite3.Connection) -> Path:
    """Bring the journal at `path`, open as `old`, to the present schema; returns the name that the old one is kept under.

    Not in place yet: `finish_swap` does the last step. Raises sqlite3.Error or OSError; the journal is then as it was.
    """
    aside, kept = beside(path, ".building"), free_name(path, f".schema-{version(old)}")
    new_file(aside)
    with contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as new:
        new.execute("PRAGMA synchronous = FULL")
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")
        climb(new, version(old))
        _verify(old, new)
        new.execute("PRAGMA journal_mode = WAL")
    sync(aside)
    link_aside(path, kept)
    aside.replace(beside(path, ".rebuilt"))
    sync(path.parent)
    return kept


def _verify(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """The same facts, each with a CRC that is right on both sides. Raises sqlite3.DatabaseError."""
    every = f"SELECT {COLUMNS} FROM fact ORDER BY seq"  # noqa: S608  constants only
    before = version(old)
    whole = new.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok" and told_version(new) == version(new) == SCHEMA
    for mine, other in zip(old.execute(every), new.execute(every), strict=True):
        whole = whole and mine[:7] == other[:7] and crc_of(mine, before) == mine[7] and crc_of(other) == other[7]
    if not whole:
        raise sqlite3.DatabaseError("the upgraded journal is not what the old one was")


# --- building aside, and then one rename ---------------------------------------------------------------------------------


def build(path: Path, rows: Sequence[Row], *, before_rename: Callable[[], None] = lambda: None, floor: int = 0) -> None:
    """A whole new journal of these rows at `path`: synced before it gets its name."""
    aside = beside(path, ".building")
    new_file(aside)
    with contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = FULL")
        climb(db, 0)
        with transaction(db):
            db.execute("UPDATE about SET value = ? WHERE name = 'floor'", (floor,))
            db.executemany(INSERT, rows)
        db.execute("PRAGMA journal_mode = WAL")
    sync(aside)
    before_rename()
    aside.replace(path)
    sync(path.parent)


def new_file(path: Path) -> None:
    """An empty file for our eyes only; SQLite's own files follow suit. What an interrupted build has left is removed."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside(path, suffix).unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def finish_swap(path: Path) -> Path | None:
    """Let a rebuilt journal take the place of the one before: the end of a salvage or an upgrade, or of one cut short.

    The old WAL must be gone, durably, before the new file has the name: SQLite would replay it into the new file.
    A file that has no second name is nobody's copy: it is kept as `journal.sqlite.found`. Returns that name, if any.
    """
    rebuilt = beside(path, ".rebuilt")
    if not rebuilt.exists():
        forget_replaced(path)
        return None
    kept = free_name(path, ".found")
    found = [_vacate(beside(path, suffix), beside(kept, suffix)) for suffix in ("", "-wal", "-shm")]
    sync(path.parent)
    rebuilt.replace(path)
    sync(path.parent)
    forget_replaced(path)
    return next((name for name in found if name is not None), None)


def forget_replaced(path: Path) -> None:
    """Remove the second names of a journal all of whose facts are in the new one (`journal_held.py`, `spare`)."""
    for suffix in ("", "-wal"):
        beside(path, REPLACED + suffix).unlink(missing_ok=True)


def _vacate(path: Path, kept: Path) -> Path | None:
    """Make room at a path. A file that would be lost by that is renamed; returns its new name, None: nothing was kept."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    copied = found.st_nlink > 1 or found.st_size == 0 or path.name.endswith("-shm")  # SQLite makes that one anew
    if not (stat.S_ISREG(found.st_mode) and copied):
        path.rename(kept)
        return kept
    if path.name.endswith("-wal") or path.name.endswith("-shm"):  # the journal's own name is taken in one step
        path.unlink()
    return None


def link_aside(path: Path, kept: Path) -> Path | None:
    """A second name for the file and its WAL, named so that SQLite would still read the two together.

    Returns the name that stands for both; None when there is neither.
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
    except FileExistsError:  # by a run that was cut short
        if not path.samefile(kept):
            raise


def free_name(path: Path, suffix: str) -> Path:
    """`journal.sqlite` + suffix, with a number behind it when that one is taken by another file."""
    names = (beside(path, f"{suffix}{number}") for number in ("", *(f"-{n}" for n in range(1, 1000))))
    there = path.exists()
    return next(name for name in names if _is_free(name) or (there and name.exists() and name.samefile(path)))


def _is_free(name: Path) -> bool:
    return not os.path.lexists(name) and not os.path.lexists(beside(name, "-wal"))


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
