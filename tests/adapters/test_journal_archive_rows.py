"""Which facts move to the archive, what its files hold, and what is said of a damaged one: small journals, row by row."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import resource
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from leaks import open_files

from supervisor.adapters.journal import archive as journal_archive
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.archive import Compaction, compact, folder, read_archive, read_lasting, since_snapshot
from supervisor.adapters.journal.schema import COLUMNS, crc_of
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.model.codec import MalformedFact, as_text, encode
from supervisor.model.facts import Fact, Finished, HostRebooted, Snapshot, Stamped
from supervisor.model.state import State

MUCH = 2**40
SNAPSHOT = Snapshot("", as_text(State()))


def rebooted(number: int) -> HostRebooted:
    return HostRebooted(f"reboot {number}", "a", "b", "unclean", "boot id", 1.0, 2.0, "light", ("Pong",), {})


def row(item: Stamped) -> schema.Row:
    kind, version, body = encode(item.fact)
    unchecked = (item.seq, item.at_s, item.wall_s, item.boot_id, kind, version, body, 0)
    return (*unchecked[:7], crc_of(unchecked))


def written(path: Path, *facts: Fact, walls: Sequence[float] = ()) -> list[Stamped]:
    """A journal of these facts, each a second after the one before it (or at its own wall time)."""
    times = walls or [float(seq) for seq in range(1, len(facts) + 1)]
    made = [
        Stamped(seq, seq + 0.5, wall_s, "boot", fact) for seq, (fact, wall_s) in enumerate(zip(facts, times, strict=True), 1)
    ]
    schema.build(path, [row(item) for item in made])
    return made


def plain(count: int, length: int = 1) -> list[Fact]:
    return [Finished("x" * length, "p")] * count


def never(_seconds: float) -> bool:
    return False


def all_of(path: Path) -> list[Stamped]:
    with JournalReader(path) as reader:
        return list(reader.read())


def rows_in(path: Path) -> list[int]:
    """The numbers of all rows that the file still has, also of those that nobody reads any more."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [seq for (seq,) in db.execute("SELECT seq FROM fact ORDER BY seq")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


# --- where the cut is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "count"),
    [
        ([], 0), (plain(3), 3), ([SNAPSHOT, *plain(2), SNAPSHOT, *plain(1)], 1),
    ],
)  # fmt: skip
def test_the_facts_since_the_newest_snapshot_are_counted(path: Path, facts: list[Fact], count: int) -> None:
    written(path, *facts)
    assert since_snapshot(path) == count


@pytest.mark.parametrize(
    ("before_wall_s", "cut"),
    [(3.0, None), (3.5, 3), (6.0, 3), (6.5, 6), (99.0, 8)],
)
def test_the_cut_is_at_the_newest_snapshot_that_is_older_than_asked(
    path: Path, before_wall_s: float, cut: int | None
) -> None:
    told = written(path, *plain(2), SNAPSHOT, *plain(2), SNAPSHOT, *plain(1), SNAPSHOT, *plain(1))
    moved = compact(path, before_wall_s=before_wall_s, most_bytes=MUCH, pause=never)
    if cut is None:
        assert moved is None
        assert (all_of(path), folder(path).exists()) == (told, False)
        return
    file = folder(path) / f"facts-000000000001-{cut - 1:012d}.jsonl.gz"
    assert moved == Compaction(file, cut - 1)
    assert (all_of(path), rows_in(path)) == (told[cut - 1 :], list(range(cut, 10)))
    assert list(read_archive(folder(path))) == told[: cut - 1]
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert schema.floor(db) == cut
    assert compact(path, before_wall_s=before_wall_s, most_bytes=MUCH, pause=never) is None, "the snapshot itself stays"


def test_a_snapshot_that_begins_the_journal_has_nothing_before_it(path: Path) -> None:
    told = written(path, SNAPSHOT, *plain(2))
    assert compact(path, before_wall_s=99.0, most_bytes=0, pause=never) is None
    assert all_of(path) == told


def test_a_snapshot_of_an_unset_clock_is_as_old_as_the_newest_before_it(path: Path) -> None:
    facts = [*plain(1), SNAPSHOT, SNAPSHOT, SNAPSHOT, *plain(1)]
    written(path, *facts, walls=[100.0, 100.0, 5.0, 200.0, 200.0])
    assert compact(path, before_wall_s=100.0, most_bytes=MUCH, pause=never) is None
    moved = compact(path, before_wall_s=101.0, most_bytes=MUCH, pause=never)
    assert moved is not None
    assert moved.facts == 2, "the one of 1970 is 1m 40s old, too"


# --- how they move -------------------------------------------------------------------------------------------------------


def test_a_run_that_is_told_to_stop_ends_after_a_slice_and_the_next_one_goes_on(path: Path) -> None:
    told = written(path, *plain(450), SNAPSHOT)
    compact(path, before_wall_s=1e9, most_bytes=MUCH, pause=lambda _: True)
    assert rows_in(path) == list(range(201, 452))
    assert all_of(path) == told[450:]
    compact(path, before_wall_s=0.0, most_bytes=MUCH, pause=lambda _: True)
    assert rows_in(path) == list(range(401, 452))
    compact(path, before_wall_s=0.0, most_bytes=MUCH, pause=never)
    assert rows_in(path) == [451]


def test_a_file_of_the_archive_is_plain_json_that_only_its_owner_can_read(path: Path) -> None:
    told = written(path, *plain(2), SNAPSHOT)
    directory = folder(path)
    directory.mkdir()
    leftover = directory / "facts-000000000001-000000000002.jsonl.gz.building"
    leftover.write_bytes(b"of a run that was killed" * 100)
    leftover.chmod(0o600)
    before, old = open_files(), os.umask(0)
    try:
        moved = compact(path, before_wall_s=1e9, most_bytes=MUCH, pause=never)
    finally:
        os.umask(old)
    assert moved is not None
    assert open_files() <= before
    assert list(directory.iterdir()) == [moved.archive]
    data = moved.archive.read_bytes()
    assert gzip.decompress(data) == b"".join(json.dumps(row(item)).encode() + b"\n" for item in told[:2])
    assert moved.archive.stat().st_mode & 0o777 == 0o600


def test_a_file_that_does_not_read_back_moves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = written(path, *plain(3), SNAPSHOT)

    def loses_a_line(file: Path) -> None:
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        file.write_bytes(gzip.compress(b"".join(lines[1:])))

    monkeypatch.setattr(journal_archive, "sync", loses_a_line)
    with pytest.raises(OSError) as failed:
        compact(path, before_wall_s=1e9, most_bytes=MUCH, pause=never)
    aside = folder(path) / "facts-000000000001-000000000003.jsonl.gz.building"
    assert str(failed.value) == f"{aside}: the archive file does not read back completely, so no facts were moved"
    assert (all_of(path), list(read_archive(folder(path)))) == (told, [])


def test_a_disk_without_room_is_told_with_the_journals_own_name(path: Path) -> None:
    told = written(path, *plain(3), SNAPSHOT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="the journal: disk I/O error") as full:
            compact(path, before_wall_s=1e9, most_bytes=MUCH, pause=never)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert full.value.filename == str(path)
    assert all_of(path) == told


# --- reading it ----------------------------------------------------------------------------------------------------------


def archived(directory: Path, first: int, last: int, facts: Sequence[Stamped] | bytes) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / f"facts-{first:012d}-{last:012d}.jsonl.gz"
    text = facts if isinstance(facts, bytes) else b"".join(json.dumps(row(item)).encode() + b"\n" for item in facts)
    file.write_bytes(gzip.compress(text))
    return file


def stamped(*numbers: int, make: Callable[[int], Fact] = rebooted) -> list[Stamped]:
    return [Stamped(number, number + 0.5, 1.0, "boot", make(number)) for number in numbers]


def test_files_that_overlap_give_each_fact_once_and_in_order(tmp_path: Path) -> None:
    archived(tmp_path, 1, 3, stamped(1, 2, 3))
    archived(tmp_path, 2, 5, stamped(2, 3, 4, 5))
    (tmp_path / "notes.jsonl.gz").write_bytes(b"somebody's own")
    (tmp_path / "facts-6.building").write_bytes(b"not finished")
    assert list(read_archive(tmp_path)) == stamped(1, 2, 3, 4, 5)
    assert list(read_archive(tmp_path, 3)) == stamped(4, 5)
    assert list(read_archive(tmp_path / "none")) == []


GOOD = json.dumps(row(stamped(1)[0])).encode() + b"\n"


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (b"[1, 2]\n", "line 2: not enough values to unpack (expected 8, got 2)"),
        (b"7\n", "line 2: cannot unpack non-iterable int object"),
        (GOOD.replace(b"reboot 1", b"reboot 2"), "line 2: its CRC does not match"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named_with_its_file_and_number(tmp_path: Path, second: bytes, says: str) -> None:
    file = archived(tmp_path, 1, 2, GOOD + second)
    with pytest.raises(MalformedFact) as damaged:
        list(read_archive(tmp_path))
    assert str(damaged.value) == f"{file}, {says}"
    file.write_bytes(gzip.compress(GOOD + b"\xff\n"))
    with pytest.raises(
        MalformedFact, match=f"^{re.escape(str(file))}, after line [01]: 'ascii' codec can't decode byte 0xff"
    ):
        list(read_archive(tmp_path))


def test_a_file_that_is_cut_or_damaged_anywhere_is_one_sentence(tmp_path: Path) -> None:
    file = archived(tmp_path, 1, 40, stamped(*range(1, 41)))
    whole = file.read_bytes()
    for size in (*range(1, len(whole), 37), len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises((OSError, MalformedFact)):
            list(read_archive(tmp_path))
    file.write_bytes(whole[: len(whole) - 9])
    end = "Compressed file ended before the end-of-stream marker was reached"
    with pytest.raises(MalformedFact, match=f"^{re.escape(str(file))}, after line \\d+: {end}$"):
        list(read_archive(tmp_path))
    file.write_bytes(whole[:30] + bytes(200) + whole[230:])
    with pytest.raises(MalformedFact, match=f"^{re.escape(str(file))}, after line 0: Error -3 while decompressing data: "):
        list(read_archive(tmp_path))


def test_of_a_file_only_the_lasting_facts_are_listed_as_far_as_it_can_be_read(path: Path) -> None:
    directory = folder(path)
    mixed = [*stamped(1, 2), *stamped(3, make=lambda _: Finished('"HostRebooted"', "p")), *stamped(4)]
    lines = [json.dumps(row(item)).encode() + b"\n" for item in mixed]
    archived(directory, 1, 4, b"".join(lines))
    archived(directory, 5, 8, b"".join(lines[:1]).replace(b"[1,", b"[5,") + lines[1])  # its first line is damaged
    archived(directory, 9, 9, stamped(9))
    newer = row(stamped(10)[0])
    newer = (*newer[:5], 99, newer[6], 0)
    archived(directory, 10, 11, json.dumps((*newer[:7], crc_of(newer))).encode() + b"\n")
    archived(directory, 12, 13, stamped(12, 13)).rename(directory / "facts-12-x.jsonl.gz")
    (directory / "facts-000000000014-000000000015.jsonl.gz").mkdir()
    own = stamped(9, 16, make=lambda _: SNAPSHOT)

    def told(after_seq: int = 0, kinds: Sequence[str] = ("HostRebooted",)) -> list[int]:
        return [each.seq for each in read_lasting(path, iter(own), after_seq, kinds)]

    assert told() == [1, 2, 4, 9, 16]
    assert told(2) == [4, 9, 16]
    assert told(4) == [9, 16]
    assert told(9) == [16]
    assert told(kinds=("Exited",)) == told(kinds=()) == told(kinds=("HostRebooted", "Exited")) == [9, 16]


def test_a_file_that_changes_is_read_again(path: Path) -> None:
    file = archived(folder(path), 1, 2, stamped(1))
    reboots = ["HostRebooted"]
    assert [each.seq for each in read_lasting(path, iter(()), 0, reboots)] == [1]
    archived(folder(path), 1, 2, stamped(1, 2))
    os.utime(file, ns=(5, 5))
    assert list(read_lasting(path, iter(()), 0, reboots)) == stamped(1, 2)


def test_the_columns_of_a_line_are_those_of_the_table() -> None:
    """A file of the archive outlives the extralife that wrote it."""
    assert COLUMNS == "seq, at_s, wall_s, boot_id, kind, version, body, crc"
    assert crc_of((7, 1.5, 1.7e9, "boot", "Finished", 1, '{"why":"é"}', 0)) == 1_754_364_892
