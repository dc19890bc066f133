"""What the journal says, and all of it: each error of SQLite, each kind of damage, each salvage and each restore, as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from leaks import open_files

from supervisor.adapters.journal import schema
from supervisor.adapters.journal import sqlite as journal_sqlite
from supervisor.adapters.journal.schema import Row, beside, crc_of
from supervisor.adapters.journal.sqlite import (
    Journal,
    JournalDamaged,
    JournalReader,
    JournalRefused,
    as_os_error,
    has_orphan,
    open_or_salvage,
    salvage,
)
from supervisor.model.codec import as_text, encode
from supervisor.model.facts import Fact, Finished, JournalSalvaged, Snapshot, Stamped
from supervisor.model.state import State
from supervisor.ports import JournalMoved, Salvage

BOOT = "boot"
SNAPSHOT = Snapshot("", as_text(State()))


def row(seq: int, fact: Fact | None = None) -> Row:
    kind, version, body = encode(fact or Finished(f"fact {seq}", "p"))
    unchecked = (seq, seq + 0.5, 1.7e9, BOOT, kind, version, body, 0)
    return (*unchecked[:7], crc_of(unchecked))


def stamped(seq: int, fact: Fact | None = None) -> Stamped:
    return Stamped(seq, seq + 0.5, 1.7e9, BOOT, fact or Finished(f"fact {seq}", "p"))


def append(journal: Journal, *facts: Fact) -> list[Stamped]:
    seq = journal.last_seq + 1
    return journal.append(facts or [Finished(f"fact {seq}", "p")], at_s=seq + 0.5, wall_s=1.7e9, boot_id=BOOT)


def read(path: Path, after_seq: int = 0) -> list[Stamped]:
    with JournalReader(path) as reader:
        return list(reader.read(after_seq))


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir() if each.name != "journal-copy")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


# --- errors ------------------------------------------------------------------------------------------------------------


def error_of(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (sqlite3.SQLITE_FULL, errno.ENOSPC), (sqlite3.SQLITE_READONLY, errno.EROFS), (sqlite3.SQLITE_BUSY, errno.EBUSY),
        (sqlite3.SQLITE_CANTOPEN, errno.EACCES), (sqlite3.SQLITE_IOERR, errno.EIO), (sqlite3.SQLITE_NOMEM, errno.ENOMEM),
        (sqlite3.SQLITE_READONLY_DBMOVED, errno.EROFS), (sqlite3.SQLITE_BUSY_SNAPSHOT, errno.EBUSY),
        (sqlite3.SQLITE_IOERR_WRITE, errno.EIO),
    ],
)  # fmt: skip
def test_an_error_of_the_disk_has_its_number_and_the_file(path: Path, code: int, number: int) -> None:
    with pytest.raises(OSError) as failed, as_os_error(path):
        raise error_of(code)
    assert not isinstance(failed.value, JournalDamaged)
    assert (failed.value.args, failed.value.filename) == ((number, "the journal: what SQLite says"), str(path))


def test_a_quota_that_is_used_up_is_no_dead_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_fd: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr("supervisor.adapters.journal.sqlite.os.fsync", refused)
    with pytest.raises(OSError) as failed, as_os_error(path):
        raise error_of(sqlite3.SQLITE_IOERR_WRITE)
    assert (failed.value.args, failed.value.filename) == ((errno.EDQUOT, "the journal: Disk quota exceeded"), str(path))


@pytest.mark.parametrize(
    "error",
    [
        *map(error_of, (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT_INDEX)),
        sqlite3.DatabaseError("what SQLite says"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_can_only_be_damage_is_damage(path: Path, error: Exception) -> None:
    with pytest.raises(JournalDamaged) as damaged, as_os_error(path):
        raise error
    assert (damaged.value.why, str(damaged.value)) == (str(error), f"{path}: the journal is damaged: {error}")
    assert damaged.value.__cause__ is error


@pytest.mark.parametrize("error", [sqlite3.IntegrityError("bug"), sqlite3.ProgrammingError("bug"), KeyError("bug")])
def test_a_bug_stays_what_it_is(path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), as_os_error(path):
        raise error


@pytest.mark.parametrize("opener", [Journal, JournalReader], ids=["the writer", "a reader"])
@pytest.mark.parametrize(
    ("statements", "kind", "says"),
    [
        (("PRAGMA application_id = 7",), JournalDamaged, "the journal is damaged: its header has the application id 0x7"),
        (("PRAGMA user_version = 3",), JournalDamaged, "the journal is damaged: its header says schema 3, its table 2"),
        (("UPDATE about SET value = 1 WHERE name = 'schema'",), JournalDamaged,
         "the journal is damaged: its header says schema 2, its table 1"),
        (("UPDATE about SET value = 1 WHERE name = 'schema'", "PRAGMA user_version = 1"), JournalRefused,
         "the journal has schema 1, this extralife knows 2: start the newer extralife again"),
        (("UPDATE about SET value = 3 WHERE name = 'schema'", "PRAGMA user_version = 3"), JournalRefused,
         "the journal has schema 3, this extralife knows 2: start the newer extralife again"),
        (("UPDATE about SET value = 2 WHERE name = 'floor'",), JournalDamaged,
         "the journal is damaged: it begins at fact 2, which is no snapshot"),
        (("UPDATE about SET value = 9 WHERE name = 'floor'",), JournalDamaged,
         "the journal is damaged: it begins at fact 9, which is no snapshot"),
        (("DROP TABLE about",), JournalDamaged, "the journal is damaged: no such table: about"),
    ],
)  # fmt: skip
def test_each_mistake_of_a_file_is_named(
    path: Path, opener: Callable[[Path], object], statements: Sequence[str], kind: type[OSError], says: str
) -> None:
    schema.build(path, [row(seq) for seq in (1, 2)])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
    before, open_before = path.read_bytes(), open_files()
    with pytest.raises(kind) as told:
        opener(path)
    assert str(told.value) == f"{path}: {says}"
    assert path.read_bytes() == before
    assert open_files() <= open_before


def test_a_row_that_cannot_be_used_is_named(path: Path) -> None:
    bad = (*row(2)[:7], 5)
    newer = (3, 1.0, 1.0, BOOT, "Finished", 99, "{}", 0)
    schema.build(path, [row(1), bad])
    with pytest.raises(JournalDamaged) as damaged:
        read(path)
    assert str(damaged.value) == f"{path}: the journal is damaged: row 2: its CRC does not match"
    schema.build(path, [row(1), (*newer[:7], crc_of(newer))])
    with pytest.raises(JournalRefused, match=f"^{re.escape(str(path))}: row 3: .*99.*: start the newer extralife again$"):
        read(path)


def test_a_reader_of_nothing_and_a_log_without_its_journal(path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        JournalReader(path)
    assert missing.value.args == (errno.ENOENT, f"{path}: there is no journal")
    beside(path, "-wal").touch()
    assert not has_orphan(path), "an empty one holds nothing"
    beside(path, "-wal").write_bytes(b"x")
    assert has_orphan(path)
    with pytest.raises(JournalDamaged) as damaged:
        Journal(path)
    assert damaged.value.why == "the file was removed, and its write-ahead log was left"
    assert names(path) == ["journal.sqlite-wal"]


@pytest.mark.parametrize("length", [999, 1000, 1001, 2000])
def test_pages_of_rows_follow_each_other_without_a_gap(path: Path, length: int) -> None:
    schema.build(path, [row(seq) for seq in range(1, length + 1)])
    assert [each.seq for each in read(path)] == list(range(1, length + 1))
    assert [each.seq for each in read(path, 998)] == list(range(999, length + 1))


def test_what_lies_below_the_floor_is_not_read(path: Path) -> None:
    schema.build(path, [row(1), row(2), row(3, SNAPSHOT), row(4)], floor=3)
    assert [each.seq for each in read(path)] == [each.seq for each in read(path, 2)] == [3, 4]
    assert [each.seq for each in read(path, 3)] == [4]


def test_a_path_may_have_characters_that_mean_something_in_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "a?b%20c#d é&mode=ro"
    directory.mkdir()
    monkeypatch.chdir(directory)
    with contextlib.closing(Journal("journal.sqlite")) as journal:
        told = append(journal)
    assert read(directory / "journal.sqlite") == told
    assert [each.name for each in tmp_path.iterdir()] == [directory.name]


def test_a_reader_may_be_read_and_closed_by_another_thread(path: Path) -> None:
    schema.build(path, [row(1)])
    reader = JournalReader(path)
    found: list[object] = []

    def work() -> None:
        found.extend(reader.read())
        reader.close()
        found.append("closed")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found == [stamped(1), "closed"]


# --- salvage -----------------------------------------------------------------------------------------------------------


def salvaged(path: Path, rows: Sequence[Row], floor: int = 0, seen_seq: int = 0) -> tuple[list[Stamped], Salvage | None]:
    schema.build(path, rows, floor=floor)
    journal, facts, found = open_or_salvage(path, wall_s=77.9, seen_seq=seen_seq)
    assert journal.last_seq == facts[-1].seq
    journal.close()
    assert read(path) == facts
    return facts, found


def test_a_damaged_row_costs_itself_and_the_loss_is_the_last_fact(path: Path) -> None:
    facts, found = salvaged(path, [row(1), (*row(2)[:7], 5), row(3)])
    assert found == Salvage(f"{path}.damaged-77", "row 2: its CRC does not match", 2, 1)
    told = JournalSalvaged(str(found), found.why, found.damaged_path, 2, 1)
    assert facts == [stamped(1), stamped(3), Stamped(4, 3.5, 77.9, BOOT, told)]
    assert [name for name in names(path) if name.startswith("journal.sqlite.")] == ["journal.sqlite.damaged-77"]


@pytest.mark.parametrize(("seen_seq", "seq"), [(0, 4), (3, 4), (4, 5), (9, 10)])
def test_the_number_of_the_loss_is_behind_all_that_were_ever_given(path: Path, seen_seq: int, seq: int) -> None:
    facts, _ = salvaged(path, [row(1), (*row(2)[:7], 5), row(3)], seen_seq=seen_seq)
    assert facts[-1].seq == seq


def test_a_damaged_journal_keeps_its_floor_if_the_snapshot_there_is_whole(path: Path) -> None:
    rows = [row(2), row(3, SNAPSHOT), (*row(4)[:7], 5), row(5)]
    facts, found = salvaged(path, rows, floor=3)
    assert found == Salvage(f"{path}.damaged-77", "row 4: its CRC does not match", 2, 1)
    assert [each.seq for each in facts] == [3, 5, 6]
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert schema.floor(db) == 3
    for name in names(path):
        (path.parent / name).unlink()
    facts, found = salvaged(path, [row(2), (*row(3, SNAPSHOT)[:7], 5), row(4)], floor=3)
    assert found == Salvage(f"{path}.damaged-77", "row 3: its CRC does not match", 2, 2)
    assert [each.seq for each in facts] == [2, 4, 5], "what should be in the archive is better than nothing"


def test_a_row_of_a_newer_extralife_is_kept_and_one_that_never_was_a_fact_is_not(path: Path) -> None:
    newer, wrong = (3, 1.0, 1.0, BOOT, "GpuCaughtFire", 1, "{}", 0), (4, 1.0, 1.0, BOOT, "Finished", 1, "[]", 0)
    schema.build(path, [row(1), (*row(2)[:7], 5), *((*each[:7], crc_of(each)) for each in (newer, wrong))])
    found = salvage(path, wall_s=5.0, why="why")
    assert found == Salvage(f"{path}.damaged-5", "why", 2, 2)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT seq, kind FROM fact ORDER BY seq").fetchall() == [
            (1, "Finished"), (3, "GpuCaughtFire"), (5, "JournalSalvaged"),
        ]  # fmt: skip


def test_a_journal_of_which_nothing_is_left_begins_anew(path: Path) -> None:
    path.write_bytes(b"junk")
    journal, facts, found = open_or_salvage(path, wall_s=77.9, seen_seq=5)
    journal.close()
    assert found == Salvage(f"{path}.damaged-77", "file is not a database", 0, 5)
    assert facts == [Stamped(6, 0.0, 77.9, "", found.fact())]


@pytest.mark.parametrize("count", [0, 2])
def test_a_journal_that_ends_too_early_is_told_with_the_last_stamp(path: Path, count: int) -> None:
    rows = [row(seq) for seq in range(1, count + 1)]
    schema.build(path, rows)
    journal, facts, found = open_or_salvage(path, wall_s=77.9, seen_seq=count)
    assert (len(facts), found) == (count, None)
    journal.close()
    journal, facts, found = open_or_salvage(path, wall_s=77.9, seen_seq=count + 1)
    assert found == Salvage(
        f"{path}.damaged-77", f"it ends at fact {count}, and fact {count + 1} had been written", count, 1
    )
    at_s, boot_id = (count + 0.5, BOOT) if count else (0.0, "")
    assert facts[-1] == Stamped(count + 2, at_s, 77.9, boot_id, found.fact())
    assert (facts[:-1], journal.last_seq) == ([stamped(seq) for seq in range(1, count + 1)], count + 2)
    journal.close()
    assert read(path) == facts


@pytest.mark.parametrize("damaged", [False, True], ids=["the end is missing", "a row is damaged"])
def test_a_loss_has_the_time_and_the_boot_of_the_last_fact_before_it(path: Path, damaged: bool) -> None:
    rows = [(*row(seq)[:3], f"boot {seq}", *row(seq)[4:]) for seq in (1, 2, 3)]
    whole = [(*each[:7], crc_of(each)) for each in rows]
    schema.build(path, [whole[0], rows[1] if damaged else whole[1], whole[2]])
    journal, facts, found = open_or_salvage(path, wall_s=77.9, seen_seq=3 if damaged else 4)
    journal.close()
    assert found is not None
    assert facts[-1] == Stamped(4 if damaged else 5, 3.5, 77.9, "boot 3", found.fact())


# --- restore -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_file_longer_than(size_bytes: int) -> Iterator[None]:
    """The kernel refuses writes beyond (EFBIG; Python ignores SIGXFSZ)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_without_room_is_told_with_the_journals_own_name(path: Path) -> None:
    journal = Journal(path)
    told = append(journal)
    path.unlink()
    with no_file_longer_than(4096), pytest.raises(OSError, match="the journal: ") as full:
        journal.restore(at_s=9, wall_s=77.9, boot_id=BOOT)
    assert full.value.filename == str(path)
    told.append(journal.restore(at_s=9, wall_s=77.9, boot_id=BOOT)[0])
    journal.close()
    assert read(path) == told
    path.write_bytes(b"junk")
    with no_file_longer_than(4096), pytest.raises(OSError, match="the journal: ") as full:
        salvage(path, wall_s=77.9, why="why")
    assert full.value.filename == str(path)
    assert path.read_bytes() == b"junk"
    path.unlink()
    with no_file_longer_than(4096), pytest.raises(OSError, match="the journal: ") as full:
        Journal(path)
    assert full.value.filename == str(path)


def test_a_refused_commit_is_not_in_what_is_restored(path: Path) -> None:
    journal = Journal(path)
    told = append(journal)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(schema.INSERT, row(2, Finished("of another writer", "p")))
    with pytest.raises(JournalMoved) as moved:
        append(journal)
    assert (moved.value.why, moved.value.filename) == ("it ends at fact 2, and 1 were acknowledged", str(path))
    stamped, found = journal.restore(at_s=9, wall_s=77.9, boot_id=BOOT)
    assert found == Salvage(f"{path}.damaged-77", "it ends at fact 2, and 1 were acknowledged", 1, 0)
    assert (stamped.seq, stamped.at_s, stamped.wall_s) == (2, 9.0, 77.9)
    told += [stamped, *append(journal)]
    journal.close()
    assert read(path) == told


def test_restores_leave_no_descriptor_behind(path: Path) -> None:
    before = open_files()
    journal = Journal(path)
    append(journal)
    open_now = open_files()
    for _ in range(3):
        path.unlink()
        journal.restore(at_s=9, wall_s=77.9, boot_id=BOOT)
        append(journal)
    assert open_files() <= open_now
    journal.close()
    assert open_files() <= before


@pytest.mark.parametrize(
    ("number", "tries"), [(errno.EIO, 4), (errno.ESTALE, 4), (errno.EROFS, 4), (errno.ENODEV, 4), (errno.ENOSPC, None)]
)
def test_after_three_failures_of_its_files_they_are_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, tries: int | None
) -> None:
    with contextlib.closing(Journal(path)) as journal:
        told = append(journal)
        old = journal._files

        def failing() -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(old, "check", failing)
        failed: list[int | None] = []
        while len(failed) < 12 and len(told) == 1:
            try:
                told += append(journal)
            except OSError as error:
                failed.append(error.errno)
        assert failed == [number] * (12 if tries is None else tries - 1)
        if tries is not None:
            assert journal._files is not old
            told += append(journal)
        assert journal.last_seq == len(told)
    assert read(path) == told


@pytest.mark.parametrize(("count", "why"), [(3, "another one is its fact 3"), (5, "it ends at fact 5")])
def test_another_journal_at_the_path_is_not_taken_when_the_files_are_opened_again(path: Path, count: int, why: str) -> None:
    """The disk failed, and another one is mounted in its place: what was acknowledged holds, and the other journal is kept."""
    with contextlib.closing(Journal(path)) as journal:
        append(journal, *[Finished("ours", "p")] * 3)
        (path.parent / "away").mkdir()
        for each in ("", "-wal", "-shm"):
            path.with_name(f"{path.name}{each}").rename(path.parent / "away" / f"{path.name}{each}")
        with contextlib.closing(Journal(path)) as other:
            other.append([Finished("another's", "p")] * count, at_s=0.0, wall_s=0.0, boot_id="other")
        journal._failures = 3  # as after three errors of the disk
        with pytest.raises(JournalMoved, match=f"{why}, and 3 were acknowledged"):
            append(journal)
        _, found = journal.restore(at_s=0.0, wall_s=0.0, boot_id=BOOT)
        assert (found.saved, found.lost) == (0, 3)
        append(journal)
    assert [each.seq for each in read(path)] == [4, 5]
    assert [each.fact for each in read(Path(found.damaged_path))] == [Finished("another's", "p")] * count


def test_failures_that_do_not_follow_each_other_open_nothing_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(Journal(path)) as journal:
        told, files, check = [], journal._files, journal._files.check
        for _ in range(3):
            waiting = [OSError(errno.EIO, "Input/output error")] * 2

            def looks(waiting: list[OSError] = waiting) -> None:
                if waiting:
                    raise waiting.pop()
                check()

            monkeypatch.setattr(files, "check", looks)
            for _ in range(2):
                with pytest.raises(OSError, match="Input/output error"):
                    append(journal)
            told += append(journal)
            assert journal._files is files
    assert read(path) == told


def test_files_that_cannot_be_opened_again_are_tried_again_later(path: Path) -> None:
    journal = Journal(path)
    told = append(journal)
    journal._files.close()  # as on a file system that is gone
    away = path.with_name("away")
    path.rename(away)
    failed = []
    for _ in range(7):
        with pytest.raises(OSError) as caught:
            append(journal)
        failed.append(caught.value.errno)
    assert failed == [*[errno.EIO] * 3, errno.ENOENT, *[errno.EIO] * 2, errno.ENOENT]
    away.rename(path)
    for _ in range(4):
        with contextlib.suppress(OSError):
            told += append(journal)
    assert len(told) > 1
    journal.close()
    assert read(path) == told


def test_a_reader_takes_a_private_copy_with_the_log_and_removes_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = path.with_name("live.sqlite")
    with contextlib.closing(Journal(live)) as journal:
        told = append(journal) + append(journal)
        for suffix in ("", "-wal"):
            shutil.copyfile(beside(live, suffix), beside(path, suffix))
    scratch = path.with_name("scratch")
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    connect = journal_sqlite._connect_readonly

    def not_here(file: Path, **more: object) -> sqlite3.Connection:
        if file.parent == path.parent:
            raise PermissionError(errno.EACCES, "the journal: unable to open database file", str(file))
        return connect(file, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(journal_sqlite, "_connect_readonly", not_here)
    with JournalReader(path) as reader:
        (copy,) = scratch.iterdir()
        assert re.fullmatch(r"extralife-journal-.+", copy.name)
        assert {"journal.sqlite", "journal.sqlite-wal"} <= {each.name for each in copy.iterdir()}
        assert list(reader.read()) == told
    assert list(scratch.iterdir()) == []
    with pytest.raises(PermissionError):
        JournalReader(path, may_copy=False)
    beside(path, "-wal").unlink()
    assert read(path) == []
    path.write_bytes(b"")
    with pytest.raises(JournalDamaged, match=f"^{re.escape(str(path))}: the journal is damaged: "):
        JournalReader(path)
    assert list(scratch.iterdir()) == []
