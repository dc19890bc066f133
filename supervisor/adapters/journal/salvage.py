"""Recovers every row with a correct CRC from a damaged journal, wherever in the file it is.

It searches each page of the file, and each committed page of the WAL, which replaces the file's page. SQLite's own path to
the rows does not matter. So a flipped bit costs only its own row, and a lost page only its own rows. A damaged header, an
index that leads nowhere or a truncated file costs nothing else. Each row carries a CRC over all of its values, so a row
that passes is a fact that was once committed.

The WAL has its own weakness: SQLite silently takes a frame with a wrong checksum for the end, and drops every later commit.
`torn_commits` counts those. One may be the commit that a power cut interrupted, which was never acknowledged. Two cannot
be, because each was on the disk before the next began.

Why not `.recover` of the sqlite3 tool: rented boxes lack the tool, and it does not know the CRC of these rows.
Format: https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from supervisor.adapters.journal.schema import Row, beside, crc_of
from supervisor.files import open_regular
from supervisor.records import dataclass

_PAGE_BYTES: Final = 4096  # SQLite's default, which every journal uses
_LEAF: Final = 0x0D  # type of a leaf page of a table
_HEADER_BYTES: Final = 100  # of page 1
_WAL_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_WAL_MAGIC: Final = 0x377F0682  # the lowest bit is the byte order of the checksum's words
_INTS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes
_COLUMNS: Final = 8
_CERTAIN: Final = 2  # commits after a damaged frame: the first may be an interrupted one, the next cannot


def carve(path: Path) -> dict[int, Row]:
    """Every complete row in the file and its WAL, by number. Raises OSError.

    Either of the two may be missing: a WAL without its database still has its rows.
    """
    return carve_bytes(_bytes(path), _bytes(beside(path, "-wal")))


def _bytes(path: Path) -> bytes:
    try:
        fd = open_regular(path, follow=True)
    except FileNotFoundError:
        return b""
    try:
        return readable_bytes(fd)
    finally:
        os.close(fd)


def readable_bytes(fd: int) -> bytes:
    """The content of an open file, even if it has no name any more. Blocks that the disk cannot read (EIO) are zeros.

    A bad sector costs only the rows in its block: to stop there would lose every page behind it. Raises OSError for any
    other error, and if no block can be read at all: a disk that is away for a moment is no damaged journal.
    """
    blocks = [_block(fd, at) for at in range(0, os.fstat(fd).st_size, _PAGE_BYTES)]
    if blocks and not any(blocks):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return b"".join(bytes(_PAGE_BYTES) if block is None else block for block in blocks)


def _block(fd: int, at: int) -> bytes | None:
    try:
        return os.pread(fd, _PAGE_BYTES, at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def carve_bytes(data: bytes, wal: bytes) -> dict[int, Row]:
    """Like `carve`, from the contents of both files: an open file is readable even without a name."""
    pages = {n + 1: data[at : at + _PAGE_BYTES] for n, at in enumerate(range(0, len(data), _PAGE_BYTES))}
    pages |= _committed(_frames(wal))
    rows = [row for n, page in pages.items() for row in _rows(pages, page, _HEADER_BYTES if n == 1 else 0)]
    return {row[0]: row for row in rows if crc_of(row) == row[7]}


# --- the write-ahead log -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Frame:
    page: int
    commits: bool
    whole: bool  # its checksum continues that of the frame before
    data: bytes


def torn_commits(path: Path) -> int:
    """The number of commits in the current WAL that SQLite does not see, because a damaged frame comes before them."""
    frames = _frames(_bytes(beside(path, "-wal")))
    return sum(frame.commits for frame in frames[_end(frames) :]) if _certainly_torn(frames) else 0


def _end(frames: list[_Frame]) -> int:
    """The index of the frame at which SQLite stops reading."""
    return next((n for n, frame in enumerate(frames) if not frame.whole), len(frames))


def _certainly_torn(frames: list[_Frame]) -> bool:
    """Whether two commits follow each other after a damaged frame, in an unbroken chain of checksums.

    A single commit may be an interrupted one, or one that failed and was overwritten by a shorter one.
    """
    commits = 0
    for frame in frames[_end(frames) :]:
        commits = frame.commits + (commits if frame.whole else 0)
        if commits >= _CERTAIN:
            return True
    return False


def _frames(data: bytes) -> list[_Frame]:
    """The frames of the WAL's current generation, in order, including damaged ones."""
    if len(data) < _WAL_HEADER.size:
        return []
    magic, _, page_bytes, _, *salt, sum0, sum1 = _WAL_HEADER.unpack_from(data)
    if magic & ~1 != _WAL_MAGIC or page_bytes != _PAGE_BYTES:
        return []
    order = ">" if magic & 1 else "<"
    frames = []
    running = sum0, sum1
    for at in range(_WAL_HEADER.size, len(data) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
        page, size, *its_salt, sum0, sum1 = _FRAME.unpack_from(data, at)
        if its_salt != salt:
            break  # a frame of an earlier generation: the current one ends here
        body = data[at + _FRAME.size : at + _FRAME.size + page_bytes]
        whole = _checksum(order, data[at : at + 8] + body, running) == (sum0, sum1)
        frames.append(_Frame(page, size != 0, whole, body))
        running = sum0, sum1  # the stored value: one damaged frame does not invalidate the later ones
    return frames


def _checksum(order: str, data: bytes, running: tuple[int, int]) -> tuple[int, int]:
    sum0, sum1 = running
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        sum0 = (sum0 + first + sum1) & 0xFFFFFFFF
        sum1 = (sum1 + second + sum0) & 0xFFFFFFFF
    return sum0, sum1


def _committed(frames: list[_Frame]) -> dict[int, bytes]:
    """The newest pages of committed transactions. Includes those after a damaged frame if they were surely committed."""
    if not _certainly_torn(frames):
        frames = frames[: _end(frames)]
    pages: dict[int, bytes] = {}
    open_pages: dict[int, bytes] = {}
    for frame in frames:
        open_pages[frame.page] = frame.data
        if frame.commits:
            pages |= open_pages
            open_pages = {}
    return pages


# --- pages and records -------------------------------------------------------------------------------------------------


def _rows(pages: dict[int, bytes], page: bytes, start: int) -> Iterator[Row]:
    if len(page) < start + 8 or page[start] != _LEAF:
        return
    count = int.from_bytes(page[start + 3 : start + 5])
    for at in range(start + 8, min(start + 8 + 2 * count, len(page) - 1), 2):
        try:
            row = _row(pages, page, int.from_bytes(page[at : at + 2]))
        except (IndexError, ValueError, struct.error):
            continue  # a row of another table, or damaged
        if row is not None:
            yield row


def _row(pages: dict[int, bytes], page: bytes, at: int) -> Row | None:
    size, at = _varint(page, at)
    seq, at = _varint(page, at)
    values = list(_values(_payload(pages, page, at, size)))
    if len(values) != _COLUMNS:
        return None
    _, at_s, wall_s, boot_id, kind, version, body, crc = values
    if not all(isinstance(each, str) for each in (boot_id, kind, body)) or None in (at_s, wall_s, version, crc):
        return None
    # SQLite stores a REAL without a fraction as an integer.
    return seq, float(at_s), float(wall_s), boot_id, kind, version, body, crc


def _payload(pages: dict[int, bytes], page: bytes, at: int, size: int) -> bytes:
    """A record, including its part on overflow pages."""
    most = _PAGE_BYTES - 35
    if size <= most:
        return page[at : at + size]
    if size > len(pages) * _PAGE_BYTES:
        raise ValueError("longer than the file")
    least = (_PAGE_BYTES - 12) * 32 // 255 - 23
    local = least + (size - least) % (_PAGE_BYTES - 4)
    local = local if local <= most else least
    parts, left = [page[at : at + local]], size - local
    following = int.from_bytes(page[at + local : at + local + 4])
    while left > 0:
        page = pages.get(following, b"")
        if len(page) < _PAGE_BYTES:
            raise ValueError("a page is missing")
        parts.append(page[4 : 4 + left])
        left -= _PAGE_BYTES - 4
        following = int.from_bytes(page[:4])
    return b"".join(parts)


def _values(record: bytes) -> Iterator[Any]:
    """The columns of a record. Raises IndexError, ValueError or struct.error if it is not a record."""
    end, at = _varint(record, 0)
    body = end
    while at < end:
        kind, at = _varint(record, at)
        if kind == 0:
            yield None
        elif kind in _INTS:
            yield int.from_bytes(record[body : body + _INTS[kind]], signed=True)
            body += _INTS[kind]
        elif kind == 7:
            yield struct.unpack_from(">d", record, body)[0]
            body += 8
        elif kind in {8, 9}:
            yield kind - 8
        elif kind >= 12:
            size = (kind - 12) // 2
            text = record[body : body + size]
            if len(text) < size:
                raise ValueError("cut short")
            yield text.decode() if kind % 2 else text
            body += size
        else:
            raise ValueError(f"serial type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, index after it): seven bits a byte, most significant first; the ninth byte has eight."""
    value = 0
    for length in range(1, 10):
        byte = data[at + length - 1]
        if length == 9:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + length
    raise AssertionError("unreachable")
