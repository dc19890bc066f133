"""The recorder's file: SQLite, one table for each sheet of `rules/recording.py` and each tier of resolution.

The rules:

* No decision depends on it and no training waits for it. A file that is damaged, or whose journal time has started again, is
  set aside, and an empty file replaces it.
* One commit for all rows of a moment, `synchronous=FULL`: a power cut loses only the rows after the last commit.
* One wide row per subject and time: 20 programs over 30 days are one query of 10,000 rows. (One row per number took twice
  the space and four times the time.) A row's keys and words are one number, from a table of subjects that thousands of rows
  share. As separate columns they took a sixth of the file and of the time.
* A column that this version knows and the file lacks is added, so an upgrade keeps the past. A file of a newer version is
  set aside, because the meaning of its rows is unknown.

Why not facts: six rows a minute and program would be most of the journal, and each start folds it.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, Self

from supervisor import files
from supervisor.adapters.foundations import of_path
from supervisor.adapters.journal.schema import beside, defect, new_file, opened, pragma, transaction
from supervisor.features.recorder.adapters import events
from supervisor.features.recorder.rules.recording import (
    FIGURES_OF_ITS_OWN,
    FIRST,
    SHEETS,
    Drawn,
    Row,
    Series,
    Sheet,
    as_spread,
    in_periods,
)  # fmt: skip
from supervisor.features.recorder.rules.resolution import TIERS, Held, Tier, bucket_of, kept_spans
from supervisor.model.settings import Paths
from supervisor.policy.box.readings import Spread

_APPLICATION_ID: Final = 0x584C5243  # "XLRC"
_VERSION: Final = 2  # version of the rows' meaning; an added column does not change it
_WITHOUT_LOG: Final = "mode=ro&immutable=1"
_MOST_WAL_BYTES: Final = 4 << 20
_LEAST, _MOST = "least", "most"
_FIXED: Final = ("at_s", "wall_s", "readings", "subject")  # columns before those of series
_AT_ONCE: Final = 500  # rows, or subjects, per query
_PRUNED_EVERY_S: Final = 86_400.0
_BEGUN_ANEW_S: Final = 60.0


class NotUsable(OSError):
    """The file is damaged, or not a recorder's."""


class Recording:
    """Writes the file, from one thread at a time. The state directory's lock keeps a second daemon out."""

    def __init__(self, path: Path, *, now_s: float) -> None:
        """Open the file, or create it. Raises NotUsable, or another OSError if the disk refuses it."""
        self._path = path
        with _as_os_error(path):
            for end in ("", "-wal", "-shm", ".new"):
                files.make_room(f"{path}{end}", follow=not end)
            if not path.exists():
                _build(path)
            self._db = opened(path, "mode=rw")
            try:
                self._prepare(now_s)
            except BaseException:
                self._db.close()
                raise
            self._pruned_s = -_PRUNED_EVERY_S
            self._file = of_path(path)

    def _prepare(self, now_s: float) -> None:
        if pragma(self._db, "application_id") != _APPLICATION_ID:
            raise NotUsable(f"{self._path} is not a recorder's file")
        if (version := pragma(self._db, "user_version")) != _VERSION:
            raise NotUsable(f"{self._path} was written by another extralife (format {version}, known is {_VERSION})")
        if found := defect(self._db):
            raise NotUsable(f"{self._path} is damaged: {found}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA journal_size_limit = {_MOST_WAL_BYTES}")
        _make_tables(self._db)  # also adds the columns that are new in this version
        self._subjects = _Subjects.of_all(self._db)
        newest = [_time(self._db, "max", sheet, TIERS[0]) for sheet in SHEETS.values()]
        if any(at_s is not None and at_s > now_s + _BEGUN_ANEW_S for at_s in newest):
            raise NotUsable(f"{self._path} has rows that are newer than this journal")

    def in_place(self) -> bool:
        """Whether the path still leads to this file."""
        return self._file is not None and of_path(self._path) == self._file

    def add(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Add the readings of one moment, by sheet. They are durable when this returns. Raises OSError."""
        with _as_os_error(self._path), transaction(self._db):
            for name, found in rows.items():
                _insert(self._db, self._subjects[name], SHEETS[name], TIERS[0], found)

    def fold(self, now_s: float) -> None:
        """Fold each finished period into the next tier, one row per subject. Raises OSError."""
        with _as_os_error(self._path):
            for sheet in SHEETS.values():
                for finer, tier in itertools.pairwise(TIERS):
                    until_s = bucket_of(now_s, tier.period_s)
                    subjects = self._subjects[sheet.name]
                    rows = _read(self._db, subjects, sheet, finer, _folded_until(self._db, sheet, tier, 0.0), until_s)
                    with transaction(self._db):
                        _insert(self._db, subjects, sheet, tier, _periods(sheet, tier, rows))

    def forget(self, now_s: float, most_bytes: int) -> None:
        """Delete rows that are older than their tier's limit, or for which the file has no room. Raises OSError."""
        with _as_os_error(self._path):
            spans = kept_spans(TIERS, [now_s - self._oldest(tier, now_s) for tier in TIERS], self.size_bytes, most_bytes)
            for tier, span_s in zip(TIERS, spans, strict=True):
                with transaction(self._db):
                    for sheet in SHEETS.values():
                        self._db.execute(f"DELETE FROM {_table(sheet, tier)} WHERE at_s < ?", (now_s - span_s,))  # noqa: S608
            if now_s - self._pruned_s >= _PRUNED_EVERY_S:
                self._prune()
                self._pruned_s = now_s
            self._db.executescript("PRAGMA incremental_vacuum")  # `execute` takes one step, which frees one page

    def _prune(self) -> None:
        """Delete subjects without rows, and labels without subjects."""
        with transaction(self._db):
            for sheet in SHEETS.values():
                used = " UNION ".join(f"SELECT subject FROM {_table(sheet, tier)}" for tier in TIERS)  # noqa: S608
                self._db.execute(f"DELETE FROM {_subjects(sheet)} WHERE id NOT IN ({used})")  # noqa: S608
            named = " UNION ".join(
                f"SELECT {name} FROM {_subjects(sheet)} WHERE {name} IS NOT NULL"  # noqa: S608
                for sheet in SHEETS.values() for name in (*sheet.keys, *sheet.words)
            )  # fmt: skip
            self._db.execute(f"DELETE FROM label WHERE id NOT IN ({named})")  # noqa: S608
        self._subjects = _Subjects.of_all(self._db)

    @property
    def size_bytes(self) -> int:
        """Size of the pages in use, without the write-ahead log."""
        pages = pragma(self._db, "page_count") - pragma(self._db, "freelist_count")
        return pages * pragma(self._db, "page_size")

    def close(self) -> None:
        self._db.close()

    def _oldest(self, tier: Tier, now_s: float) -> float:
        """The time of a tier's oldest row; `now_s` if the tier has no row."""
        known = [_time(self._db, "min", sheet, tier) for sheet in SHEETS.values()]
        return min((at_s for at_s in known if at_s is not None), default=now_s)


class RecordedFiles:
    """`page.Recorded`: the present content of the files, which a daemon may be writing. Raises OSError."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def rows(self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterator[Row]:
        with contextlib.suppress(FileNotFoundError), self._opened() as db:
            yield from _rows(db, _Subjects.of_all(db)[sheet.name], sheet, TIERS.index(tier), since_s, until_s, subjects)

    def held(self, sheet: Sheet, since_s: float, until_s: float, subjects: Sequence[str], enough: int) -> list[Held]:
        """A tier without rows is folded from the finer tier."""
        found, newest = [], inf
        where = _where(sheet, subjects)
        with contextlib.suppress(FileNotFoundError), self._opened() as db:
            for tier in TIERS:
                at_s = _time(db, "min", sheet, tier)
                newest = newest if at_s is None else at_s
                query = f"SELECT count(*) FROM (SELECT 1 FROM {_table(sheet, tier)} WHERE {where} LIMIT ?)"  # noqa: S608
                found.append(Held(newest, db.execute(query, (since_s, until_s, *subjects, enough)).fetchone()[0]))
            return [] if newest == inf else found
        return []

    def names(self) -> set[str]:
        labels = f"SELECT names FROM {_subjects(FIGURES_OF_ITS_OWN)}"  # noqa: S608
        with contextlib.suppress(FileNotFoundError), self._opened() as db:
            return {text for (text,) in db.execute(f"SELECT text FROM label WHERE id IN ({labels})")}  # noqa: S608
        return set()

    def drawn(self, program: str, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> Iterator[Drawn]:
        return events.read(Path(self._paths.run_dir(program)), names, since_wall_s, until_wall_s)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        path = Path(self._paths.recording)
        with _as_os_error(path), contextlib.closing(_connect_readonly(path)) as db:
            yield db


def fill(recording: Recording, sheet: Sheet, tier: Tier, rows: Iterator[Row]) -> None:
    """Insert rows of any tier in one commit: for benchmarks, and for tests with a long past."""
    with transaction(recording._db):
        _insert(recording._db, recording._subjects[sheet.name], sheet, tier, rows)


def remove_leftovers(path: Path) -> None:
    """Delete the side files of a removed database.

    Otherwise SQLite would read the next file with the old log. Raises OSError.
    """
    for end in ("-wal", "-shm"):
        beside(path, end).unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be used. It replaces one that was set aside before. Raises OSError."""
    aside = beside(path, ".old")
    files.make_room(aside)
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            beside(path, end).replace(beside(aside, end))
    return aside


# --- tables --------------------------------------------------------------------------------------------------------------


def _table(sheet: Sheet, tier: Tier) -> str:
    return f"{sheet.name}_{tier.period_s:.0f}"


def _subjects(sheet: Sheet) -> str:
    return f"{sheet.name}_subject"


def _names(sheet: Sheet, tier: Tier) -> list[str]:
    """The columns of the series, then the minimum and maximum columns of those that have them in this tier."""
    columns = [_columns(series, tier) for series in sheet.series]
    return [each[0] for each in columns] + [name for each in columns for name in each[1:]]


def _columns(series: Series, tier: Tier) -> tuple[str, ...]:
    if not series.ends or tier == TIERS[0]:
        return (series.name,)
    return series.name, f"{series.name}__{_LEAST}", f"{series.name}__{_MOST}"


def _build(path: Path) -> None:
    """Create a new file, complete before it gets its name: a reader never finds one without its tables."""
    aside = beside(path, ".new")
    new_file(aside)
    with contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as db:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {_VERSION}")
        _make_tables(db)
    aside.rename(path)


def _make_tables(db: sqlite3.Connection) -> None:
    with transaction(db):
        db.execute("CREATE TABLE IF NOT EXISTS label (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)")
        for sheet in SHEETS.values():
            texts = ", ".join((*sheet.keys, *sheet.words))  # ids of labels
            db.execute(f"CREATE TABLE IF NOT EXISTS {_subjects(sheet)} (id INTEGER PRIMARY KEY, {texts})")
            db.execute(f"CREATE INDEX IF NOT EXISTS {_subjects(sheet)}_by ON {_subjects(sheet)} ({texts})")
            for tier in TIERS:
                _make(db, sheet, tier)


def _make(db: sqlite3.Connection, sheet: Sheet, tier: Tier) -> None:
    table = _table(sheet, tier)
    fixed = ["at_s REAL NOT NULL", "wall_s REAL NOT NULL", "readings INTEGER NOT NULL", "subject INTEGER NOT NULL"]
    db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(fixed)})")
    db.execute(f"CREATE INDEX IF NOT EXISTS {table}_at ON {table} (at_s)")
    if sheet.keys:
        db.execute(f"CREATE INDEX IF NOT EXISTS {table}_of ON {table} (subject, at_s)")
    existing = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    added = [name for name in _names(sheet, tier) if name not in existing]
    for name in added:
        db.execute(f"ALTER TABLE {table} ADD COLUMN {name} REAL")
    if FIRST in added and not tier.by_attempt:  # the next fold makes again what finer rows still hold, now with their losses
        finest = next(each for each in reversed(TIERS) if each.by_attempt)
        db.execute(f"DELETE FROM {table} WHERE at_s >= (SELECT min(at_s) FROM {_table(sheet, finest)})")  # noqa: S608


class _Labels:
    """Programs, tokens, phases. Each text is stored once, and subjects refer to its id."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids: dict[str | None, int | None] = {None: None}

    def id(self, text: str | None) -> int | None:
        """The id of a text. A missing label is created in the transaction of the row that needs it."""
        if text not in self._ids:
            self._db.execute("INSERT OR IGNORE INTO label (text) VALUES (?)", (text,))
            self._ids[text] = self._db.execute("SELECT id FROM label WHERE text = ?", (text,)).fetchone()[0]
        return self._ids[text]


class _Subjects(dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]]):
    """The keys and words of a sheet's rows, by the id of their subject."""

    def __init__(self, db: sqlite3.Connection, labels: _Labels, sheet: Sheet) -> None:
        super().__init__()
        self._db, self._labels, self._keys = db, labels, len(sheet.keys)
        self._table, self._columns = _subjects(sheet), (*sheet.keys, *sheet.words)
        self._ids: dict[tuple[str | None, ...], int] = {}

    @classmethod
    def of_all(cls, db: sqlite3.Connection) -> dict[str, Self]:
        labels = _Labels(db)
        return {name: cls(db, labels, sheet) for name, sheet in SHEETS.items()}

    def read(self, ids: Collection[int]) -> None:
        """Load these subjects. One query for a few hundred takes a third of the time of single queries."""
        texts = "".join(f", of_{name}.text" for name in self._columns)
        joins = " ".join(f"LEFT JOIN label AS of_{name} ON of_{name}.id = found.{name}" for name in self._columns)
        unknown = [id_ for id_ in ids if id_ not in self]
        for begun in range(0, len(unknown), _AT_ONCE):
            part = unknown[begun : begun + _AT_ONCE]
            marks = ", ".join("?" * len(part))
            query = f"SELECT found.id{texts} FROM {self._table} AS found {joins} WHERE found.id IN ({marks})"  # noqa: S608
            for id_, *labels in self._db.execute(query, part):
                self[id_] = tuple(labels[: self._keys]), tuple(labels[self._keys :])

    def __missing__(self, _: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Question marks, for a subject that was deleted between two queries of this reader."""
        unknown = ("?",) * len(self._columns)
        return unknown[: self._keys], unknown[self._keys :]

    def id(self, texts: tuple[str | None, ...]) -> int:
        """The id of these keys and words. A missing subject is created in the transaction of the row that needs it."""
        if texts not in self._ids:
            labels = [self._labels.id(text) for text in texts]
            there = " AND ".join(f"{column} IS ?" for column in self._columns)
            found = self._db.execute(f"SELECT id FROM {self._table} WHERE {there}", labels).fetchone()  # noqa: S608
            into = f"INSERT INTO {self._table} ({', '.join(self._columns)}) VALUES ({', '.join('?' * len(labels))})"  # noqa: S608
            self._ids[texts] = self._db.execute(into, labels).lastrowid or 0 if found is None else found[0]
        return self._ids[texts]


def _insert(
    db: sqlite3.Connection, subjects: _Subjects, sheet: Sheet, tier: Tier, rows: Sequence[Row] | Iterator[Row]
) -> None:  # fmt: skip
    names = _columns_of(sheet, tier)
    marks = ", ".join("?" * len(names))
    into = f"INSERT INTO {_table(sheet, tier)} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
    for row in rows:
        db.execute(into, _packed(subjects, sheet, tier, row))


def _columns_of(sheet: Sheet, tier: Tier) -> list[str]:
    return [*_FIXED, *_names(sheet, tier)]


def _packed(subjects: _Subjects, sheet: Sheet, tier: Tier, row: Row) -> list[Any]:
    known = [row.values.get(series.name) for series in sheet.series]
    packed: list[Any] = [row.at_s, row.wall_s, row.readings, subjects.id((*row.keys, *row.words))]
    packed += [value.mean if isinstance(value, Spread) else value for value in known]
    for series, value in zip(sheet.series, known, strict=True):
        if len(_columns(series, tier)) > 1:
            packed += (None, None) if value is None else (as_spread(value).least, as_spread(value).most)
    return packed


def _time(db: sqlite3.Connection, which: str, sheet: Sheet, tier: Tier) -> float | None:
    """The `min` or `max` of a table's times."""
    found: float | None = db.execute(f"SELECT {which}(at_s) FROM {_table(sheet, tier)}").fetchone()[0]  # noqa: S608
    return found


def _folded_until(db: sqlite3.Connection, sheet: Sheet, tier: Tier, otherwise_s: float) -> float:
    newest_s = _time(db, "max", sheet, tier)
    return otherwise_s if newest_s is None else newest_s + tier.period_s


def _read(
    db: sqlite3.Connection, subjects: _Subjects, sheet: Sheet, tier: Tier, since_s: float, until_s: float,
    firsts: Sequence[str] = (),
) -> Iterator[Row]:  # fmt: skip
    """`firsts`: the first keys of the wanted rows; empty: all rows."""
    names, ends, fixed = [series.name for series in sheet.series], _ends(sheet, tier), len(_FIXED)
    # Rows of one attempt, also those from before this column was kept.
    columns = ["attempt" if name == FIRST and tier.by_attempt else name for name in _columns_of(sheet, tier)]
    where = _where(sheet, firsts)
    query = f"SELECT {', '.join(columns)} FROM {_table(sheet, tier)} WHERE {where} ORDER BY at_s, rowid"  # noqa: S608
    cursor = db.execute(query, (since_s, until_s, *firsts))
    while rows := cursor.fetchmany(_AT_ONCE):
        subjects.read({row[3] for row in rows})
        for row in rows:
            values: dict[str, float | Spread | None] = dict(zip(names, row[fixed:]))  # noqa: B905  the rest are the ends
            for name, mean, least, most in ends:
                if row[mean] is not None:
                    values[name] = Spread(row[least], row[mean], row[most])
            keys, words = subjects[row[3]]
            yield Row(row[0], row[1], keys, words, values, row[2])


def _rows(
    db: sqlite3.Connection, known: _Subjects, sheet: Sheet, place: int, since_s: float, until_s: float, firsts: Sequence[str]
) -> Iterator[Row]:  # fmt: skip
    """The rows of a tier; its newest periods, which are not folded in the file yet, are folded from the finer tiers."""
    tier, next_s = TIERS[place], since_s
    for row in _read(db, known, sheet, tier, since_s, until_s, firsts):
        yield row
        next_s = row.at_s + tier.period_s
    if place > 0:
        begun_s = max(next_s, _folded_until(db, sheet, tier, since_s))
        yield from _periods(sheet, tier, _rows(db, known, sheet, place - 1, begun_s, until_s, firsts))


def _where(sheet: Sheet, firsts: Sequence[str]) -> str:
    """The condition for rows from one moment to before another. `firsts`: the first keys of the wanted rows; empty: all."""
    if not firsts:
        return "at_s >= ? AND at_s < ?"
    table = _subjects(sheet)  # without INDEXED BY, SQLite scans all subjects for one program
    labels = f"SELECT id FROM label WHERE text IN ({', '.join('?' * len(firsts))})"  # noqa: S608
    subjects = f"SELECT id FROM {table} INDEXED BY {table}_by WHERE {sheet.keys[0]} IN ({labels})"  # noqa: S608
    return f"at_s >= ? AND at_s < ? AND subject IN ({subjects})"


def _ends(sheet: Sheet, tier: Tier) -> list[tuple[str, int, int, int]]:
    """Series with a minimum and a maximum, and the positions of their mean, minimum and maximum in a row."""
    place = {name: number for number, name in enumerate(_columns_of(sheet, tier))}
    found = [(series.name, *_columns(series, tier)) for series in sheet.series if len(_columns(series, tier)) > 1]
    return [(name, place[mean], place[least], place[most]) for name, mean, least, most in found]


def _periods(sheet: Sheet, tier: Tier, rows: Iterable[Row]) -> Iterator[Row]:
    return in_periods(sheet, tier.period_s, rows, by_attempt=tier.by_attempt)


# --- SQLite --------------------------------------------------------------------------------------------------------------


def _connect_readonly(path: Path, how: str = "mode=ro") -> sqlite3.Connection:
    """Connect read-only. If the shared-memory file cannot be created, the file is opened without its log.

    That happens on a read-only disk or in another user's directory.
    """
    files.require_regular(path)
    db = opened(path, how)
    try:
        if pragma(db, "application_id") != _APPLICATION_ID:
            raise NotUsable(f"{path} is not a recorder's file")
    except BaseException as error:
        db.close()
        if how == _WITHOUT_LOG or not isinstance(error, sqlite3.OperationalError):
            raise
        return _connect_readonly(path, _WITHOUT_LOG)
    return db


@contextlib.contextmanager
def _as_os_error(path: Path) -> Iterator[None]:
    """Convert SQLite's errors: damage to NotUsable, without a file to FileNotFoundError, an error of the disk to OSError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: {error}") from error
        damaged = type(error) is sqlite3.DatabaseError or error.sqlite_errorcode in {
            sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR
        }  # fmt: skip
        kind = NotUsable if damaged else OSError
        raise kind(f"{path}: {error}") from error
