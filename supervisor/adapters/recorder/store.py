"""The recorder's file: SQLite, one table for each sheet of `model/recording.py` and each tier of resolution.

The rules:

* Nothing is decided by it and no training waits for it. A file that is damaged, or of a time that has begun anew, is set
  aside and an empty one begins.
* One commit for all rows of a moment, `synchronous=FULL`: a power cut costs what came after the last commit.
* One wide row for a subject and a time: 20 programs over 30 days are one look at 10,000 rows. (A row for each number was
  twice the file and four times the time.) Its keys and words are one number, of a table of subjects that thousands of rows
  share: each as a column of its own was a sixth of the file and of the time.
* A column that this version knows and the file does not is added, so an upgrade keeps the past. A file of a newer version
  is set aside: what its rows mean is not known.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from supervisor.adapters.durable import create
from supervisor.adapters.journal.schema import pragma, transaction
from supervisor.model.recording import SHEETS, Row, Series, Sheet, as_spread, by_subject, folded
from supervisor.policy.box.readings import Spread
from supervisor.policy.upkeep.resolution import TIERS, Tier, bucket_of, kept_spans

_APPLICATION_ID: Final = 0x584C5243  # "XLRC"
_VERSION: Final = 2  # of what rows mean; columns that are added change nothing
_BUSY_TIMEOUT_S: Final = 5.0
_MOST_WAL_BYTES: Final = 4 << 20
_LEAST, _MOST = "least", "most"
_PRUNED_EVERY_S: Final = 86_400.0
_BEGUN_ANEW_S: Final = 60.0


class NotUsable(OSError):
    """The file is damaged, or not a recorder's."""


class Recording:
    """The writing side. One thread at a time; the state directory's lock lets no second daemon in."""

    def __init__(self, path: Path, *, now_s: float) -> None:
        """Open it, or make it. Raises NotUsable, or another OSError: the disk will not have it."""
        self._path = path
        with _as_os_error(path):
            if not path.exists():
                _build(path)
            self._db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(now_s)
            except BaseException:
                self._db.close()
                raise
            self._pruned_s = -_PRUNED_EVERY_S
            found = path.stat()
            self._file = found.st_dev, found.st_ino

    def _prepare(self, now_s: float) -> None:
        if pragma(self._db, "application_id") != _APPLICATION_ID:
            raise NotUsable(f"{self._path} is not a recorder's file")
        if (version := pragma(self._db, "user_version")) != _VERSION:
            raise NotUsable(f"{self._path} was written by another extralife (format {version}, known is {_VERSION})")
        if (found := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise NotUsable(f"{self._path} is damaged: {found}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA journal_size_limit = {_MOST_WAL_BYTES}")
        _make_tables(self._db)  # and columns that this version has more
        self._subjects = _Subjects.of_all(self._db)
        newest = [self._edge("max", sheet, TIERS[0]) for sheet in SHEETS.values()]
        if any(at_s is not None and at_s > now_s + _BEGUN_ANEW_S for at_s in newest):
            raise NotUsable(f"{self._path} is of another journal's time")

    def in_place(self) -> bool:
        """Whether the path still leads to this file."""
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def add(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """The readings of one moment, by sheet; durable when this returns. Raises OSError."""
        with _as_os_error(self._path), transaction(self._db):
            for name, found in rows.items():
                _insert(self._db, self._subjects[name], SHEETS[name], TIERS[0], found)

    def fold(self, now_s: float) -> None:
        """Fold each period that is over into one row of the next tier, a subject. Raises OSError."""
        with _as_os_error(self._path):
            for sheet in SHEETS.values():
                for finer, tier in itertools.pairwise(TIERS):
                    until_s = bucket_of(now_s, tier.period_s)
                    subjects = self._subjects[sheet.name]
                    rows = _read(self._db, subjects, sheet, finer, self._folded_until(sheet, tier), until_s)
                    with transaction(self._db):
                        _insert(self._db, subjects, sheet, tier, _periods(sheet, tier, rows))

    def forget(self, now_s: float, most_bytes: int) -> None:
        """Delete what is older than its tier is kept, or what the file has no room for. Raises OSError."""
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
        """Delete the subjects that no row is of any more, and the labels that no subject has."""
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
        """Of what is in use, without the write-ahead log."""
        pages = pragma(self._db, "page_count") - pragma(self._db, "freelist_count")
        return pages * pragma(self._db, "page_size")

    def close(self) -> None:
        self._db.close()

    def _oldest(self, tier: Tier, now_s: float) -> float:
        """`now_s` where a tier has no row."""
        known = [self._edge("min", sheet, tier) for sheet in SHEETS.values()]
        return min((at_s for at_s in known if at_s is not None), default=now_s)

    def _edge(self, which: str, sheet: Sheet, tier: Tier) -> float | None:
        """The `min` or `max` of a table's times."""
        found: float | None = self._db.execute(f"SELECT {which}(at_s) FROM {_table(sheet, tier)}").fetchone()[0]  # noqa: S608
        return found

    def _folded_until(self, sheet: Sheet, tier: Tier) -> float:
        newest_s = self._edge("max", sheet, tier)
        return 0.0 if newest_s is None else newest_s + tier.period_s


class RecordingReader:
    """A read-only look at the file, beside a daemon that may be writing it."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError, or another OSError."""
        if not path.exists():
            raise FileNotFoundError(f"{path}: nothing was recorded")
        self._path = path
        with _as_os_error(path):
            self._db = _connect_readonly(path)
        self._subjects = _Subjects.of_all(self._db)

    def rows(self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str] = ()) -> Iterator[Row]:
        """The rows from `since_s` to before `until_s`, oldest first. No subjects: all; else by their first key.

        The newest periods, which are not folded yet, are folded from the finer tiers here. Raises OSError.
        """
        with _as_os_error(self._path):
            yield from self._rows(sheet, TIERS.index(tier), since_s, until_s, subjects)

    def _rows(self, sheet: Sheet, place: int, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterator[Row]:
        tier, row = TIERS[place], None
        for row in _read(self._db, self._subjects[sheet.name], sheet, tier, since_s, until_s, subjects):
            yield row
        if place > 0:
            newest = self._db.execute(f"SELECT max(at_s) FROM {_table(sheet, tier)}").fetchone()[0]  # noqa: S608
            next_s = since_s if row is None else row.at_s + tier.period_s
            begun_s = max(next_s, since_s if newest is None else newest + tier.period_s)
            yield from _periods(sheet, tier, self._rows(sheet, place - 1, begun_s, until_s, subjects))

    def oldest(self, sheet: Sheet) -> list[float]:
        """The time of the oldest row by tier; empty: there is none. A tier without rows is folded of the finer one's."""
        found, newest = [], inf
        with _as_os_error(self._path):
            for tier in TIERS:
                at_s = self._db.execute(f"SELECT min(at_s) FROM {_table(sheet, tier)}").fetchone()[0]  # noqa: S608
                newest = newest if at_s is None else at_s
                found.append(newest)
        return [] if newest == inf else found

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fill(recording: Recording, sheet: Sheet, tier: Tier, rows: Iterator[Row]) -> None:
    """Rows of any tier in one commit: for benches and tests of a long past."""
    with transaction(recording._db):
        _insert(recording._db, recording._subjects[sheet.name], sheet, tier, rows)


def read(path: Path, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterator[Row]:
    """The same rows; none where there is no file. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), RecordingReader(path) as reader:
        yield from reader.rows(sheet, tier, since_s, until_s, subjects)


def oldest(path: Path, sheet: Sheet) -> list[float]:
    """The time of the oldest row by tier; empty where there is no file. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), RecordingReader(path) as reader:
        return reader.oldest(sheet)
    return []


def remove_leftovers(path: Path) -> None:
    """What SQLite has left of a file that was removed: the next one would be read with its log. Raises OSError."""
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be used, in place of one that was set aside before. Raises OSError."""
    aside = path.with_name(f"{path.name}.old")
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).replace(aside.with_name(aside.name + end))
    return aside


# --- tables --------------------------------------------------------------------------------------------------------------


def _table(sheet: Sheet, tier: Tier) -> str:
    return f"{sheet.name}_{tier.period_s:.0f}"


def _subjects(sheet: Sheet) -> str:
    return f"{sheet.name}_subject"


def _names(sheet: Sheet, tier: Tier) -> list[str]:
    """The columns of the series, then the least and the most of those that have them in this tier."""
    columns = [_columns(series, tier) for series in sheet.series]
    return [each[0] for each in columns] + [name for each in columns for name in each[1:]]


def _columns(series: Series, tier: Tier) -> tuple[str, ...]:
    if not series.ends or tier == TIERS[0]:
        return (series.name,)
    return series.name, f"{series.name}__{_LEAST}", f"{series.name}__{_MOST}"


def _build(path: Path) -> None:
    """A new file, whole under its name from the first moment: a reader never finds one without its tables."""
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    create(aside, b"")
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
            texts = ", ".join((*sheet.keys, *sheet.words))  # numbers of labels
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
    there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    for name in _names(sheet, tier):
        if name not in there:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} REAL")


class _Texts(dict[int | None, str | None]):
    """The texts of labels by number, read when one is not known yet."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__({None: None})
        self._db = db

    def __missing__(self, id_: int | None) -> str | None:
        self.update(self._db.execute("SELECT id, text FROM label"))
        return self.get(id_, "?")  # it was deleted between two looks of this reader


class _Labels:
    """Programs, tokens, phases: a text is written once, and subjects hold its number."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db, self.texts = db, _Texts(db)
        self._ids: dict[str | None, int | None] = {None: None}

    def id(self, text: str | None) -> int | None:
        """Made if there is none, in the transaction of the row that needs it."""
        if text not in self._ids:
            self._db.execute("INSERT OR IGNORE INTO label (text) VALUES (?)", (text,))
            self._ids[text] = self._db.execute("SELECT id FROM label WHERE text = ?", (text,)).fetchone()[0]
        return self._ids[text]


class _Subjects(dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]]):
    """The keys and words of a sheet's rows by the number of their subject; each is read when it is not known yet."""

    def __init__(self, db: sqlite3.Connection, labels: _Labels, sheet: Sheet) -> None:
        super().__init__()
        self._db, self._labels, self._keys = db, labels, len(sheet.keys)
        self._table, self._columns = _subjects(sheet), (*sheet.keys, *sheet.words)
        self._ids: dict[tuple[str | None, ...], int] = {}

    @classmethod
    def of_all(cls, db: sqlite3.Connection) -> dict[str, Self]:
        """By sheet."""
        labels = _Labels(db)
        return {name: cls(db, labels, sheet) for name, sheet in SHEETS.items()}

    def __missing__(self, id_: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        asked = f"SELECT {', '.join(self._columns)} FROM {self._table} WHERE id = ?"  # noqa: S608
        known = self._db.execute(asked, (id_,)).fetchone()
        # None: it was deleted between two looks of this reader.
        texts = ("?",) * len(self._columns) if known is None else tuple(self._labels.texts[each] for each in known)
        self[id_] = texts[: self._keys], texts[self._keys :]
        return self[id_]

    def id(self, texts: tuple[str | None, ...]) -> int:
        """Of keys and words, made if there is none, in the transaction of the row that needs it."""
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
    return ["at_s", "wall_s", "readings", "subject", *_names(sheet, tier)]


def _packed(subjects: _Subjects, sheet: Sheet, tier: Tier, row: Row) -> list[Any]:
    known = [row.values.get(series.name) for series in sheet.series]
    packed: list[Any] = [row.at_s, row.wall_s, row.readings, subjects.id((*row.keys, *row.words))]
    packed += [value.mean if isinstance(value, Spread) else value for value in known]
    for series, value in zip(sheet.series, known, strict=True):
        if len(_columns(series, tier)) > 1:
            packed += (None, None) if value is None else (as_spread(value).least, as_spread(value).most)
    return packed


def _read(
    db: sqlite3.Connection,
    subjects: _Subjects,
    sheet: Sheet,
    tier: Tier,
    since_s: float,
    until_s: float,
    firsts: Sequence[str] = (),
) -> Iterator[Row]:
    """`firsts`: the first keys of the rows; none: all."""
    where = "at_s >= ? AND at_s < ?"
    if firsts:
        labels = f"SELECT id FROM label WHERE text IN ({', '.join('?' * len(firsts))})"  # noqa: S608
        where += f" AND subject IN (SELECT id FROM {_subjects(sheet)} WHERE {sheet.keys[0]} IN ({labels}))"  # noqa: S608
    asked = f"SELECT {', '.join(_columns_of(sheet, tier))} FROM {_table(sheet, tier)} WHERE {where} ORDER BY at_s, rowid"  # noqa: S608
    names, ends, fixed = [series.name for series in sheet.series], _ends(sheet, tier), 4  # at_s, wall_s, readings, subject
    for row in db.execute(asked, (since_s, until_s, *firsts)):  # a night of 20 programs has ten thousand
        values: dict[str, float | Spread | None] = dict(zip(names, row[fixed:]))  # noqa: B905  what is left over are the ends
        for name, mean, least, most in ends:
            if row[mean] is not None:
                values[name] = Spread(row[least], row[mean], row[most])
        keys, words = subjects[row[3]]
        yield Row(row[0], row[1], keys, words, values, row[2])


def _ends(sheet: Sheet, tier: Tier) -> list[tuple[str, int, int, int]]:
    """Series that have a least and a most, with the places of mean, least and most in a row."""
    place = {name: number for number, name in enumerate(_columns_of(sheet, tier))}
    found = [(series.name, *_columns(series, tier)) for series in sheet.series if len(_columns(series, tier)) > 1]
    return [(name, place[mean], place[least], place[most]) for name, mean, least, most in found]


def _periods(sheet: Sheet, tier: Tier, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows, folded by period and subject; they come oldest first."""
    begun_s: float | None = None
    held: list[Row] = []
    for row in rows:
        at_s = bucket_of(row.at_s, tier.period_s)
        if begun_s is not None and at_s != begun_s:
            yield from (folded(sheet, begun_s, each) for each in by_subject(held).values())
            held = []
        begun_s = at_s
        held.append(row)
    if begun_s is not None:
        yield from (folded(sheet, begun_s, each) for each in by_subject(held).values())


# --- SQLite --------------------------------------------------------------------------------------------------------------


def _connect_readonly(path: Path) -> sqlite3.Connection:
    """Where its shared-memory file cannot be made (a read-only disk, another user's directory), without its log."""
    unreadable: sqlite3.OperationalError | None = None
    for how in ("mode=ro", "mode=ro&immutable=1"):
        db = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, timeout=_BUSY_TIMEOUT_S, check_same_thread=False)
        try:
            if pragma(db, "application_id") != _APPLICATION_ID:
                raise NotUsable(f"{path} is not a recorder's file")
        except sqlite3.OperationalError as error:
            db.close()
            unreadable = error
        except BaseException:
            db.close()
            raise
        else:
            return db
    assert unreadable is not None  # noqa: S101  both have failed
    raise unreadable


@contextlib.contextmanager
def _as_os_error(path: Path) -> Iterator[None]:
    """SQLite's errors as OSError: damage as NotUsable, a removed file as FileNotFoundError, else the disk's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if not path.exists():
            raise FileNotFoundError(f"{path} was removed") from error
        damaged = type(error) is sqlite3.DatabaseError or error.sqlite_errorcode in {
            sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR
        }  # fmt: skip
        kind = NotUsable if damaged else OSError
        raise kind(f"{path}: {error}") from error
