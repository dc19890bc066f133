"""How one journal takes the place of another, which files are kept for it, and how the open ones are compared with the paths."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from leaks import open_files

from supervisor import files
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.open_files import OpenJournalFiles
from supervisor.adapters.journal.schema import Row, beside, crc_of
from supervisor.adapters.journal.sqlite import Journal, JournalReader, open_or_salvage
from supervisor.model.facts import Finished
from supervisor.ports import JournalMoved


def row(seq: int, kind: str = "Finished") -> Row:
    unchecked = (seq, 1.5, 1.7e9, "boot", kind, 1, '{"why":"","program":"p"}', 0)
    return (*unchecked[:7], crc_of(unchecked))


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir() if each.name != "journal-copy")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


# --- a new journal -------------------------------------------------------------------------------------------------------


def test_a_journal_is_built_of_its_rows_and_its_floor(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside(path, f".building{suffix}").write_bytes(b"left by a build that was killed")
    before, told = open_files(), []
    schema.build(path, [row(3), row(5)], floor=3, before_rename=lambda: told.append(names(path)))
    assert told == [["journal.sqlite.building"]], "it is complete under another name"
    assert names(path) == ["journal.sqlite"]
    assert open_files() <= before
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert [seq for (seq,) in db.execute("SELECT seq FROM fact")] == [3, 5]
        assert (schema.floor(db), schema.pragma(db, "user_version"), schema.about(db, "schema")) == (3, 2, 2)
        assert schema.pragma(db, "application_id") == 0x584C4A31
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    schema.build(path, [])
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert (db.execute("SELECT count(*) FROM fact").fetchone(), schema.floor(db)) == ((0,), 0)


def test_a_build_that_fails_leaves_what_was_there(path: Path) -> None:
    schema.build(path, [row(1)])
    with pytest.raises(sqlite3.IntegrityError, match="the journal is append-only"):
        schema.build(path, [row(2), row(2)])
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT seq FROM fact").fetchall() == [(1,)]


def test_a_transaction_is_all_or_nothing_and_may_have_ended_by_itself(path: Path) -> None:
    schema.build(path, [])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        with schema.transaction(db):
            db.execute(schema.INSERT, row(1))
            assert db.in_transaction
        for ends in ("SELECT 1", "ROLLBACK"):
            with pytest.raises(KeyboardInterrupt):
                interrupted(db, ends)
            assert not db.in_transaction
        assert db.execute("SELECT seq FROM fact").fetchall() == [(1,)]


def interrupted(db: sqlite3.Connection, by: str) -> None:
    with schema.transaction(db):
        db.execute(schema.INSERT, row(2))
        db.execute(by)
        raise KeyboardInterrupt


# --- the swap ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [(), ("",), ("-wal",), ("", "-wal")], ids=str)
@pytest.mark.parametrize("there", [("", "-wal", "-shm"), ("",), ("-wal",), ()], ids=str)
def test_what_has_no_second_name_is_kept_when_the_rebuilt_one_takes_its_place(
    path: Path, there: tuple[str, ...], second: tuple[str, ...]
) -> None:
    schema.build(beside(path, ".rebuilt"), [row(1)])
    rebuilt = beside(path, ".rebuilt").read_bytes()
    for suffix in there:
        beside(path, suffix).write_text(f"old{suffix}")
    for suffix in second:
        if suffix in there:
            os.link(beside(path, suffix), beside(path, f".kept{suffix}"))
    kept = [suffix for suffix in there if suffix not in {*second, "-shm"}]
    for _ in range(2):  # the second call finds nothing to do
        schema.finish_swap(path)
    assert path.read_bytes() == rebuilt
    linked = [f"journal.sqlite.kept{suffix}" for suffix in second if suffix in there]
    assert names(path) == sorted(["journal.sqlite", *linked, *(f"journal.sqlite.found{suffix}" for suffix in kept)])
    assert [beside(path, f".found{suffix}").read_text() for suffix in kept] == [f"old{suffix}" for suffix in kept]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_an_empty_file_need_not_be_kept_and_a_directory_must_be(path: Path, suffix: str) -> None:
    schema.build(beside(path, ".rebuilt"), [row(1)])
    beside(path, suffix).touch()
    schema.finish_swap(path)
    assert names(path) == ["journal.sqlite"]
    schema.build(beside(path, ".rebuilt"), [row(1)])
    path.unlink()
    beside(path, suffix).mkdir()
    schema.finish_swap(path)
    assert beside(path, f".found{suffix}").is_dir()


@pytest.mark.parametrize("rebuilt", ["foreign", "stale", "newest row damaged", "empty", "FIFO", "directory"])
def test_a_rebuilt_file_that_is_not_the_newest_whole_journal_replaces_none(path: Path, rebuilt: str) -> None:
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
    assert names(path) == ["journal.sqlite", f"journal.sqlite{'.rebuilt' * (rebuilt in {'FIFO', 'directory'})}.found"]
    assert [path for path, _, _ in files.put_aside] == [str(aside)]


@pytest.mark.parametrize("journal", ["older", "damaged", "gone"])
def test_an_interrupted_swap_is_finished_at_the_next_start(path: Path, journal: str) -> None:
    if journal == "older":
        schema.build(path, [row(1), row(2)])
    elif journal == "damaged":
        path.write_bytes(b"damaged")
    schema.build(beside(path, ".rebuilt"), [row(1), row(2), row(3)])
    opened, found, salvage = open_or_salvage(path, wall_s=1.7e9)
    opened.close()
    assert ([each.seq for each in found], salvage) == ([1, 2, 3], None)


@pytest.mark.parametrize(
    ("there", "linked"),
    [({"": "", "-wal": ""}, [""]), ({"": "x", "-wal": "y"}, ["", "-wal"]), ({"-wal": "y"}, ["-wal"]), ({"-wal": ""}, []), ({}, [])],
    ids=str,
)  # fmt: skip
def test_a_journal_and_its_log_get_a_second_name_each(path: Path, there: dict[str, str], linked: list[str]) -> None:
    kept = beside(path, ".damaged-7")
    for suffix, text in there.items():
        beside(path, suffix).write_text(text)
    for _ in range(2):  # again, after it was interrupted
        schema.link_aside(path, kept)
        assert [suffix for suffix in ("", "-wal", "-shm") if beside(kept, suffix).exists()] == linked
        assert all(beside(kept, suffix).samefile(beside(path, suffix)) for suffix in linked)


def test_a_name_of_another_file_is_not_taken(path: Path) -> None:
    path.write_text("x")
    beside(path, ".damaged-7").write_text("another")
    with pytest.raises(FileExistsError):
        schema.link_aside(path, beside(path, ".damaged-7"))
    assert beside(path, ".damaged-7").read_text() == "another"


def test_the_first_free_name_is_taken_or_the_one_that_the_file_has_already(path: Path) -> None:
    def free() -> str:
        return schema.free_name(path, ".damaged-7").name

    assert free() == "journal.sqlite.damaged-7"
    beside(path, ".damaged-7").symlink_to("nothing")
    assert free() == "journal.sqlite.damaged-7-1", "a link that leads nowhere has the name, too"
    beside(path, ".damaged-7-1-wal").touch()
    assert free() == "journal.sqlite.damaged-7-2", "the log of another one would be taken for its own"
    beside(path, ".damaged-7-2").touch()
    assert free() == "journal.sqlite.damaged-7-3"
    path.touch()
    assert free() == "journal.sqlite.damaged-7-3"
    os.link(path, beside(path, ".damaged-7-3"))
    assert free() == "journal.sqlite.damaged-7-3", "an interrupted run has given it that name"


# --- the open files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(path: Path) -> Iterator[tuple[OpenJournalFiles, sqlite3.Connection]]:
    """The open files of a journal with the facts 1 to 3 in its file and 4 to 6 in its log."""
    schema.build(path, [row(1), row(2), row(3)])
    files = OpenJournalFiles(path)
    db = sqlite3.connect(path, isolation_level=None)
    for seq in (4, 5, 6):
        db.execute(schema.INSERT, row(seq))
    files.complete(db)
    yield files, db
    db.close()
    files.close()


def told(files: OpenJournalFiles) -> tuple[str, str]:
    """What is said of the files, and of which one."""
    with pytest.raises(JournalMoved) as moved:
        files.check()
    assert moved.value.errno == errno.ESTALE
    return moved.value.why, str(moved.value.filename)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_each_way_in_which_a_path_leads_elsewhere_is_named(
    path: Path, opened: tuple[OpenJournalFiles, sqlite3.Connection], suffix: str
) -> None:
    files, _ = opened
    files.check()
    there, away = beside(path, suffix), beside(path, ".away")
    there.rename(away)
    assert told(files) == (f"journal.sqlite{suffix} was removed", str(there))
    there.symlink_to(away)
    assert told(files) == (f"journal.sqlite{suffix} was replaced by another link", str(there))
    there.unlink()
    there.mkdir()
    assert told(files) == (f"journal.sqlite{suffix} was replaced by another directory", str(there))
    there.rmdir()
    away.rename(there)
    files.check()


def test_a_file_may_grow_and_not_shrink(path: Path, opened: tuple[OpenJournalFiles, sqlite3.Connection]) -> None:
    files, _ = opened
    size = path.stat().st_size
    os.truncate(path, size + 10_000)
    files.check()
    os.truncate(path, size + 9_999)
    assert told(files) == (f"journal.sqlite was cut from {size + 10_000:,} to {size + 9_999:,} bytes", str(path))
    os.truncate(path, size + 10_000)
    files.check()


def test_the_log_holds_at_least_what_its_index_says(path: Path, opened: tuple[OpenJournalFiles, sqlite3.Connection]) -> None:
    files, _ = opened
    wal = beside(path, "-wal")
    needed = wal.stat().st_size
    assert (needed - 32) % 4120 == 0
    os.truncate(wal, needed + 1)
    files.check()
    os.truncate(wal, needed)
    files.check()
    os.truncate(wal, needed - 1)
    assert told(files) == (f"journal.sqlite-wal was cut to {needed - 1:,} of {needed:,} bytes", str(wal))
    with beside(path, "-shm").open("r+b") as index:  # as after a checkpoint that has emptied the log
        index.seek(16)
        index.write((0).to_bytes(4, sys.byteorder))
    os.truncate(wal, 0)
    files.check()


def test_a_link_to_the_journal_is_no_other_place(path: Path) -> None:
    schema.build(path, [row(1)])
    (path.parent / "elsewhere").mkdir()
    link = path.parent / "elsewhere" / "journal.sqlite"
    link.symlink_to(path)
    with contextlib.closing(Journal(link)) as journal:
        journal.append([Finished("", "p")], at_s=1.0, wall_s=1.0, boot_id="boot")
        assert names(link) == ["journal.sqlite"]


def test_nothing_stays_open_whatever_is_missing(path: Path) -> None:
    before = open_files()
    with pytest.raises(FileNotFoundError):
        OpenJournalFiles(path)
    with pytest.raises(FileNotFoundError):
        OpenJournalFiles(path.parent / "none" / "journal.sqlite")
    assert open_files() <= before
    schema.build(path, [row(1)])
    files = OpenJournalFiles(path)
    with contextlib.closing(sqlite3.connect(":memory:")) as db, pytest.raises(FileNotFoundError):
        files.complete(db)  # no connection has made the log
    files.close()
    files.close()
    assert open_files() <= before
    with contextlib.closing(Journal(path)) as journal:
        journal.append([Finished("", "p")], at_s=1.0, wall_s=1.0, boot_id="boot")
        with JournalReader(path) as reader:
            assert len(list(reader.read())) == 2
    assert open_files() <= before


def test_the_directory_is_told_from_another_of_its_name(path: Path) -> None:
    state = path.parent / "state"
    state.mkdir()
    schema.build(state / "journal.sqlite", [])
    files = OpenJournalFiles(state / "journal.sqlite")
    files.check_directory()
    state.rename(path.parent / "away")
    for says in ("was removed", "is not the one with which extralife started"):
        with pytest.raises(OSError) as moved:
            files.check_directory()
        assert moved.value.args == (errno.ESTALE, f"the directory of the journal {says}")
        assert moved.value.filename == str(state)
        state.mkdir(exist_ok=True)
    files.close()
