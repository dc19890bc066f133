"""The durable journal: facts in one append-only SQLite table, committed before anything acts on them.

The deciding thread holds the only writing `Journal`. All other readers (the API, `extralifectl` when the daemon is dead)
open their own `JournalReader`; WAL lets them read while the daemon writes.

The rules:

* WAL with `synchronous=FULL`: `append` returns when the facts are on the disk. Measured: 0.3 ms (p50) on a fast virtual
  disk, 6 ms (p99: 0.1 s) on a busy one; facts are few. NORMAL costs 0.01 ms but may lose the newest facts at a power
  cut, which is exactly the event that this project must survive. `bench/journal_commit.py` measures it on your disk.
* One transaction per `append`: all its facts, or `OSError` and none of them. One exception: the disk fails in the middle
  of the commit *and* the daemon dies before its next append. Then the facts may appear after all, but still all of them.
  The fold treats an intent without its deed as "never begun".
* Triggers refuse UPDATE, DELETE and REPLACE: nobody edits history, not even extralife.
* A new journal is built under another name, synced and renamed into place. So an empty file, or one without a header, is
  always damage, and cannot be mistaken for a first start.
* A journal of a newer schema or of another program is refused (`JournalRefused`), and so is one with facts of a newer
  extralife; it is not changed.
* A start reads the newest snapshot and what follows. So it takes as long after three years as after a day.
* Damage (`JournalDamaged`) in what a start reads is found by each row's CRC and the codec. SQLite itself has no checksums: a
  flipped bit in a body would silently go into the state, and one in a kind would look like a fact of a newer extralife.
  Damage in older facts is found when the journal is copied (`spare.py`), a minute after the start and then every hour; the
  next start then checks the whole journal. If only indexes are damaged, it makes them again. Else `open_or_salvage` keeps
  the damaged files under another name. It builds a new
  journal from every readable row and from the spare (`spare.py`), under the old numbers. The last fact of the new journal
  (`facts.JournalSalvaged`) counts the lost facts. A journal that ends before the fact named by the last sign of life, or
  before the last one in the spare, has lost facts too: it was removed, its WAL was removed or damaged, or an older copy
  was put back.

Why not JSON lines: a torn tail, no transaction over several facts, no reader next to the writer.
`extralifectl journal` exports them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from supervisor import files, lack
from supervisor.adapters.journal import schema, spare
from supervisor.adapters.journal.open_files import OpenJournalFiles
from supervisor.model.codec import MalformedFact, UnknownFact, decode, encode, of_text
from supervisor.model.codec import kinds as all_kinds
from supervisor.model.facts import Fact, Snapshot, Stamped
from supervisor.model.state import State
from supervisor.ports import JournalMoved, Salvage

log = structlog.get_logger()

_PAGE_ROWS: Final = 1000
_SNAPSHOT: Final = "Snapshot"
_SNAPSHOTS: Final = f"SELECT seq FROM fact WHERE kind = '{_SNAPSHOT}' AND seq >= ? AND at_s <= ? ORDER BY seq DESC"  # noqa: S608
_OF_SEVERAL: Final = frozenset(kind for kind, fact in all_kinds().items() if "programs" in fact.__match_args__)
_READ: Final = f"SELECT {schema.COLUMNS} FROM fact WHERE seq > ? ORDER BY seq LIMIT {_PAGE_ROWS}"  # noqa: S608

# SQLITE_ERROR means "no such column" and the like. These statements are constants, so the schema must have changed.
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
_UNSAID: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})  # of many causes
_ERRNO: Final = {
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}


# Errors from descriptors on a failed file system. Not ENOSPC: a full disk has no room to open a journal either.
_DEAD: Final = {errno.EIO, errno.ESTALE, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ENOTCONN}
_REOPEN_AFTER: Final = 3  # failures in a row
_ORPHAN: Final = "the file was removed, and its write-ahead log was left"


class JournalRefused(OSError):
    """The journal is complete, but not for this program: it has a newer schema, or is not a journal at all."""


class JournalDamaged(OSError):
    """The journal cannot be read completely; `why` has the reason. The file was not changed."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(f"{path}: the journal is damaged: {why}")
        self.why = str(why)


class JournalReader:
    """Reads a journal while a daemon may be writing it. Close it soon: it may hold files open.

    It needs no permission to write. If SQLite cannot make its shared-memory file (a read-only mount, another user's
    directory), a private copy is read. In that case no daemon is writing, or that file would exist. The whole file is only
    checked by `check`: each row has its CRC.

    The daemon itself never copies (`may_copy`): closing a descriptor of the file would drop its own connection's locks.
    """

    def __init__(self, path: str | os.PathLike[str], *, may_copy: bool = True) -> None:
        self._path = Path(path)
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        if not self._path.exists():
            raise FileNotFoundError(errno.ENOENT, f"{self._path}: there is no journal")
        try:
            self._db = _connect_readonly(self._path)
        except OSError as error:
            if isinstance(error, JournalDamaged | JournalRefused) or not may_copy:
                raise
            self._db = self._of_a_copy()

    def read(self, after_seq: int = 0) -> Iterator[Stamped]:
        """The facts after `after_seq`, oldest first, including those written during the reading."""
        return _read(self._db, self._path, after_seq)

    def since_snapshot(self, until_s: float = math.inf) -> list[Stamped]:
        """The facts that make the state: the newest snapshot up to a moment, and what follows. Without one, all facts.

        A snapshot that cannot be decoded is of another version. It is left out: the facts before it say the same.
        """
        left_out = set[int]()
        with as_os_error(self._path):
            for (seq,) in self._db.execute(_SNAPSHOTS, (schema.floor(self._db), until_s)):
                facts = self.read(seq - 1)
                first = next(facts, None)  # none: a damaged index names a row that the table does not have
                if first is not None and isinstance(first.fact, Snapshot) and _is_decodable(first.fact):
                    return [first, *(each for each in facts if each.seq not in left_out)]
                left_out.add(seq)
            return [each for each in self.read() if each.seq not in left_out]

    def check(self) -> None:
        """Check the whole file, and each of its rows. Raises JournalDamaged."""
        with as_os_error(self._path):
            _check_whole(self._db, self._path)
        for _ in self.read():
            pass

    def search(self, after_seq: int, kinds: Sequence[str], program: str | None, limit: int) -> list[Stamped]:
        """The first `limit` facts after `after_seq`, or the newest -`limit`, oldest first. No kinds or program: any."""
        known = [kind for kind in all_kinds() if kind in kinds]
        if kinds and not known:
            return []
        with as_os_error(self._path):
            tests = list(_tests(known, program, by_index=not schema.missing_indexes(self._db)))
            each = f"SELECT {schema.COLUMNS} FROM fact WHERE seq > ? AND "  # noqa: S608  constants only
            parts = " UNION ALL ".join(f"{each}{test}" for test, _ in tests)
            after_seq = max(after_seq, schema.floor(self._db) - 1)
            values = [value for _, more in tests for value in (after_seq, *more)]
            query = f"{parts} ORDER BY seq {'DESC' if limit < 0 else 'ASC'} LIMIT ?"
            rows: list[schema.Row] = self._db.execute(query, (*values, abs(limit))).fetchall()
        return [_stamped(self._path, row) for row in (rows[::-1] if limit < 0 else rows)]

    def rows(self, numbers: Sequence[int]) -> dict[int, Stamped]:
        """The facts of these numbers, by number, without those that the journal no longer has."""
        found: list[schema.Row] = []
        with as_os_error(self._path):
            for place in range(0, len(numbers), _PAGE_ROWS):
                part = numbers[place : place + _PAGE_ROWS]
                query = f"SELECT {schema.COLUMNS} FROM fact WHERE seq IN ({', '.join('?' * len(part))})"  # noqa: S608
                found += self._db.execute(query, part).fetchall()
        return {row[0]: _stamped(self._path, row) for row in found}

    def crc(self, seq: int) -> int | None:
        """The CRC of a fact; None: the journal does not have it."""
        with as_os_error(self._path):
            row = self._db.execute("SELECT crc FROM fact WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else int(row[0])

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
                shutil.copyfile(schema.beside(self._path, "-wal"), schema.beside(copy, "-wal"))
            return _connect_readonly(copy, named=self._path)
        except BaseException:
            self._copy.cleanup()
            raise


class Journal:
    """The writing side. The state directory's lock allows only one at a time. Use one thread at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the journal, or make a new one. Raises JournalRefused, JournalDamaged or another OSError."""
        self._path = Path(path)
        self._failures = 0  # consecutive failures of `append`
        self._refused = ""  # why the last `append` found the journal moved
        self._since = spare.Since(self._path)
        _finish_swap(self._path)
        with as_os_error(self._path):
            if not self._path.exists():
                if has_orphan(self._path):
                    raise JournalDamaged(self._path, _ORPHAN)
                schema.build(self._path, [])
            # Read-only first: closing a writing connection would move the WAL into a damaged file.
            _connect_readonly(self._path).close()
        self._open()

    def _open(self) -> None:
        files = OpenJournalFiles(self._path)  # before the connection, so both surely open the same file
        try:
            db = connect(self._path)
            try:
                last_seq, last_crc = _last(db)
                files.complete(db)
                if missing := schema.missing_indexes(db):
                    log.warning("journal_indexed", path=str(self._path), indexes=missing, why="the journal lacked them")
                    with schema.transaction(db):
                        schema.make_indexes(db, missing)
            except BaseException:
                db.close()
                raise
        except BaseException:
            files.close()
            raise
        self._db, self._files, self.last_seq, self._last_crc = db, files, last_seq, last_crc

    def append(self, facts: Sequence[Fact], *, at_s: float, wall_s: float, boot_id: str) -> list[Stamped]:
        """Write all facts in one transaction. They are on the disk when it returns; at an OSError none of them is.

        Raises ValueError (MalformedFact) for a fact that could not be read back: an error of the caller, not of the disk.
        """
        if not (math.isfinite(at_s) and math.isfinite(wall_s)):
            raise ValueError(f"a fact needs finite times, not at_s={at_s!r} and wall_s={wall_s!r}")
        at_s, wall_s = at_s + 0.0, wall_s + 0.0  # makes floats, and turns -0.0 into 0.0, as SQLite does
        encoded = [encode(fact) for fact in facts]
        if not encoded:
            return []
        first = self.last_seq + 1
        rows = [_row(first + n, at_s, wall_s, boot_id, *each) for n, each in enumerate(encoded)]
        stamped = [Stamped(row[0], at_s, wall_s, boot_id, fact) for row, fact in zip(rows, facts, strict=True)]
        try:
            if self._failures and self._failures % _REOPEN_AFTER == 0:
                self._reopen()
            self._files.check()
            with as_os_error(self._path), schema.transaction(self._db):
                last, crc = _last(self._db)
                if (last, crc) != (self.last_seq, self._last_crc):  # an unchecked commit, or another file (`_reopen`)
                    what = "it ends at" if last != self.last_seq else "another one is its"
                    raise JournalMoved(str(self._path), f"{what} fact {last}, and {self.last_seq} were acknowledged")
                self._db.executemany(schema.INSERT, rows)
            self._files.check()  # a commit into a file without a name would disappear with this process
        except JournalMoved as error:
            self._refused = error.why
            raise
        except OSError as error:
            self._failures += error.errno in _DEAD
            raise
        self._since.write(rows)
        self._failures, self.last_seq, self._last_crc = 0, rows[-1][0], rows[-1][7]
        return stamped

    def _reopen(self) -> None:
        """Open the files again after several failures: their file system may have failed and been mounted again.

        The file at the path is accepted only if its last fact is this journal's (`append`). The old connection is closed
        first: SQLite shares locks between connections by device and inode, and those may be the same.
        """
        acknowledged = self.last_seq, self._last_crc
        self._failures += 1  # so that some failures pass before the next attempt
        self.close()
        with as_os_error(self._path):
            self._open()
        self.last_seq, self._last_crc = acknowledged

    def read(self, after_seq: int = 0) -> Iterator[Stamped]:
        """The facts after `after_seq`, oldest first."""
        return _read(self._db, self._path, after_seq)

    def moved(self) -> str:
        """Why the open file is no longer the journal; empty if it still is. Raises OSError if that is unknown."""
        try:
            self._files.check()
        except JournalMoved as error:
            return error.why
        return ""

    def restore(self, *, at_s: float, wall_s: float, boot_id: str) -> tuple[Stamped, Salvage]:
        """Write the journal again at its path, as a start does with a damaged one. At an OSError nothing has changed.

        The open connection may be the only one that still reaches the facts. What it can no longer read is in the spare. A
        fact of a refused commit is in neither. Another file that has taken the path is kept under another name.
        """
        why = self.moved() or self._refused
        self._files.check_directory()
        schema.make_room(self._path)
        floor, _, own = spare.readable_in(self._db)
        floor, rows = _merged(self._path, floor, {seq: row for seq, row in own.items() if seq <= self.last_seq})
        rows = [row for row in rows if row[0] <= self.last_seq]
        if rows and rows[-1][0] == self.last_seq and rows[-1][7] != self._last_crc:  # none is ours (`_reopen`)
            floor, rows = 0, []
        first = max(floor, 1)
        known_lost = sum(max(0, min(self.last_seq, b) - max(first, a) + 1) for a, b in self._files.holes)
        lost = max(0, self.last_seq - first + 1 - len(rows) - known_lost)
        stamp = self.last_seq + 1, at_s + 0.0, wall_s + 0.0, boot_id
        stamped, found = _rebuild(self._path, floor, rows, stamp, lost, why, self._since)
        old_db, old_files = self._db, self._files
        self._open()
        old_db.close()  # SQLite notices that its file has moved, and does not delete the new WAL
        old_files.close()
        return stamped, found

    def close(self) -> None:
        self._db.close()
        self._files.close()
        self._since.close()


def open_or_salvage(
    path: str | os.PathLike[str], *, wall_s: float, seen_seq: int = 0
) -> tuple[Journal, list[Stamped], Salvage | None]:
    """The journal and the facts that make its state, for the daemon's start. A Salvage means that facts were lost.

    `seen_seq` is the number of the last fact in the sign of life. If the journal ends before it, or before the spare, facts
    are lost without a trace of damage.
    Raises JournalRefused (a newer or foreign journal) or another OSError (the disk); the file is then unchanged.
    """
    path = Path(path)
    _finish_swap(path)
    written = max(seen_seq, spare.last_seq(path))
    try:
        return *_opened(path, written), None
    except JournalDamaged as error:
        with contextlib.suppress(JournalDamaged, FileNotFoundError):
            _reindex(path, written, error.why)
            return *_opened(path, written), None
        found = salvage(path, wall_s=wall_s, why=error.why, seen_seq=seen_seq)
        return *_opened(path), found


def _reindex(path: Path, written: int, why: str) -> None:
    """Make damaged indexes again. Raises JournalDamaged if not only they are damaged; the file is then unchanged."""
    with JournalReader(path, may_copy=False) as reader:
        last = max((each.seq for each in reader.read()), default=0)
    if written > last:
        raise JournalDamaged(path, why)
    with as_os_error(path), contextlib.closing(connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")  # REINDEX and DROP INDEX read the old pages, and may stop at their damage
        db.execute("DELETE FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'fact'")
        db.execute("PRAGMA writable_schema = RESET")
        db.execute("VACUUM")
        schema.make_indexes(db, schema.missing_indexes(db))
        _check_whole(db, path)
    log.warning("journal_indexed", path=str(path), why=why)


def _opened(path: Path, written: int = 0) -> tuple[Journal, list[Stamped]]:
    """The journal and the facts that make its state. Raises JournalDamaged also if it ends before the fact `written`.

    The whole is checked if all of it is read, or if its last copy found it damaged.
    """
    facts: list[Stamped] = []
    if path.exists():
        with JournalReader(path, may_copy=False) as reader:
            facts = reader.since_snapshot()
            if not facts or not isinstance(facts[0].fact, Snapshot) or spare.found_defect(path):
                reader.check()
    elif has_orphan(path):
        raise JournalDamaged(path, _ORPHAN)
    last = facts[-1].seq if facts else 0
    if written > last:
        raise JournalDamaged(path, f"it ends at fact {last}, and fact {written} had been written")
    return Journal(path), facts


def salvage(path: str | os.PathLike[str], *, wall_s: float, why: str, seen_seq: int = 0) -> Salvage:
    """Keep a damaged journal under another name, and build a new one at its path from every readable row and the spare.

    The damaged file and its WAL stay unchanged, as `journal.sqlite.damaged-<wall seconds>`. The last fact of the new one
    records the loss. A crash at any moment leaves either the damaged journal in place or the new one.
    """
    path = Path(path)
    floor, own_last, own = spare.readable(path)
    floor, rows = _merged(path, floor, own)
    last = max(own_last or 0, seen_seq, rows[-1][0] if rows else 0)
    lost = None if own_last is None and len(rows) == len(own) and not seen_seq else last - max(floor, 1) + 1 - len(rows)
    at_s, boot_id = (rows[-1][1], rows[-1][3]) if rows else (0.0, "")
    with contextlib.closing(spare.Since(path)) as since:
        return _rebuild(path, floor, rows, (last + 1, at_s, wall_s + 0.0, boot_id), lost, why, since)[1]


def _merged(path: Path, floor: int, own: Mapping[int, schema.Row]) -> tuple[int, list[schema.Row]]:
    """(floor, rows): the journal's own readable rows, and those of its spare."""
    spare_floor, spared = spare.rows(path)
    if any(spared.get(seq, row) != row for seq, row in own.items()):
        spare_floor, spared = 0, {}  # the spare of another journal
    every = {**spared, **own}
    floor = max((each for each in (floor, spare_floor) if each in every and every[each][4] == _SNAPSHOT), default=0)
    return floor, [row for seq, row in sorted(every.items()) if seq >= floor and _is_a_fact(row)]


def _rebuild(
    path: Path, floor: int, rows: Sequence[schema.Row], stamp: tuple[int, float, float, str], lost: int | None, why: str,
    since: spare.Since,
) -> tuple[Stamped, Salvage]:  # fmt: skip
    """Put a new journal of these rows at the path, and keep what is there. Its last fact, with this stamp, is the loss.

    The spare has this fact too: another damage before the next copy must not cost it.
    """
    damaged = schema.free_name(path, f".damaged-{int(stamp[2])}")
    there = path if path.exists() else schema.beside(path, "-wal")
    kept = str(damaged if there == path else schema.beside(damaged, "-wal")) if there.exists() else ""
    found = Salvage(kept, why, len(rows), lost)
    loss_row = _row(*stamp, *encode(found.fact()))
    with as_os_error(path):
        schema.build(
            schema.beside(path, ".rebuilt"), [*rows, loss_row], floor=floor,
            before_rename=lambda: schema.link_aside(path, damaged),
        )  # fmt: skip
    schema.finish_swap(path)
    since.write([loss_row])
    return Stamped(*stamp, found.fact()), found


# --- opening ---------------------------------------------------------------------------------------------------------


def has_orphan(path: Path) -> bool:
    """Whether a WAL exists without its journal: a new journal would take it for its own, and replay it."""
    wal = schema.beside(path, "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _finish_swap(path: Path) -> None:
    """Finish an interrupted swap of an earlier daemon, or put the file aside: it may be stale, or no journal at all.

    A swap leaves a whole journal. It lacks no fact of the file that it replaces, or that file has a second name by then, as
    when `deploy/health.py` has put an older copy back: then the spare has another history.
    """
    rebuilt = schema.beside(path, ".rebuilt")
    files.make_room(rebuilt)
    if rebuilt.exists():
        last, known = _last_if_whole(rebuilt), max(spare.readable(path)[2], default=0)
        if last is None or (last < known and path.stat().st_nlink < 2):
            kept = schema.free_name(path, ".found")
            rebuilt.rename(kept)
            files.put_aside.append((str(rebuilt), "file that is not the journal's newest", str(kept)))
        elif last < known:
            shutil.rmtree(spare.folder(path), ignore_errors=True)
    schema.finish_swap(path)


def _last_if_whole(rebuilt: Path) -> int | None:
    """The number of its last fact; None if it is no whole journal."""
    try:
        with contextlib.closing(schema.opened(rebuilt, "mode=ro&immutable=1")) as db, as_os_error(rebuilt):
            _check_database(db, rebuilt)
            _check_whole(db, rebuilt)
            return max((fact.seq for fact in _read(db, rebuilt, 0)), default=0)
    except OSError as error:
        lack.check(error)
        return None


def _is_decodable(fact: Snapshot) -> bool:
    try:
        of_text(State, fact.state)
    except MalformedFact:
        return False
    return True


def _is_a_fact(row: schema.Row) -> bool:
    try:
        fact_of(row)
    except UnknownFact:
        return True  # complete, but of a newer extralife: keep it
    except MalformedFact:
        return False
    return True


def connect(path: Path) -> sqlite3.Connection:
    """A writing connection. Besides the journal itself, only `archive.py` may use one."""
    with as_os_error(path):
        # Other threads may use it: the daemon's start folds the journal before its deciding thread begins.
        # Never creates the file: an empty database in place of a removed journal would look like a damaged one.
        db = schema.opened(path, "mode=rw")
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            db.close()
            raise
        return db


def _connect_readonly(path: Path, *, named: Path | None = None) -> sqlite3.Connection:
    files.require_regular(path)
    with as_os_error(named or path):
        db = schema.opened(path)
        try:
            _check_database(db, named or path)
        except BaseException:
            db.close()
            raise
        return db


def _check_database(db: sqlite3.Connection, path: Path) -> None:
    """Check what it is: a newer schema is no damage, and one flipped bit makes no foreign file."""
    if path.stat().st_size == 0:
        raise JournalDamaged(path, "the file is empty")
    application_id = schema.pragma(db, "application_id")
    if application_id != schema.APPLICATION_ID:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not tables:
            raise JournalDamaged(path, "it is an empty database")
        if {"fact", "about"} <= tables:
            raise JournalDamaged(path, f"its header has the application id {application_id:#x}")
        raise JournalRefused(
            f"{path}: this is not a journal of extralife (SQLite application id {application_id:#x}): move it aside"
        )
    version, table_version = schema.pragma(db, "user_version"), schema.about(db, "schema")
    if version != table_version:
        raise JournalDamaged(path, f"its header says schema {version}, its table {table_version}")
    if version != schema.SCHEMA:
        why = f"the journal has schema {version}, this extralife knows {schema.SCHEMA}"
        raise JournalRefused(f"{path}: {why}: start the newer extralife again")
    floor = schema.floor(db)
    row = db.execute("SELECT kind FROM fact WHERE seq = ?", (floor,)).fetchone()
    if floor and row != (_SNAPSHOT,):  # facts below the floor are not read, so a wrong floor would hide facts
        raise JournalDamaged(path, f"it begins at fact {floor}, which is no snapshot")


def _check_whole(db: sqlite3.Connection, path: Path) -> None:
    if found := schema.defect(db):
        raise JournalDamaged(path, found)


@contextlib.contextmanager
def as_os_error(path: Path) -> Generator[None]:
    """Turn SQLite's errors into the matching OSErrors: one sentence that names the file."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # a bug in this program, not an error of the disk
    except UnicodeDecodeError as error:  # SQLite's message quotes a damaged name
        raise JournalDamaged(path, error) from error
    except sqlite3.DatabaseError as error:
        # The primary result code. Python's own "could not decode to UTF-8" has no code: that is damage too.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _DAMAGE:
            raise JournalDamaged(path, error) from error
        refused = _refusal(path.parent) if code in _UNSAID else None
        if refused is not None:
            raise OSError(refused.errno, f"the journal: {refused.strerror}", os.fspath(path)) from error
        raise OSError(_ERRNO.get(code, errno.EIO), f"the journal: {error}", os.fspath(path)) from error


def _refusal(directory: Path) -> OSError | None:
    """A quota that is used up, or a lack of descriptors: SQLite calls them an I/O error, or a file that it cannot open."""
    try:
        schema.write_somewhere(directory, os.fsync)
    except OSError as error:
        return error if error.errno == errno.EDQUOT or lack.is_lack(error) else None
    return None


def _read(db: sqlite3.Connection, path: Path, after_seq: int) -> Iterator[Stamped]:
    """Read page by page: one long SELECT would keep the WAL from shrinking for as long as the reader takes."""
    with as_os_error(path):
        after_seq = max(after_seq, schema.floor(db) - 1)
    while True:
        with as_os_error(path):
            rows: list[schema.Row] = db.execute(_READ, (after_seq,)).fetchall()
        for row in rows:
            yield _stamped(path, row)
        if len(rows) < _PAGE_ROWS:
            return
        after_seq = rows[-1][0]


def _tests(kinds: Sequence[str], program: str | None, *, by_index: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """(condition, its values). SQLite merges the results of all conditions in the order of the facts, up to the limit."""
    among = f"kind IN ({', '.join('?' * len(kinds))})" if kinds else "TRUE"
    if program is not None:
        yield f"{schema.OF_PROGRAM} = ? AND +{among}", (json.dumps(program)[1:-1], *kinds)
        for kind in _OF_SEVERAL.intersection(kinds or _OF_SEVERAL):
            yield "kind = ? AND EXISTS (SELECT 1 FROM json_each(body, '$.programs') WHERE value = ?)", (kind, program)
    elif by_index and kinds:
        yield from (("kind = ?", (kind,)) for kind in kinds)
    else:
        yield among, kinds


def _last(db: sqlite3.Connection) -> tuple[int, int]:
    """Number and CRC of the newest fact; zeros if there is none."""
    row: tuple[int, int] | None = db.execute("SELECT seq, crc FROM fact ORDER BY seq DESC LIMIT 1").fetchone()
    return row or (0, 0)


def _row(seq: int, at_s: float, wall_s: float, boot_id: str, kind: str, version: int, body: str) -> schema.Row:
    row = seq, at_s, wall_s, boot_id, kind, version, body, 0
    return (*row[:7], schema.crc_of(row))


def fact_of(row: schema.Row) -> Fact:
    """Raises MalformedFact for a damaged row, UnknownFact for a complete row that a newer extralife wrote."""
    if schema.crc_of(row) != row[7]:
        raise MalformedFact("its CRC does not match")
    return decode(*row[4:7])


def _stamped(path: Path, row: schema.Row) -> Stamped:
    try:
        return Stamped(*row[:4], fact_of(row))
    except UnknownFact as error:
        raise JournalRefused(f"{path}: row {row[0]}: {error}: start the newer extralife again") from error
    except MalformedFact as error:
        raise JournalDamaged(path, f"row {row[0]}: {error}") from error
