"""Keeps the journal small: facts that no decision needs any more move from the journal to the archive.

The rules:

* No fact is deleted. Facts that leave the journal go to `journal-archive/facts-<first>-<last>.jsonl.gz` next to it, one
  row a line with its CRC. `zcat` reads it, and so does `read_archive`. Only the operator removes old files.
* The cut is at a snapshot (`facts.Snapshot`): the newest one that is older than `keep_days`. While the journal is larger
  than `max_mb`, it is a snapshot that leaves no more than half of that. The snapshot itself stays, as the journal's first
  fact. So folding the rest gives the same state as folding all facts, and history, explain and accounts have their window.
* First the archive file is written under another name, synced, read back and renamed. Then one short transaction sets the
  floor. Then the rows below the floor are deleted, a few hundred at a time with pauses, because each transaction blocks the
  deciding thread. If the process is killed at any moment, the journal reads the same, and the next run finishes the work:
  nothing reads rows below the floor any more.
* SQLite reuses freed pages, so the file keeps its largest size. It is never rewritten (VACUUM), because that would block
  the deciding thread for the whole time.

No fact moves if the snapshot at the cut, or any fact before it, cannot be read.

This runs in its own thread (`housekeeping.py`), on its own connection.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from supervisor import files
from supervisor.adapters.durable import sync
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.schema import COLUMNS, Row, beside, row_of, transaction
from supervisor.adapters.journal.sqlite import as_os_error, connect, fact_of
from supervisor.model.codec import MalformedFact, of_text
from supervisor.model.facts import Snapshot, Stamped
from supervisor.model.state import State
from supervisor.records import Record

SNAPSHOT_FACTS: Final = 2000  # the next start folds about this many, in a fifth of a second
LASTING: Final = frozenset({"HostRebooted"})  # readers want the whole list, over years; there are few of them
_PAGE_ROWS: Final = 1000
_SLICE_ROWS: Final = 200
_PAUSE_S: Final = 0.02
_ROW_BYTES: Final = 120  # a row without its body, roughly
_ROWS: Final = f"SELECT {COLUMNS} FROM fact WHERE seq >= ? AND seq < ? ORDER BY seq LIMIT {_PAGE_ROWS}"  # noqa: S608


class Compaction(Record):
    """The result of one run."""

    archive: Path
    facts: int


def folder(journal: Path) -> Path:
    return journal.with_name("journal-archive")


def since_snapshot(path: Path) -> int:
    """The number of facts since the newest snapshot. Raises OSError."""
    with as_os_error(path), contextlib.closing(connect(path)) as db:
        newest = db.execute("SELECT coalesce(max(seq), 0) FROM fact WHERE kind = 'Snapshot'").fetchone()[0]
        return int(db.execute("SELECT count(*) FROM fact WHERE seq > ?", (newest,)).fetchone()[0])


def compact(path: Path, *, before_wall_s: float, most_bytes: int, pause: Callable[[float], object]) -> Compaction | None:
    """Move old or surplus facts to the archive. None: nothing was due. Raises OSError; the journal is then unchanged.

    `pause` waits between two slices. It returns a true value when the run must stop.
    """
    with as_os_error(path), contextlib.closing(connect(path)) as db:
        floor = schema.floor(db)
        _remove_below(db, floor, pause)  # left behind by an interrupted earlier run
        cut = _cut(db, floor, before_wall_s, most_bytes)
        if cut is None:
            return None
        _check(db, cut)
        archive, count = _write(path, db, floor, cut)
        with transaction(db):
            db.execute("UPDATE about SET value = ? WHERE name = 'floor'", (cut,))
        _remove_below(db, cut, pause)
        return Compaction(archive, count)


def read_archive(directory: Path, after_seq: int = 0) -> Iterator[Stamped]:
    """Every archived fact, oldest first. Raises OSError or MalformedFact."""
    for file in sorted(directory.glob("facts-*.jsonl.gz")):
        for row in _lines(file):
            if row[0] > after_seq:
                after_seq = row[0]
                yield Stamped(*row[:4], fact_of(row))


def read_lasting(journal: Path, own: Iterable[Stamped], after_seq: int, kinds: Sequence[str]) -> Iterator[Stamped]:
    """The facts of a journal. If every requested kind is a lasting one, those of its archive come before them.

    `own` are the journal's own facts. If a file of the archive is damaged or missing, its readable part is used: the
    list is for people, and its newest part is in the journal.
    """
    if kinds and LASTING.issuperset(kinds):
        for file in sorted(folder(journal).glob("facts-*.jsonl.gz")):
            last = file.name.removesuffix(".jsonl.gz").rpartition("-")[2]
            if not last.isdecimal() or int(last) <= after_seq:
                continue
            with contextlib.suppress(OSError):
                found = file.stat()
                for row in _lasting(file, found.st_mtime_ns, found.st_size):
                    if row.seq > after_seq:
                        after_seq = row.seq
                        yield row
    yield from (row for row in own if row.seq > after_seq)


@functools.lru_cache(maxsize=1000)
def _lasting(file: Path, _mtime_ns: int, _size_bytes: int) -> tuple[Stamped, ...]:
    """The few lasting facts of one file, cached while the file is unchanged: `reboots -f` requests them every second."""
    marks = [json.dumps(kind) for kind in LASTING]
    found: list[Stamped] = []
    with contextlib.suppress(OSError, ValueError):
        for row in _lines(file, marks):
            fact = fact_of(row)
            if type(fact).__name__ in LASTING:
                found.append(Stamped(*row[:4], fact))
    return tuple(found)


# --- where to cut ------------------------------------------------------------------------------------------------------


def _cut(db: sqlite3.Connection, floor: int, before_wall_s: float, most_bytes: int) -> int | None:
    """The number of the snapshot that becomes the journal's first fact; None if the journal can stay as it is."""
    every = "SELECT seq, wall_s FROM fact WHERE kind = 'Snapshot' AND seq > ? ORDER BY seq"
    snapshots = db.execute(every, (max(floor, 1),)).fetchall()
    # A snapshot from a boot with an unset clock counts as old as the newest before it: 1970 must not archive it.
    newest_s = itertools.accumulate((wall_s for _, wall_s in snapshots), max)
    old = [seq for (seq, _), wall_s in zip(snapshots, newest_s, strict=True) if wall_s < before_wall_s]
    used = (schema.pragma(db, "page_count") - schema.pragma(db, "freelist_count")) * schema.pragma(db, "page_size")
    if used <= most_bytes or not snapshots:
        return old[-1] if old else None
    for seq, _ in snapshots:
        size = db.execute(f"SELECT sum(length(body) + {_ROW_BYTES}) FROM fact WHERE seq >= ?", (seq,)).fetchone()[0]  # noqa: S608
        if size <= most_bytes / 2:
            return int(max([seq, *old]))
    return int(snapshots[-1][0])


def _check(db: sqlite3.Connection, cut: int) -> None:
    """Raises MalformedFact if the snapshot at the cut cannot be read: it would be all that is left of the facts before."""
    (row,) = _rows(db, cut, cut + 1)
    snapshot = fact_of(row)
    if not isinstance(snapshot, Snapshot):
        raise MalformedFact(f"row {cut} is no snapshot")
    of_text(State, snapshot.state)


def _rows(db: sqlite3.Connection, first: int, end: int) -> Iterator[Row]:
    """The rows from one number up to another, page by page: one long SELECT would keep the WAL from shrinking."""
    while True:
        rows: list[Row] = db.execute(_ROWS, (first, end)).fetchall()
        yield from rows
        if len(rows) < _PAGE_ROWS:
            return
        first = rows[-1][0] + 1


# --- the file ----------------------------------------------------------------------------------------------------------


def _write(path: Path, db: sqlite3.Connection, floor: int, cut: int) -> tuple[Path, int]:
    """Write the rows below the cut durably to a file of the archive. Returns the file and the number of rows."""
    directory = folder(path)
    files.make_room(directory, files.DIRECTORY, follow=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    first = db.execute("SELECT min(seq) FROM fact WHERE seq >= ?", (floor,)).fetchone()[0]
    file = directory / f"facts-{first:012d}-{cut - 1:012d}.jsonl.gz"
    aside = beside(file, ".building")
    count = 0
    fd = files.open_own(aside, os.O_WRONLY | os.O_TRUNC)
    with os.fdopen(fd, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
        for row in _rows(db, floor, cut):
            out.write(json.dumps(row).encode() + b"\n")
            count += 1
    sync(aside)
    if sum(1 for _ in _lines(aside)) != count:
        raise OSError(f"{aside}: the archive file does not read back completely, so no facts were moved")
    aside.replace(file)
    sync(directory)
    sync(directory.parent)
    return file, count


def _lines(file: Path, marks: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of one file, or only those whose line contains one of `marks`. Raises OSError or MalformedFact."""
    number = 0
    try:
        with os.fdopen(files.open_regular(file, follow=True), "rb") as raw, gzip.open(raw, "rt", encoding="ascii") as lines:
            for number, line in enumerate(lines, 1):
                if not marks or any(mark in line for mark in marks):
                    try:
                        row = row_of(line)
                    except (TypeError, ValueError) as error:
                        raise MalformedFact(f"{file}, line {number}: {error}") from error
                    yield row
    except (EOFError, UnicodeDecodeError, zlib.error) as error:
        raise MalformedFact(f"{file}, after line {number}: {error}") from error


def _remove_below(db: sqlite3.Connection, floor: int, pause: Callable[[float], object]) -> None:
    while True:
        with transaction(db):
            some = "SELECT seq FROM fact WHERE seq < ? ORDER BY seq LIMIT ?"
            gone = db.execute(f"DELETE FROM fact WHERE seq IN ({some})", (floor, _SLICE_ROWS)).rowcount  # noqa: S608
        if gone < _SLICE_ROWS or pause(_PAUSE_S):
            return
