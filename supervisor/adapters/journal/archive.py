"""Bounded growth: facts that nobody decides by any more move from the journal to the archive.

The rules:

* Nothing is thrown away. What leaves the journal lies in `journal-archive/facts-<first>-<last>.jsonl.gz` beside it, one
  row a line with its CRC; `zcat` reads it, and so does `read_archive`. Removing old files is the operator's business.
* The cut is a snapshot (`facts.Snapshot`): the newest one that is older than `keep_days`, and while the journal is larger
  than `max_mb`, one that leaves no more than half of that. The snapshot itself stays, as the journal's first fact; so
  folding the rest gives the very state that folding all gave, and history, explain and accounts have their window.
* First the archive file, aside, synced, read back and renamed; then, in one short transaction, the floor; then the rows
  below it, a few hundred at a time with pauses, because each transaction keeps the deciding thread waiting. Killed at any
  moment it leaves a journal that reads the same, and the next run finishes: rows below the floor are not read any more.
* Freed pages are used again, so the file stays as large as it once had to be. It is never rewritten (VACUUM): that would
  lock out the deciding thread for as long as it takes.

Before anything moves, the facts up to the cut are folded and compared with the snapshot. A difference is told and does
not hold it up: an extralife that folds otherwise than the one before makes one, and nothing is lost by it.

Runs in a thread of its own (`housekeeping.py`), on a connection of its own.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from supervisor.adapters.durable import sync
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.schema import COLUMNS, Row, beside, crc_of, transaction
from supervisor.adapters.journal.sqlite import as_os_error, connect, fact_of
from supervisor.model.codec import MalformedFact
from supervisor.model.facts import Snapshot, Stamped
from supervisor.model.lifecycle import IllegalTransition
from supervisor.model.state import State, fold
from supervisor.records import dataclass

SNAPSHOT_FACTS: Final = 2000  # about as many as the next start folds: a fifth of a second
LASTING: Final = frozenset({"HostRebooted"})  # asked for as a whole list, over years, and few enough for that
_PAGE_ROWS: Final = 1000
_SLICE_ROWS: Final = 200
_PAUSE_S: Final = 0.02
_ROW_BYTES: Final = 120  # a row without its body, roughly
_ROWS: Final = f"SELECT {COLUMNS} FROM fact WHERE seq >= ? AND seq < ? ORDER BY seq LIMIT {_PAGE_ROWS}"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Moved:
    """What one run has done. `differs` names the fields of the state in which snapshot and fold are not the same."""

    archive: Path
    facts: int
    differs: tuple[str, ...] = ()


def folder(journal: Path) -> Path:
    """Where the archive of a journal is."""
    return journal.with_name("journal-archive")


def since_snapshot(path: Path) -> int:
    """How many facts have come since the newest snapshot. Raises OSError."""
    with as_os_error(path), contextlib.closing(connect(path)) as db:
        newest = db.execute("SELECT coalesce(max(seq), 0) FROM fact WHERE kind = 'Snapshot'").fetchone()[0]
        return int(db.execute("SELECT count(*) FROM fact WHERE seq > ?", (newest,)).fetchone()[0])


def compact(path: Path, *, before_wall_s: float, most_bytes: int, pause: Callable[[float], object]) -> Moved | None:
    """Move what is old, or too much, to the archive. None: nothing was due. Raises OSError; all is then as it was.

    `pause` waits between two slices and says true when there is no time for more.
    """
    with as_os_error(path), contextlib.closing(connect(path)) as db:
        floor = schema.floor(db)
        _remove_below(db, floor, pause)  # what an earlier run that was cut short had left
        cut = _cut(db, floor, before_wall_s, most_bytes)
        if cut is None:
            return None
        differs = _differs(db, floor, cut)
        archive, count = _write(path, db, floor, cut)
        with transaction(db):
            db.execute("UPDATE about SET value = ? WHERE name = 'floor'", (cut,))
        _remove_below(db, cut, pause)
        return Moved(archive, count, differs)


def read_archive(directory: Path, after_seq: int = 0) -> Iterator[Stamped]:
    """Every archived fact, oldest first. Raises OSError or MalformedFact."""
    for file in sorted(directory.glob("facts-*.jsonl.gz")):
        for row in _lines(file):
            if row[0] > after_seq:
                after_seq = row[0]
                yield Stamped(*row[:4], fact_of(row))


def read_lasting(journal: Path, reader: Iterator[Stamped], after_seq: int, kinds: Sequence[str]) -> Iterator[Stamped]:
    """The facts of a journal, and before them those of its archive if every kind that is asked for is a lasting one.

    `reader` gives the journal's own. A file of the archive that is damaged or gone gives what can be read of it: the list
    is for people, and the newest part of it lies in the journal.
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
    yield from (row for row in reader if row.seq > after_seq)


@functools.lru_cache(maxsize=1000)
def _lasting(file: Path, _mtime_ns: int, _size_bytes: int) -> tuple[Stamped, ...]:
    """The few lasting facts of one file, remembered as long as it is the same file: `reboots -f` asks every second."""
    marks = [json.dumps(kind) for kind in LASTING]
    found: list[Stamped] = []
    with contextlib.suppress(OSError, EOFError, MalformedFact, zlib.error, UnicodeDecodeError):
        for row in _lines(file, marks):
            fact = fact_of(row)
            if type(fact).__name__ in LASTING:
                found.append(Stamped(*row[:4], fact))
    return tuple(found)


# --- where to cut ------------------------------------------------------------------------------------------------------


def _cut(db: sqlite3.Connection, floor: int, before_wall_s: float, most_bytes: int) -> int | None:
    """The number of the snapshot that is to be the journal's first fact; None when it may stay as it is."""
    every = "SELECT seq, wall_s FROM fact WHERE kind = 'Snapshot' AND seq > ? ORDER BY seq"
    snapshots = db.execute(every, (max(floor, 1),)).fetchall()
    # One from a boot whose clock was not set is as old as the newest before it: 1970 is no reason to archive it.
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


def _differs(db: sqlite3.Connection, floor: int, cut: int) -> tuple[str, ...]:
    """The fields of the state in which the snapshot at the cut is not what the facts before it come to."""
    state = State()
    for row in _rows(db, floor, cut):
        with contextlib.suppress(IllegalTransition):
            state = fold(state, Stamped(*row[:4], fact_of(row)))
    noted = fold(State(), Stamped(0, state.at_s, state.wall_s, state.boot_id, _snapshot(db, cut)))
    return tuple(field.name for field in fields(State) if getattr(state, field.name) != getattr(noted, field.name))


def _snapshot(db: sqlite3.Connection, seq: int) -> Snapshot:
    (row,) = _rows(db, seq, seq + 1)
    fact = fact_of(row)
    if not isinstance(fact, Snapshot):
        raise MalformedFact(f"row {seq} is no snapshot")
    return fact


def _rows(db: sqlite3.Connection, first: int, end: int) -> Iterator[Row]:
    """The rows from one number up to another, page by page: one long SELECT would hold the write-ahead log."""
    while True:
        rows: list[Row] = db.execute(_ROWS, (first, end)).fetchall()
        yield from rows
        if len(rows) < _PAGE_ROWS:
            return
        first = rows[-1][0] + 1


# --- the file ----------------------------------------------------------------------------------------------------------


def _write(path: Path, db: sqlite3.Connection, floor: int, cut: int) -> tuple[Path, int]:
    """The rows below the cut as a file of the archive, durably, and how many they are."""
    directory = folder(path)
    directory.mkdir(mode=0o700, exist_ok=True)
    first = db.execute("SELECT min(seq) FROM fact WHERE seq >= ?", (floor,)).fetchone()[0]
    file = directory / f"facts-{first:012d}-{cut - 1:012d}.jsonl.gz"
    aside = beside(file, ".building")
    count = 0
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
        for row in _rows(db, floor, cut):
            out.write(json.dumps(row).encode() + b"\n")
            count += 1
    sync(aside)
    if sum(1 for _ in _lines(aside)) != count:
        raise OSError(f"{aside}: what was written is not what is read back")
    aside.replace(file)
    sync(directory)
    sync(directory.parent)
    return file, count


def _lines(file: Path, marks: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of one file, or only those whose line has one of these marks. Raises OSError or MalformedFact."""
    with gzip.open(file, "rt", encoding="ascii") as lines:
        for number, line in enumerate(lines, 1):
            if marks and not any(mark in line for mark in marks):
                continue
            try:
                seq, at_s, wall_s, boot_id, kind, version, body, crc = json.loads(line)
            except ValueError as error:
                raise MalformedFact(f"{file}, line {number}: {error}") from error
            row = seq, at_s, wall_s, boot_id, kind, version, body, crc
            if crc_of(row) != crc:
                raise MalformedFact(f"{file}, line {number}: its CRC does not match")
            yield row


def _remove_below(db: sqlite3.Connection, floor: int, pause: Callable[[float], object]) -> None:
    while True:
        with transaction(db):
            some = "SELECT seq FROM fact WHERE seq < ? ORDER BY seq LIMIT ?"
            gone = db.execute(f"DELETE FROM fact WHERE seq IN ({some})", (floor, _SLICE_ROWS)).rowcount  # noqa: S608
        if gone < _SLICE_ROWS or pause(_PAUSE_S):
            return
