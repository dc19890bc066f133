"""The folds over the journal for the pages (`reports/digest.py`), and a file that keeps them: the table by day.

`summaries.json` beside the journal has the folds after one fact. A reader of it folds only the facts after that one. Time
older than a week is merged by day, so neither the file nor the memory grows with the record. Days stay in the table when
their facts move to the archive.

The file may be removed at any time: it is then made again from the journal, and begins where the journal begins. The same
happens if it is damaged (it has a CRC), of another version, or of another journal, one that was restored or salvaged since;
the log says so. Only the daemon writes the file. It first folds what follows a snapshot that is a day old, which takes a
moment: pages have that, and say that earlier days are not counted yet. Its thread then folds everything, aside.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from supervisor import files
from supervisor.adapters import durable
from supervisor.adapters.host.clock import local_zone
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.adapters.threads import Lasting, give_way
from supervisor.model.facts import JournalRestored, JournalSalvaged, Stamped
from supervisor.reports.digest import Digest

log = structlog.get_logger()
T = TypeVar("T")

# A file is of another version if the code of the folds was another one: nobody has to remember to raise a number.
_CODE: Final = (
    *(f"reports/{name}.py" for name in ("accounts", "digest", "incidents", "lanes", "ledger")),
    "policy/upkeep/accounting.py", "adapters/summaries.py",
)  # fmt: skip
VERSION: Final = zlib.crc32(b"".join((Path(__file__).parents[1] / path).read_bytes() for path in _CODE))
_EVERY_FACTS: Final = 2000
_SLICE_FACTS: Final = 200
_REST: Final = 3.0  # of the thread that folds everything: it takes a quarter of a processor
_EVERY_S: Final = 120.0
_AT_ONCE_S: Final = 25 * 3600.0  # a day, also the longest of the year: dashboards and the daily report lack nothing
_MOST_BYTES: Final = 2**30
_PIECE: Final = 500  # items


class Summaries:
    """The folds of one journal. Any thread may ask."""

    def __init__(self, journal: str | Path, *, writes: bool) -> None:
        self._journal, self._writes = Path(journal), writes
        self._lock, self._tended, self._saved_seq = threading.Lock(), False, 0
        self._digest: Digest | None = None

    def begin(self) -> None:
        """Keep the file up to date from now on, in a thread of its own: neither the start nor a request waits for it."""
        self._tended = True
        Lasting("summaries", self._tend, lambda: False).start()

    def ask(self, question: Callable[[Digest], T]) -> T:
        """The answer of the folds up to the newest fact. Raises OSError if the journal cannot be read."""
        give_way()
        with self._lock, self.reader() as reader:
            return question(self._up_to_date(reader))

    def rows(self, numbers: Sequence[int]) -> dict[int, Stamped]:
        """The facts of these numbers that the journal still has."""
        with self.reader() as reader:
            return reader.rows(numbers)

    def reader(self) -> JournalReader:
        """A reader of the journal; close it soon."""
        return JournalReader(self._journal, may_copy=not self._writes)

    def _up_to_date(self, reader: JournalReader) -> Digest:
        """The folds after the newest fact. Those of the file, unless they are of facts that the journal lacks."""
        if self._digest is None:
            self._digest = self._first(reader)
        if not _grown(self._digest, reader):
            if self._writes:
                log.warning("summaries_made_again", journal=str(self._journal), why="the journal was restored")
                path_of(self._journal).unlink(missing_ok=True)
            self._digest, self._saved_seq = self._anew(reader), 0
        return self._digest

    def _first(self, reader: JournalReader) -> Digest:
        """The folds of the file, else of the journal."""
        try:
            return self._read(reader)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            if self._writes:
                log.warning("summaries_made_again", journal=str(self._journal), why=str(error))
        return self._anew(reader)

    def _anew(self, reader: JournalReader) -> Digest:
        """The folds of the journal; of its newest part only, if the thread will fold the rest."""
        if not self._tended:
            return _folded(reader.read())
        now_s = max((each.at_s for each in reader.search(0, (), None, -1)), default=0.0)
        first = next(reader.read(), None)  # before the newest: a first fact may be written between the two looks
        digest = _folded(newest := reader.since_snapshot(now_s - _AT_ONCE_S))
        if first is not None and first.seq < newest[0].seq:
            digest.ledger.first_s, digest.ledger.counted_s = first.at_s, newest[0].at_s
        return digest

    # --- the file ----------------------------------------------------------------------------------------------------

    def _read(self, reader: JournalReader) -> Digest:
        """Raises FileNotFoundError and other OSErrors, and ValueError: it is damaged, or of another version or journal."""
        head, _, folds = files.read(path_of(self._journal), _MOST_BYTES).partition(b"\n")
        found = durable.json_of(head)
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError("another version wrote them")
        if found.get("crc") != zlib.crc32(folds):
            raise ValueError("they are damaged")
        if found.get("fact_crc") != reader.crc(found.get("seq", 0)):
            raise ValueError("they are of another journal")
        self._saved_seq = found["seq"]
        return Digest.of_json(durable.json_of(folds), reader.rows)

    def _save(self) -> None:
        """Write the file if there are many new facts. Raises OSError."""
        with self._lock, self.reader() as reader:
            digest = self._up_to_date(reader)
            if digest.ledger.counted_s or (self._saved_seq and digest.seq < self._saved_seq + _EVERY_FACTS):
                return
            digest.by_day(local_zone)
            folds = "".join(_pieces(digest.as_json())).encode()
            seq, fact_crc = digest.seq, reader.crc(digest.seq)
        head = {"version": VERSION, "seq": seq, "fact_crc": fact_crc, "crc": zlib.crc32(folds)}
        path = path_of(self._journal)
        durable.replace(path, json.dumps(head).encode() + b"\n" + folds, aside=path.with_name(f"{path.name}.new"))
        self._saved_seq = seq

    # --- the daemon's thread -----------------------------------------------------------------------------------------

    def _tend(self) -> None:
        self._care()
        time.sleep(_EVERY_S)

    def _care(self) -> None:
        try:
            with self._lock, self.reader() as reader:
                digest = self._up_to_date(reader)
            if digest.ledger.counted_s:
                with self.reader() as reader:
                    digest = _folded(reader.read(), _REST)
                with self._lock:
                    self._digest = digest
            self._save()
        except OSError as error:
            log.warning("summaries_not_written", error=str(error))


def _folded(facts: Iterable[Stamped], rest: float = 0.0) -> Digest:
    """The folds of these facts. `rest`: seconds of rest for each second of work, because training and healing come first."""
    digest, began_s = Digest(), time.thread_time()
    for number, stamped in enumerate(facts, 1):
        digest.add(stamped)
        if number % _EVERY_FACTS == 0:
            digest.by_day(local_zone)
        if number % _SLICE_FACTS == 0:
            time.sleep(rest * (time.thread_time() - began_s))
            give_way()
            began_s = time.thread_time()
    return digest


def _grown(digest: Digest, reader: JournalReader) -> bool:
    """Add the newest facts. Returns False if the folds are of facts that a restored journal may lack."""
    began = digest.seq
    for stamped in reader.read(began):
        if began and isinstance(stamped.fact, JournalSalvaged | JournalRestored):
            return False
        digest.add(stamped)
    return True


def _pieces(value: Any) -> Iterator[str]:
    """The value as JSON text, piece by piece: a long call of `json.dumps` would keep the interpreter from healing."""
    give_way()
    if isinstance(value, dict):
        yield "{"
        for number, (name, each) in enumerate(value.items()):
            yield f"{',' if number else ''}{json.dumps(name)}:"
            yield from _pieces(each)
        yield "}"
    elif isinstance(value, list) and len(value) > _PIECE:
        for place in range(0, len(value), _PIECE):
            yield ("," if place else "[") + json.dumps(value[place : place + _PIECE], separators=(",", ":"))[1:-1]
        yield "]"
    else:
        yield json.dumps(value, separators=(",", ":"))


def path_of(journal: Path) -> Path:
    return journal.with_name("summaries.json")
