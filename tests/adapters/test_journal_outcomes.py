"""What the journal says of errors and damage, what a salvage and a restore leave, and how one journal takes another's place."""

import contextlib
import errno
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from journal_kit import all_of, names, stamped
from journal_kit import row as rowed
from leaks import open_files

from supervisor import files
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.schema import beside, crc_of
from supervisor.adapters.journal.sqlite import (
    Journal,
    JournalDamaged,
    JournalReader,
    JournalRefused,
    as_os_error,
    open_or_salvage,
    salvage,
)
from supervisor.model.codec import as_text
from supervisor.model.facts import Finished, JournalSalvaged, Snapshot, Stamped
from supervisor.model.state import State
from supervisor.ports import JournalMoved, Salvage

BOOT = "boot"
SNAPSHOT = Snapshot("", as_text(State()))


def row(seq, fact=None):
    return rowed(stamped(seq, fact))


def append(journal, *facts):
    seq = journal.last_seq + 1
    return journal.append(facts or [Finished(f"fact {seq}", "p")], at_s=seq + 0.5, wall_s=1.7e9, boot_id=BOOT)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


# --- errors ------------------------------------------------------------------------------------------------------------


def error_of(code):
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    return error


def test_a_quota_that_is_used_up_is_no_dead_disk(path, monkeypatch):
    def refused(_fd):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr("supervisor.adapters.journal.sqlite.os.fsync", refused)
    with pytest.raises(OSError) as failed, as_os_error(path):
        raise error_of(sqlite3.SQLITE_IOERR_WRITE)
    assert (failed.value.args, failed.value.filename) == ((errno.EDQUOT, "the journal: Disk quota exceeded"), str(path))


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
def test_each_mistake_of_a_file_is_named(path, opener, statements, kind, says):
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


# --- salvage -----------------------------------------------------------------------------------------------------------


def salvaged(path, rows, floor=0, seen_seq=0):
    schema.build(path, rows, floor=floor)
    journal, facts, found = open_or_salvage(path, wall_s=77.9, seen_seq=seen_seq)
    assert journal.last_seq == facts[-1].seq
    journal.close()
    assert all_of(path) == facts
    return facts, found


@pytest.mark.parametrize(("seen_seq", "seq", "lost"), [(0, 4, 1), (3, 4, 1), (4, 5, 2), (9, 10, 7)])
def test_a_damaged_row_costs_itself_and_the_loss_is_the_last_fact_behind_all_that_were_ever_given(path, seen_seq, seq, lost):
    facts, found = salvaged(path, [row(1), (*row(2)[:7], 5), row(3)], seen_seq=seen_seq)
    assert found == Salvage(f"{path}.damaged-77", "row 2: its CRC does not match", 2, lost)
    told = JournalSalvaged(str(found), found.why, found.damaged_path, 2, lost)
    assert facts == [stamped(1), stamped(3), Stamped(seq, 3.5, 77.9, BOOT, told)]
    assert [name for name in names(path.parent) if name.startswith("journal.sqlite.")] == ["journal.sqlite.damaged-77"]


def test_a_damaged_journal_keeps_its_floor_if_the_snapshot_there_is_whole(path):
    rows = [row(2), row(3, SNAPSHOT), (*row(4)[:7], 5), row(5)]
    facts, found = salvaged(path, rows, floor=3)
    assert found == Salvage(f"{path}.damaged-77", "row 4: its CRC does not match", 2, 1)
    assert [each.seq for each in facts] == [3, 5, 6]
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert schema.floor(db) == 3
    for name in names(path.parent):
        (path.parent / name).unlink()
    shutil.rmtree(path.parent / "journal-copy")
    facts, found = salvaged(path, [row(2), (*row(3, SNAPSHOT)[:7], 5), row(4)], floor=3)
    assert found == Salvage(f"{path}.damaged-77", "row 3: its CRC does not match", 2, 2)
    assert [each.seq for each in facts] == [2, 4, 5], "what should be in the archive is better than nothing"


def test_a_row_of_a_newer_extralife_is_kept_and_one_that_never_was_a_fact_is_not(path):
    newer, wrong = (3, 1.0, 1.0, BOOT, "GpuCaughtFire", 1, "{}", 0), (4, 1.0, 1.0, BOOT, "Finished", 1, "[]", 0)
    schema.build(path, [row(1), (*row(2)[:7], 5), *((*each[:7], crc_of(each)) for each in (newer, wrong))])
    found = salvage(path, wall_s=5.0, why="why")
    assert found == Salvage(f"{path}.damaged-5", "why", 2, 2)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT seq, kind FROM fact ORDER BY seq").fetchall() == [
            (1, "Finished"), (3, "GpuCaughtFire"), (5, "JournalSalvaged"),
        ]  # fmt: skip


# --- restore -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "why"), [(3, "another one is its fact 3"), (5, "it ends at fact 5")])
def test_another_journal_at_the_path_is_not_taken_when_the_files_are_opened_again(path, count, why):
    """The disk failed, and another one is mounted in its place: what was acknowledged holds, and the other journal is kept."""
    before = open_files()
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
    assert open_files() <= before
    assert [each.seq for each in all_of(path)] == [4, 5]
    assert [each.fact for each in all_of(Path(found.damaged_path))] == [Finished("another's", "p")] * count


def test_files_that_cannot_be_opened_again_are_tried_again_later(path):
    with contextlib.closing(Journal(path)) as journal:
        told = append(journal)
        journal._files.close()  # as on a file system that is gone
        path.rename(path.with_name("away"))
        for _ in range(7):
            with pytest.raises(OSError):
                append(journal)
        path.with_name("away").rename(path)
        for _ in range(4):
            with contextlib.suppress(OSError):
                told += append(journal)
    assert len(told) > 1
    assert all_of(path) == told


# --- the swap ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebuilt", ["foreign", "stale", "newest row damaged", "empty", "FIFO", "directory"])
def test_a_rebuilt_file_that_is_not_the_newest_whole_journal_replaces_none(path, rebuilt):
    with contextlib.closing(Journal(path)) as journal:
        journal.append([Finished("", "p")] * 3, at_s=1.5, wall_s=1.7e9, boot_id="boot")
    aside = beside(path, ".rebuilt")
    match rebuilt:
        case "FIFO":
            os.mkfifo(aside)
        case "directory":
            aside.mkdir()
        case "stale":
            schema.build(aside, [row(1), row(2)])
        case "newest row damaged":
            schema.build(aside, [row(1), row(2), row(3), (*row(4)[:7], 0)])
        case _:
            aside.write_text("foreign" if rebuilt == "foreign" else "")
    journal, found, salvage = open_or_salvage(path, wall_s=1.7e9)
    journal.close()
    assert ([each.seq for each in found], salvage) == ([1, 2, 3], None)
    assert names(path.parent) == ["journal.sqlite", f"journal.sqlite{'.rebuilt' * (rebuilt in {'FIFO', 'directory'})}.found"]
    assert [path for path, _, _ in files.put_aside] == [str(aside)]


@pytest.mark.parametrize("journal", ["older", "damaged", "gone"])
def test_an_interrupted_swap_is_finished_at_the_next_start(path, journal):
    if journal == "older":
        schema.build(path, [row(1), row(2)])
    elif journal == "damaged":
        path.write_bytes(b"damaged")
    schema.build(beside(path, ".rebuilt"), [row(1), row(2), row(3)])
    opened, found, salvage = open_or_salvage(path, wall_s=1.7e9)
    opened.close()
    assert ([each.seq for each in found], salvage) == ([1, 2, 3], None)
