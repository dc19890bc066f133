"""How one journal takes the place of another, which files are kept for it, and how the open ones are compared with the paths."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
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
