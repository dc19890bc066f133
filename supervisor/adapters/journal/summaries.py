"""The folds over the journal for the pages (`reports/digest.py`), and a file that keeps what is over in them.

`summaries.sqlite` beside the journal has chunks of finished items, and the rest of the folds after one fact. A reader of it
folds only the facts after that one. So a page costs what its window holds, and memory does not grow with the record.

The file may be removed at any time: it is then made again from the journal, and the log says so. The same happens if it is
damaged (each row has a CRC), of another version, or of another journal: one that was restored, salvaged or archived since.
After an archiving the old summaries are used until the new ones are complete. Only the daemon writes the file.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import structlog

from supervisor import files
from supervisor.adapters.durable import sync
from supervisor.adapters.journal.schema import beside, new_file, transaction
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.model.facts import JournalRestored, JournalSalvaged
from supervisor.reports.digest import Digest
from supervisor.reports.incidents import Facts
from supervisor.reports.kept import Chunk

log = structlog.get_logger()
T = TypeVar("T")

VERSION: Final = 1  # of the file. Raise it with every change of what the folds of `reports/digest.py` find.
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
_EVERY_S: Final = 600.0
_BUSY_S: Final = 5.0


class _Unusable(OSError):
    """The file is missing, damaged, or of another version or journal; the message says why."""


class Summaries:
    """The folds of one journal. Any thread may ask; one at a time gets an answer."""

    def __init__(self, journal: str | Path, *, writes: bool) -> None:
        self._journal, self._writes = Path(journal), writes
        self._lock, self._outdated = threading.Lock(), threading.Event()
        self._file: _File | None = None
        self._digest: Digest | None = None

    def begin(self) -> None:
        """Keep the file up to date from now on, in a thread of its own: neither the start nor a request waits for it."""
        threading.Thread(target=self._tend, name="summaries", daemon=True).start()

    def ask(self, question: Callable[[Digest, Facts], T]) -> T:
        """The answer of the folds up to the newest fact. Raises OSError if the journal cannot be read."""
        with self._lock, self._reader() as reader:
            try:
                return question(self._up_to_date(reader), reader.rows)
            except _Unusable as error:
                self._make_again(reader, str(error))
                return question(self._up_to_date(reader), reader.rows)

    def _reader(self) -> JournalReader:
        return JournalReader(self._journal, may_copy=not self._writes)

    def _up_to_date(self, reader: JournalReader) -> Digest:
        if self._digest is None:
            self._file, self._digest = _opened(self._journal, reader, writes=self._writes)
        elif self._file is not None and self._file.floor != reader.floor():
            self._outdated.set()
        digest, began = self._digest, self._digest.seq
        for stamped in reader.read(began):
            if began and isinstance(stamped.fact, JournalSalvaged | JournalRestored):
                raise _Unusable("the journal was restored")
            digest.add(stamped)
        return digest

    def _make_again(self, reader: JournalReader, why: str) -> None:
        if self._writes:
            log.warning("summaries_made_again", journal=str(self._journal), why=why)
        self._file, self._digest = _made(self._journal, reader) if self._writes else (None, Digest())

    # --- the daemon's thread -----------------------------------------------------------------------------------------

    def _tend(self) -> None:
        while True:
            self._care()
            self._outdated.wait(_EVERY_S)

    def _care(self) -> None:
        try:
            self._save()
            if self._file is None or self._outdated.is_set():
                self._renew()
        except (OSError, sqlite3.Error) as error:
            log.warning("summaries_not_written", error=str(error))
            with self._lock:  # items that have left the memory may not be in the file
                self._file = self._digest = None

    def _save(self) -> None:
        with self._lock, self._reader() as reader:
            digest = self._up_to_date(reader)
            if self._file is not None and digest.seq >= self._file.saved_seq + _EVERY_FACTS:
                self._file.save(digest, reader)

    def _renew(self) -> None:
        """Make a new file while the old one answers."""
        self._outdated.clear()
        with self._reader() as reader:
            file, digest = _made(self._journal, reader)
        with self._lock:
            self._file, self._digest = file, digest


class _File:
    """The open file (`reports.kept.Kept`). Reading raises _Unusable, writing OSError or sqlite3.Error."""

    def __init__(self, path: Path, mode: str) -> None:
        with _usable():
            files.require_regular(path)
            uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
            self._db = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self.floor, self.saved_seq = 0, 0

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

    def save(self, digest: Digest, reader: JournalReader) -> None:
        """Write what is over in the folds, and their rest."""
        chunks = digest.seal()
        folds = json.dumps(digest.as_json(), separators=(",", ":"))
        rest = VERSION, self.floor, digest.seq, reader.crc(digest.seq), folds, zlib.crc32(folds.encode())
        with transaction(self._db):
            self._db.executemany("INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?)", map(_row, chunks))
            self._db.execute("DELETE FROM rest")
            self._db.execute("INSERT INTO rest VALUES (?, ?, ?, ?, ?, ?)", rest)
        self.saved_seq = digest.seq

    # --- `Kept` ------------------------------------------------------------------------------------------------------

    def overlapping(self, kind: str, owner: str, since_s: float, until_s: float, below: int) -> list[Chunk]:
        return self._chunks(kind, owner, below, "to_s >= ? AND from_s <= ? ORDER BY +number", since_s, until_s)

    def beside(self, kind: str, owner: str, at_s: float, below: int) -> list[Chunk]:
        last = self._chunks(kind, owner, below, "to_s <= ? ORDER BY to_s DESC, number DESC LIMIT 1", at_s)
        return last + self._chunks(kind, owner, below, "to_s > ? ORDER BY to_s, number LIMIT 1", at_s)

    def newest(self, kind: str, owner: str, below: int) -> Chunk:
        for chunk in self._chunks(kind, owner, below, "number = ?", below - 1):
            return chunk
        raise _Unusable("a part is missing")

    def _chunks(self, kind: str, owner: str, below: int, where: str, *values: float) -> list[Chunk]:
        query = f"SELECT * FROM chunk WHERE kind = ? AND owner = ? AND +number < ? AND {where}"  # noqa: S608  constants
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
    """The file with the summaries of a journal."""
    return journal.with_name("summaries.sqlite")


def _opened(journal: Path, reader: JournalReader, *, writes: bool) -> tuple[_File | None, Digest]:
    """The file and its folds. Raises _Unusable."""
    path = path_of(journal)
    if not path.exists():
        return _made(journal, reader) if writes else (None, Digest())
    file = _File(path, "rw" if writes else "ro")
    return file, file.folds(reader)


def _made(journal: Path, reader: JournalReader) -> tuple[_File | None, Digest]:
    """A new file of the whole journal; none if it cannot be written."""
    path = path_of(journal)
    aside = beside(path, ".building")
    try:
        file = _File.new(aside, reader.floor())
        digest = _folded(reader, file)
        file.save(digest, reader)
        sync(aside)
        files.make_room(path)
        aside.replace(path)
        sync(path.parent)
        file.moved(path)
    except (OSError, sqlite3.Error) as error:
        log.warning("summaries_not_written", error=str(error))
        return None, Digest()
    return file, digest


def _folded(reader: JournalReader, file: _File) -> Digest:
    """The fold of the whole journal. It takes half of the time only: the deciding thread needs the processor, too."""
    digest, began_s = Digest(file), time.thread_time()
    for number, stamped in enumerate(reader.read(), 1):
        digest.add(stamped)
        if number % _EVERY_FACTS == 0:
            file.save(digest, reader)
            time.sleep(time.thread_time() - began_s)
            began_s = time.thread_time()
    return digest
