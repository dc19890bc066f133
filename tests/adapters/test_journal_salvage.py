"""Rows are found in the bytes of a database and its log as SQLite wrote them, whatever their size, and none that is not there."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
from leaks import open_files

from supervisor.adapters.journal import salvage, schema
from supervisor.adapters.journal.salvage import carve, carve_bytes, torn_commits
from supervisor.adapters.journal.schema import Row, crc_of
from supervisor.adapters.journal.sqlite import Journal, JournalReader
from supervisor.model.facts import Finished

PAGE = 4096
HEADER = 32
FRAME = PAGE + 24


def row(seq: int, body: str, at_s: float = 1.5, wall_s: float = 1.7e9, version: int = 1) -> Row:
    unchecked = (seq, at_s, wall_s, "boot", "Finished", version, body, 0)
    return (*unchecked[:7], crc_of(unchecked))


def built(path: Path, rows: list[Row]) -> Path:
    schema.build(path, rows)
    return path


# --- records and pages -------------------------------------------------------------------------------------------------


def test_a_row_of_any_length_is_read_over_all_of_its_pages(tmp_path: Path) -> None:
    """Around each length at which SQLite keeps less of a row, or more, on its first page, and at which it needs a page more."""
    lengths = [
        *range(3990, 4040),
        *range(4500, 4560),
        *range(8070, 8140),
        *range(8590, 8650),
        *range(12_180, 12_230),
        50_000,
    ]
    rows = [row(seq, "x" * length) for seq, length in enumerate(lengths, 1)]
    assert carve(built(tmp_path / "journal.sqlite", rows)) == {each[0]: each for each in rows}


def test_every_value_that_a_column_can_have_comes_back(tmp_path: Path) -> None:
    seqs = [1, 127, 128, 16_383, 16_384, 2**21, 2**28, 2**35, 2**42, 2**49, 2**56, 2**63 - 1]
    times = [0.0, 1.0, 1.5, -1.0, 127.0, -128.0, 128.0, 2.0**15, 2.0**23, 2.0**31, 2.0**47, 1e300]
    versions = [0, 1, 2, -1, 127, 128, -32_769, 2**23, 2**31, -(2**31) - 1, 2**47, 2**63 - 1]
    rows = [
        row(seq, "é" * n, at_s, 0.0 - at_s, version)
        for n, (seq, at_s, version) in enumerate(zip(seqs, times, versions, strict=True))
    ]
    found = carve(built(tmp_path / "journal.sqlite", rows))
    assert found == {each[0]: each for each in rows}
    assert {type(each) for found_row in found.values() for each in found_row[1:3]} == {float}


def test_a_row_whose_crc_is_another_is_none(tmp_path: Path) -> None:
    good, bad = row(1, "one"), (*row(2, "two")[:7], 5)
    assert carve(built(tmp_path / "journal.sqlite", [good, bad])) == {1: good}


@pytest.mark.parametrize("column", ["at_s", "wall_s", "boot_id", "kind", "version", "body", "crc"])
def test_a_row_without_one_of_its_values_is_none(tmp_path: Path, column: str) -> None:
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE fact (seq INTEGER PRIMARY KEY, at_s, wall_s, boot_id, kind, version, body, crc)")
        db.execute("CREATE TABLE short (seq INTEGER PRIMARY KEY, at_s, wall_s, boot_id, kind, version, body)")
        db.execute("INSERT INTO short VALUES (9, 1.5, 1.5, 'boot', 'Finished', 1, '')")
        for each in (row(1, "one"), row(2, "two")):
            db.execute("INSERT INTO fact VALUES (?, ?, ?, ?, ?, ?, ?, ?)", each)
        db.execute(f"UPDATE fact SET {column} = NULL WHERE seq = 2")
    assert carve(path) == {1: row(1, "one")}


@pytest.mark.parametrize(
    ("record", "values"),
    [
        (b"\x01", []), (b"\x02\x00", [None]), (b"\x03\x08\x09", [0, 1]), (b"\x02\x01\xff", [-1]), (b"\x02\x02\x01\x00", [256]),
        (b"\x02\x03\xff\x00\x00", [-65_536]), (b"\x02\x04\x01\x00\x00\x00", [2**24]), (b"\x02\x05\x01\x00\x00\x00\x00\x00", [2**40]),
        (b"\x02\x06\x01" + bytes(7), [2**56]), (b"\x02\x07" + struct.pack(">d", -1.5), [-1.5]),
        (b"\x03\x0c\x0d", [b"", ""]), (b"\x03\x12\x13\x00\x01\x02abc", [b"\x00\x01\x02", "abc"]),
        (b"\x05\x01\x07\x13\x01\x05" + struct.pack(">d", 2.5) + b"abc\x06", [5, 2.5, "abc", 6]),
    ],
)  # fmt: skip
def test_the_columns_of_a_record(record: bytes, values: list[Any]) -> None:
    found = list(salvage._values(record))
    assert found == values
    assert [type(each) for each in found] == [type(each) for each in values]


@pytest.mark.parametrize(
    ("record", "error", "says"),
    [
        (b"\x02\x0a", ValueError, "^serial type 10$"), (b"\x02\x0b", ValueError, "^serial type 11$"),
        (b"\x02\x12\x00\x01", ValueError, "^cut short$"), (b"\x02\x07abc", struct.error, "requires a buffer"),
        (b"\x02\x0f\xff", ValueError, "invalid start byte"), (b"", IndexError, "out of range"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(record: bytes, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        list(salvage._values(record))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0), (b"\x7f", 127), (b"\x81\x00", 128), (b"\xff\x7f", 2**14 - 1), (b"\x81\x80\x00", 2**14),
        (b"\xff" * 7 + b"\x7f", 2**56 - 1), (b"\x80" * 7 + b"\x81\x00", 2**8), (b"\x80" * 8 + b"\x80", 128),
        (b"\x80" * 8 + b"\x01", 1), (b"\xff" * 9, 2**64 - 1),
    ],
)  # fmt: skip
def test_numbers_of_one_to_nine_bytes(data: bytes, value: int) -> None:
    assert salvage._varint(b"\x55" + data + b"\x55", 1) == (value, 1 + len(data))


def test_pages_that_hold_no_rows_are_passed_over(tmp_path: Path) -> None:
    rows = [row(seq, "x" * 50) for seq in range(1, 200)]
    data = built(tmp_path / "journal.sqlite", rows).read_bytes()
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    assert carve_bytes(b"", b"") == {}
    for junk in (b"\x0d", b"\x0d" + bytes(7), b"\x0d" + bytes(6), b"\x0d\0\0\xff\xff\0\0\0", b"\x0d" + b"\xff" * (PAGE - 1)):
        assert carve_bytes(data + junk, b"") == {each[0]: each for each in rows}
    for n, page in enumerate(pages[1:], 1):
        own = carve_bytes(bytes(PAGE) + page, b"")
        other_kind = carve_bytes(b"".join([*pages[:n], b"\x05" + page[1:], *pages[n + 1 :]]), b"")
        assert other_kind == {each[0]: each for each in rows if each[0] not in own}, "only a leaf of a table holds rows"


# --- the write-ahead log -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A daemon killed with 5 facts in the file and 15 commits in the log; the 10th and the last need several pages."""
    directory = tmp_path_factory.mktemp("dead")
    live, path = directory / "live.sqlite", directory / "journal.sqlite"
    with contextlib.closing(Journal(live)) as journal:
        for number in range(1, 21):
            if number == 6:
                journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            why = "x" * 10_000 if number in {10, 20} else "x"
            journal.append([Finished(why, f"p{number}")], at_s=number + 0.5, wall_s=1.7e9, boot_id="boot")
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{live}{suffix}", f"{path}{suffix}")
    return path


@pytest.fixture
def path(dead: Path, tmp_path: Path) -> Path:
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{dead}{suffix}", tmp_path / f"journal.sqlite{suffix}")
    return tmp_path / "journal.sqlite"


def log_of(path: Path) -> Path:
    return path.with_name("journal.sqlite-wal")


def commits(wal: bytes) -> list[bool]:
    """Of each frame of the log, whether it ends a commit."""
    return [struct.unpack_from(">I", wal, at + 4)[0] != 0 for at in range(HEADER, len(wal), FRAME)]


def damaged(wal: bytes, *frames: int) -> bytes:
    changed = bytearray(wal)
    for frame in frames:
        changed[HEADER + frame * FRAME + 24 + 8] ^= 1
    return bytes(changed)


def read(path: Path) -> list[int]:
    with JournalReader(path) as reader:
        return [each.seq for each in reader.read()]


def test_each_damaged_frame_hides_the_commits_from_there_on_if_there_are_two(path: Path) -> None:
    wal = log_of(path).read_bytes()
    ends = commits(wal)
    assert (sum(ends), len(ends) > 20) == (15, True)
    for n in range(len(ends)):
        log_of(path).write_bytes(damaged(wal, n))
        hidden = sum(ends[n:])
        assert torn_commits(path) == (hidden if hidden >= 2 else 0), f"frame {n}"


def test_two_commits_prove_damage_only_if_one_follows_the_other_unbroken(path: Path) -> None:
    wal = log_of(path).read_bytes()
    ends = [n for n, commit in enumerate(commits(wal)) if commit]
    for frames, hidden in (((ends[0], ends[2]), 15), ((ends[-2], ends[-1]), 0), ((ends[-3], ends[-1]), 3), ((ends[-1],), 0)):
        log_of(path).write_bytes(damaged(wal, *frames))
        assert torn_commits(path) == hidden, frames
    log_of(path).unlink()
    assert torn_commits(path) == 0


def test_what_lies_behind_a_damaged_frame_is_read_only_if_it_was_surely_committed(path: Path) -> None:
    wal = log_of(path).read_bytes()
    ends = [n for n, commit in enumerate(commits(wal)) if commit]
    everything = set(range(1, 21))
    assert set(carve(path)) == everything
    log_of(path).write_bytes(damaged(wal, ends[-1]))
    assert set(carve(path)) == everything - {20}
    log_of(path).write_bytes(damaged(wal, ends[2]))
    assert set(carve(path)) >= everything - {8}
    log_of(path).write_bytes(wal[: HEADER + (ends[-1]) * FRAME])
    assert set(carve(path)) == everything - {20}, "its last commit has not ended"
    log_of(path).write_bytes(wal[: HEADER + (ends[-2] + 1) * FRAME])
    assert set(carve(path)) == everything - {20}, "it was not begun"
    log_of(path).write_bytes(wal[:-1])
    assert set(carve(path)) == everything - {20}, "one byte is missing"


def checksums(data: bytes, words: str, sums: tuple[int, int]) -> tuple[int, int]:
    """The format of SQLite's log, once more: https://sqlite.org/fileformat2.html#checksum_algorithm."""
    first, second = sums
    values = struct.unpack(f"{words}{len(data) // 4}I", data)
    for n in range(0, len(values), 2):
        first = (first + values[n] + second) % 2**32
        second = (second + values[n + 1] + first) % 2**32
    return first, second


def of_another_machine(wal: bytes) -> bytes:
    """The same log as a processor of the other byte order writes it."""
    magic = struct.unpack_from(">I", wal)[0] ^ 1
    words = ">" if magic & 1 else "<"
    head = struct.pack(">I", magic) + wal[4:24]
    sums = checksums(head, words, (0, 0))
    parts = [head, struct.pack(">2I", *sums)]
    for at in range(HEADER, len(wal), FRAME):
        frame = wal[at : at + FRAME]
        sums = checksums(frame[:8] + frame[24:], words, sums)
        parts += [frame[:16], struct.pack(">2I", *sums), frame[24:]]
    return b"".join(parts)


def test_a_log_of_the_other_byte_order_is_read_as_sqlite_reads_it(path: Path) -> None:
    wal = of_another_machine(log_of(path).read_bytes())
    log_of(path).write_bytes(wal)
    assert (torn_commits(path), set(carve(path))) == (0, set(range(1, 21)))
    first = commits(wal).index(True)
    log_of(path).write_bytes(damaged(wal, first + 1))
    assert torn_commits(path) == 14
    log_of(path).write_bytes(wal)
    assert read(path) == list(range(1, 21))


def test_a_log_whose_header_is_another_is_none(path: Path) -> None:
    wal = log_of(path).read_bytes()
    five = set(range(1, 6))
    for at in (0, 3, 10):  # its magic, and the size of its pages
        changed = bytearray(wal)
        changed[at] ^= 4
        log_of(path).write_bytes(changed)
        assert set(carve(path)) == five
    for length in (0, 31, 32, HEADER + FRAME - 1):
        log_of(path).write_bytes(wal[:length])
        assert set(carve(path)) == five
    log_of(path).write_bytes(wal[:16] + b"another " + wal[24:])  # its salt: all frames are of an earlier generation
    assert (set(carve(path)), torn_commits(path)) == (five, 0)


def test_frames_of_an_earlier_generation_are_not_read(path: Path) -> None:
    """After a checkpoint SQLite writes from the log's beginning, and the old frames stay behind the new ones."""
    wal = bytearray(log_of(path).read_bytes())
    ends = [n for n, commit in enumerate(commits(bytes(wal))) if commit]
    for frame in range(ends[2] + 1, len(commits(bytes(wal)))):
        wal[HEADER + frame * FRAME + 8] ^= 1
    log_of(path).write_bytes(wal)
    assert (set(carve(path)), torn_commits(path)) == (set(range(1, 9)), 0)


# --- reading -----------------------------------------------------------------------------------------------------------


def test_a_log_without_its_database_has_its_rows_and_nothing_stays_open(path: Path) -> None:
    before = open_files()
    path.unlink()
    found = set(carve(path))
    assert found >= {10, 20}
    log_of(path).unlink()
    assert carve(path) == {}
    assert open_files() <= before


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The error number with which the disk answers at each of these bytes."""
    answers: dict[int, int] = {}
    real = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        if at in answers:
            raise OSError(answers[at], os.strerror(answers[at]))
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    return answers


def test_blocks_that_cannot_be_read_are_zeros_as_long_as_one_can(tmp_path: Path, failing: dict[int, int]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * PAGE + b"b" * PAGE + b"c" * 10)
    with path.open("rb") as file:
        assert salvage.readable_bytes(file.fileno()) == path.read_bytes()
        failing[PAGE] = errno.EIO
        assert salvage.readable_bytes(file.fileno()) == b"a" * PAGE + bytes(PAGE) + b"c" * 10
        failing.update({0: errno.EIO, 2 * PAGE: errno.EIO})
        with pytest.raises(OSError) as away:
            salvage.readable_bytes(file.fileno())
        assert away.value.args == (errno.EIO, "Input/output error")
        failing[PAGE] = errno.ENXIO
        with pytest.raises(OSError) as gone:
            salvage.readable_bytes(file.fileno())
        assert gone.value.errno == errno.ENXIO
        os.truncate(path, 0)
        assert salvage.readable_bytes(file.fileno()) == b""
