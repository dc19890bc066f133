"""The journal's spare: a verified copy of it every hour, and each fact since then once more as text.

A journal that is damaged, cut or removed is built again from its readable rows and from these two (`sqlite.salvage`):

* `journal-copy/journal.sqlite`: made by SQLite's backup beside the running writer. It gets its name only after it was
  synced and read back: SQLite's own check, and each row's CRC. So a damaged journal never replaces the last good copy.
* `journal-copy/since-<first number>.jsonl`: each committed row, one a line with its CRC, as in the archive. `append` writes
  it after the commit and before it acknowledges the facts. It is not synced: that would double the cost of each commit, and
  the journal itself is synced. Only a power cut *and* damage within half a minute of it lose a fact here.

A copy that is damaged shows that the journal is: `journal-copy/damaged` notes the reason until a later copy is good. The
next start then checks the whole journal, of which it otherwise reads only the newest part.

A new file of text begins with each daemon and after 1 MB. Those that the copy covers are removed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from supervisor import files
from supervisor.adapters.durable import replace, sync, write_all
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.schema import COLUMNS, Row, beside, crc_of, row_of

log = structlog.get_logger()

_FILE_BYTES: Final = 2**20
_PAGE_ROWS: Final = 1000
_PAUSE_S: Final = 0.02  # after so many rows: healing goes first


def folder(journal: Path) -> Path:
    """The directory of a journal's spare."""
    return journal.with_name("journal-copy")


class Since:
    """Writes each committed row once more."""

    def __init__(self, journal: Path) -> None:
        self._directory = folder(journal)
        self._fd = -1

    def write(self, rows: Sequence[Row]) -> None:
        """Never fails: the journal has these rows. The next copy covers what is missing here."""
        try:
            now = None if self._fd < 0 else os.fstat(self._fd)
            if now is None or now.st_nlink == 0 or now.st_size > _FILE_BYTES:
                self._begin(rows[0][0])
            write_all(self._fd, b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        except OSError as error:
            log.warning("journal_spare_not_written", error=str(error))
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _begin(self, first: int) -> None:
        self.close()
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._fd = files.open_own(self._directory / f"since-{first:012d}.jsonl", os.O_WRONLY | os.O_APPEND)


def found_defect(journal: Path) -> bool:
    """Whether the journal was damaged when it was last copied."""
    return _note(journal).exists()


def _note(journal: Path) -> Path:
    return folder(journal) / "damaged"


def renew(journal: Path, pause: Callable[[float], object] = lambda _: None) -> str:
    """Copy the journal. Returns its defect, if it has one; the last copy then stays. Raises OSError if there is no copy.

    `pause` waits between two parts of the check.
    """
    directory, texts = folder(journal), _texts(journal)
    copy = directory / journal.name
    if shutil.disk_usage(journal.parent).free < 2 * journal.stat().st_size:
        raise OSError(errno.ENOSPC, "there is no room for a copy of the journal", str(directory))
    files.make_room(directory, files.DIRECTORY, follow=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    aside = beside(copy, ".building")
    schema.new_file(aside)
    try:
        schema.copy_database(journal, aside)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise OSError(f"{aside}: {error}") from error
    sync(aside)
    try:
        last = _verified(aside, pause)
    except (ValueError, sqlite3.Error) as error:
        aside.unlink()
        replace(_note(journal), f"{error}\n".encode(), aside=beside(_note(journal), ".building"))
        return str(error)
    files.make_room(copy)
    aside.replace(copy)
    _note(journal).unlink(missing_ok=True)
    sync(directory)
    for text, following in itertools.pairwise(texts):
        if _first(following) <= last + 1:
            text.unlink(missing_ok=True)
    return ""


def _verified(copy: Path, pause: Callable[[float], object]) -> int:
    """The number of its last fact. Raises ValueError or sqlite3.Error if anything in it is damaged."""
    with contextlib.closing(sqlite3.connect(copy)) as db:
        if defect := schema.defect(db):
            raise ValueError(defect)
        last = 0
        rows = db.execute(f"SELECT {COLUMNS} FROM fact ORDER BY seq")  # noqa: S608  constants only
        while page := rows.fetchmany(_PAGE_ROWS):
            for row in page:
                last = row[0]
                if crc_of(row) != row[7]:
                    raise ValueError(f"row {last}: its CRC does not match")
            pause(_PAUSE_S)
    return last


def last_seq(journal: Path) -> int:
    """The number of the newest fact in the text; zero if there is none."""
    for text in reversed(_texts(journal)):
        if numbers := [row[0] for row in _lines(text)]:
            return max(numbers)
    return 0


def rows(journal: Path) -> tuple[int, dict[int, Row]]:
    """(floor, every row of the spare by its number)."""
    floor, _, found = readable(folder(journal) / journal.name)
    return floor, {**found, **{row[0]: row for text in _texts(journal) for row in _lines(text)}}


def readable(path: Path) -> tuple[int, int | None, dict[int, Row]]:
    """`readable_in` of a file; without one, nothing."""
    if not path.exists() or path.stat().st_size == 0:  # SQLite would remove the WAL of an empty file
        return 0, None, {}
    with contextlib.closing(schema.opened(path)) as db:
        return readable_in(db)


def readable_in(db: sqlite3.Connection) -> tuple[int, int | None, dict[int, Row]]:
    """(floor, number of the last row, or None if SQLite cannot read it, every row with the right CRC by its number).

    SQLite stops at a damaged page. So it reads from both ends, and only what lies between two damaged pages is missing.
    """
    floor, last, found = 0, None, dict[int, Row]()
    before, db.text_factory = db.text_factory, lambda data: data.decode(errors="replace")
    for order in ("DESC", "ASC"):
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):  # the latter of a message that quotes a damaged name
            for row in db.execute(f"SELECT {COLUMNS} FROM fact ORDER BY seq {order}"):  # noqa: S608  constants only
                last = row[0] if last is None and order == "DESC" else last
                if crc_of(row) == row[7]:
                    found[row[0]] = row
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
        floor = schema.floor(db)
    db.text_factory = before
    return floor, last, found


def _texts(journal: Path) -> list[Path]:
    return sorted(folder(journal).glob("since-*.jsonl"))


def _first(text: Path) -> int:
    number = text.stem.removeprefix("since-")
    return int(number) if number.isdecimal() else 0


def _lines(text: Path) -> Iterator[Row]:
    """Every whole row of one file: its last lines may be torn or zeros after a power cut."""
    with contextlib.suppress(OSError), os.fdopen(files.open_regular(text), "rb") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                yield row_of(line)
