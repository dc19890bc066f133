"""The folds over the journal for the pages (`reports/digest.py`), and a file that keeps what is over in them.

`summaries.sqlite` beside the journal has chunks of finished items, and the rest of the folds after one fact. A reader of it
folds only the facts after that one. So a page costs what its window holds, and memory does not grow with the record.

The file may be removed at any time: it is then made again from the journal. The same happens if it is damaged (each row has
a CRC), of another version, or of another journal: one that was restored, salvaged or archived since; the log says so. The
daemon makes it in the background. Meanwhile a window of up to 12 hours is answered from the snapshot before it, and a longer
one waits. After an archiving the old summaries are used until the new ones are complete. Only the daemon writes the file.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from supervisor import files
from supervisor.adapters.durable import sync
from supervisor.adapters.journal.schema import beside, new_file, opened, transaction
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.adapters.threads import give_way
from supervisor.model.facts import JournalRestored, JournalSalvaged
from supervisor.reports.digest import Digest, Later
from supervisor.reports.incidents import Facts
from supervisor.reports.kept import Chunk
from supervisor.reports.ledger import NotCovered

log = structlog.get_logger()
T = TypeVar("T")

# A file is of another version if the code of the folds was another one: nobody has to remember to raise a number.
_CODE: Final = (
    *(f"reports/{name}.py" for name in ("digest", "incidents", "kept", "lanes", "ledger")),
    "policy/upkeep/accounting.py", "adapters/journal/summaries.py",
)  # fmt: skip
VERSION: Final = zlib.crc32(b"".join((Path(__file__).parents[2] / path).read_bytes() for path in _CODE))
_TABLES: Final = (
    """
    CREATE TABLE chunk (
        kind TEXT, owner TEXT, number INTEGER, from_s REAL, to_s REAL, items TEXT, crc INTEGER,
        PRIMARY KEY (kind, owner, number)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX chunk_by_end ON chunk (kind, owner, to_s)",
    "CREATE TABLE rest (version INTEGER, floor INTEGER, seq INTEGER, fact_crc INTEGER, folds TEXT, crc INTEGER) STRICT",
)
_EVERY_FACTS: Final = 2000
_SLICE_FACTS: Final = 200
_REST: Final = 3.0  # seconds of rest for each second of work
_LATE_S: Final = 13 * 3600.0
_WAIT_S: Final = 20.0
_EVERY_S: Final = 600.0


class _Unusable(OSError):
    """The file is missing, damaged, or of another version or journal; the message says why."""


class Summaries:
    """The folds of one journal. Any thread may ask; no answer waits for the reading of another one's window."""

    def __init__(self, journal: str | Path, *, writes: bool) -> None:
        self._journal, self._writes = Path(journal), writes
        self._lock, self._outdated, self._known = threading.Lock(), threading.Event(), threading.Event()
        self._tended = self._opened = False
        self._file: _File | None = None
        self._digest: Digest | None = None
        self._late: Digest | None = None  # in use while the whole is being made

    def begin(self) -> None:
        """Keep the file up to date from now on, in a thread of its own: neither the start nor a request waits for it."""
        self._tended = True
        threading.Thread(target=self._tend, name="summaries", daemon=True).start()

    def ask(self, question: Callable[[Digest, Facts], Later[T]]) -> T:
        """The answer of the folds up to the newest fact. Raises OSError if the journal cannot be read.

        While the thread makes the folds, those of the newest facts answer. If `question` raises NotCovered on them, it
        waits for the others; after a while it raises OSError.
        """
        give_way()
        with self.reader() as reader:
            for folds in (self._whole, self._newest, self._made_now):
                file = self._file
                try:
                    with self._lock:
                        digest, file = folds(reader), self._file
                        later = digest and question(digest, reader.rows)
                        taken_back = file and file.taken_back
                    if later:
                        found = later()
                        if not file or file.taken_back == taken_back:
                            return found
                        return self.ask(question)  # a part of what `later` has read may be of other facts
                except NotCovered:
                    continue
                except _Unusable as error:
                    with self._lock:
                        if self._file is file:
                            self._lose(str(error))
        if self._known.wait(_WAIT_S):
            return self.ask(question)
        raise OSError("the record is still being read: windows of up to 12 hours are answered now, longer ones in a minute")

    def reader(self) -> JournalReader:
        """A reader of the journal; close it soon."""
        return JournalReader(self._journal, may_copy=not self._writes)

    def _whole(self, reader: JournalReader) -> Digest | None:
        """The folds of all facts; None: they are not made yet. Raises _Unusable."""
        path = path_of(self._journal)
        if not self._opened and path.exists():
            self._opened = True
            file = _File(path, "rw" if self._writes else "ro")
            self._use(file, file.folds(reader))
        if self._file is not None and self._file.floor != reader.floor():
            self._outdated.set()
        return None if self._digest is None else _grown(self._digest, reader)

    def _newest(self, reader: JournalReader) -> Digest | None:
        """The folds from a snapshot on, for windows of up to 12 hours; None: there is no such snapshot."""
        if self._late is None:
            end = reader.search(0, (), None, -1)
            first = reader.snapshot_before(end[0].at_s - _LATE_S) if end else None
            if first is None:
                return None
            self._late = Digest(late=True)
            self._late.add(reader.rows([first])[first])
        try:
            return _grown(self._late, reader)
        except _Unusable:
            self._late = None
            return None

    def _made_now(self, reader: JournalReader) -> Digest | None:
        return None if self._tended else self._use(*self._made(reader))

    def _use(self, file: _File | None, digest: Digest) -> Digest:
        self._file, self._digest, self._late = file, digest, None
        self._known.set()
        return digest

    def _lose(self, why: str) -> None:
        if self._writes:
            log.warning("summaries_made_again", journal=str(self._journal), why=why)
        self._file = self._digest = self._late = None
        self._known.clear()
        self._outdated.set()

    def _made(self, reader: JournalReader) -> tuple[_File | None, Digest]:
        """The folds of the whole journal, in a new file, or in memory if it cannot be written."""
        path, digest = path_of(self._journal), Digest()
        aside, file = beside(path, ".building"), None
        try:
            if self._writes:
                file = _File.new(aside, reader.floor())
                digest = Digest(file)
            self._fold(digest, reader, file)
            if file is not None:
                file.save(digest, reader)
                sync(aside)
                files.make_room(path)
                aside.replace(path)
                sync(path.parent)
                file.moved(path)
        except (OSError, sqlite3.Error) as error:
            log.warning("summaries_not_written", error=str(error))
            file, digest = None, Digest()
            self._fold(digest, reader, None)
        return file, digest

    def _fold(self, digest: Digest, reader: JournalReader, file: _File | None) -> None:
        """Fold the whole journal. In the background it takes a quarter of a processor: training and healing come first."""
        began_s = time.thread_time()
        for number, stamped in enumerate(reader.read(), 1):
            digest.add(stamped)
            if file is not None and number % _EVERY_FACTS == 0:
                file.save(digest, None)
            if self._tended and number % _SLICE_FACTS == 0:
                time.sleep(_REST * (time.thread_time() - began_s))
                give_way()
                began_s = time.thread_time()

    # --- the daemon's thread -----------------------------------------------------------------------------------------

    def _tend(self) -> None:
        while True:
            self._care()
            self._outdated.wait(_EVERY_S if self._known.is_set() else _WAIT_S)

    def _care(self) -> None:
        try:
            self._save()
            if self._file is None or self._outdated.is_set():
                self._renew()
        except (OSError, sqlite3.Error) as error:
            log.warning("summaries_not_written", error=str(error))
            with self._lock:  # items that have left the memory may not be in the file
                self._file, self._digest, self._opened = None, None, False
                self._known.clear()

    def _save(self) -> None:
        with self._lock, self.reader() as reader:
            try:
                digest = self._whole(reader)
                if digest and self._file and digest.seq >= self._file.saved_seq + _EVERY_FACTS:
                    self._file.save(digest, reader)
            except _Unusable as error:
                self._lose(str(error))

    def _renew(self) -> None:
        """Make a new file while the old one, or the newest facts, answer."""
        self._outdated.clear()
        with self.reader() as reader:
            found = self._made(reader)
        with self._lock:
            self._use(*found)


def _grown(digest: Digest, reader: JournalReader) -> Digest:
    """The folds after the newest fact. Raises _Unusable if they are of facts that a restored journal may lack."""
    began = digest.seq
    for stamped in reader.read(began):
        if began and isinstance(stamped.fact, JournalSalvaged | JournalRestored):
            raise _Unusable("the journal was restored")
        digest.add(stamped)
    return digest


class _File:
    """The open file (`reports.kept.Kept`). Reading raises _Unusable, writing OSError or sqlite3.Error."""

    def __init__(self, path: Path, mode: str) -> None:
        with _usable():
            files.require_regular(path)
            self._db = opened(path, f"mode={mode}")
        self.floor = self.saved_seq = self.taken_back = 0

    @staticmethod
    def new(path: Path, floor: int) -> _File:
        """An empty file. It is synced only at its end."""
        new_file(path)
        out = _File(path, "rw")
        out.floor = floor
        out._db.execute("PRAGMA synchronous = OFF")
        for statement in _TABLES:
            out._db.execute(statement)
        return out

    def moved(self, path: Path) -> None:
        """Go on under another name: SQLite derives the name of its log from it."""
        self._db.close()
        self._db = _File(path, "rw")._db

    def folds(self, reader: JournalReader) -> Digest:
        """The rest of the folds, as of the last `save`."""
        with _usable():
            found = self._db.execute("SELECT version, floor, seq, fact_crc, folds, crc FROM rest").fetchone()
        if found is None or found[0] != VERSION:
            raise _Unusable("another version wrote them")
        _, self.floor, self.saved_seq, fact_crc, folds, crc = found
        if zlib.crc32(folds.encode()) != crc:
            raise _Unusable("they are damaged")
        if (self.floor, fact_crc) != (reader.floor(), reader.crc(self.saved_seq)):
            raise _Unusable("they are of another journal")
        return Digest.of_json(json.loads(folds), self, reader.rows)

    def save(self, digest: Digest, reader: JournalReader | None) -> None:
        """Write what is over in the folds, and their rest. No `reader`: without the rest, which only a whole file needs."""
        with transaction(self._db):
            self._db.executemany("INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?)", map(_row, digest.seal()))
            if reader is not None:
                folds = json.dumps(digest.as_json(), separators=(",", ":"))
                rest = VERSION, self.floor, digest.seq, reader.crc(digest.seq), folds, zlib.crc32(folds.encode())
                self._db.execute("DELETE FROM rest")
                self._db.execute("INSERT INTO rest VALUES (?, ?, ?, ?, ?, ?)", rest)
        self.saved_seq = digest.seq

    # --- `Kept` ------------------------------------------------------------------------------------------------------

    def overlapping(self, kind: str, owner: str, since_s: float, until_s: float, below: int) -> Iterator[Chunk]:
        query = "SELECT number FROM chunk WHERE kind = ? AND owner = ? AND +number < ? AND to_s >= ? AND from_s <= ?"
        with _usable():
            numbers = self._db.execute(query, (kind, owner, below, since_s, until_s)).fetchall()
        for (number,) in sorted(numbers):
            yield from self._chunks(kind, owner, below, "number = ?", number)

    def beside(self, kind: str, owner: str, at_s: float, below: int) -> list[Chunk]:
        last = self._chunks(kind, owner, below, "to_s <= ? ORDER BY to_s DESC, number DESC LIMIT 1", at_s)
        return last + self._chunks(kind, owner, below, "to_s > ? ORDER BY to_s, number LIMIT 1", at_s)

    def newest(self, kind: str, owner: str, below: int) -> Chunk:
        self.taken_back += 1
        for chunk in self._chunks(kind, owner, below, "number = ?", below - 1):
            return chunk
        raise _Unusable("a part is missing")

    def _chunks(self, kind: str, owner: str, below: int, where: str, *values: float) -> list[Chunk]:
        query = f"SELECT * FROM chunk WHERE kind = ? AND owner = ? AND +number < ? AND {where}"  # noqa: S608  constants
        give_way()
        with _usable():
            rows = self._db.execute(query, (kind, owner, below, *values)).fetchall()
        return [_chunk(row) for row in rows]


def _row(chunk: Chunk) -> tuple[Any, ...]:
    items = json.dumps(chunk.items, separators=(",", ":"))
    plain = chunk.kind, chunk.owner, chunk.number, float(chunk.from_s), float(chunk.to_s)
    return (*plain, items, zlib.crc32(f"{plain!r}{items}".encode()))


def _chunk(row: tuple[Any, ...]) -> Chunk:
    if zlib.crc32(f"{row[:5]!r}{row[5]}".encode()) != row[6]:
        raise _Unusable("they are damaged")
    kind, owner, number, from_s, to_s, items, _ = row
    return Chunk(kind, owner, number, from_s, to_s, json.loads(items))


@contextlib.contextmanager
def _usable() -> Generator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise _Unusable(str(error)) from error


def path_of(journal: Path) -> Path:
    return journal.with_name("summaries.sqlite")
