"""A journal whose files are removed, replaced or cut short while it is open, or while no daemon runs. Real files, real SQLite."""

import itertools
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.adapters.journal import archive as journal_archive
from supervisor.adapters.journal import spare
from supervisor.adapters.journal.schema import beside
from supervisor.adapters.journal.sqlite import Journal, JournalReader, open_or_salvage
from supervisor.model.codec import as_text
from supervisor.model.facts import DaemonStopped, Finished, JournalSalvaged, Snapshot
from supervisor.model.state import State
from supervisor.ports import JournalMoved

SUFFIXES = ("", "-wal", "-shm")
SUBSETS = [each for size in (1, 2, 3) for each in itertools.combinations(SUFFIXES, size)]
STAMP = {"at_s": 1.0, "wall_s": 1.7e9, "boot_id": "boot-1"}


def written(path, count=3):
    journal = Journal(path)
    for number in range(count):
        append(journal, number)
    return journal


def append(journal, number):
    return journal.append([Finished(why=f"fact {number}", program="Pong")], **STAMP)


def whys(path):
    with JournalReader(path) as reader:
        return [each.fact.why for each in reader.read() if not isinstance(each.fact, JournalSalvaged)]


def restore(journal, lost=0):
    stamped, found = journal.restore(**STAMP)
    assert found.lost == lost
    assert stamped.fact == found.fact()
    assert journal.last_seq == stamped.seq
    return found


@pytest.mark.parametrize("gone", SUBSETS, ids=lambda gone: "+".join(suffix or "db" for suffix in gone))
def test_what_is_removed_under_a_live_journal_is_noticed_and_written_anew(tmp_path, gone):
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    for suffix in gone:
        beside(path, suffix).unlink()
    with pytest.raises(JournalMoved) as moved:
        append(journal, 3)
    assert moved.value.why == f"journal.sqlite{gone[0]} was removed"
    assert journal.last_seq == 3, "what was refused is not acknowledged"
    assert restore(journal).saved == 3
    (row,) = append(journal, 3)
    assert row.seq == 5, "the restoring is fact 4"
    assert whys(path) == ["fact 0", "fact 1", "fact 2", "fact 3"]
    del journal  # a daemon that is killed closes nothing
    assert whys(path) == ["fact 0", "fact 1", "fact 2", "fact 3"]


@pytest.mark.parametrize("suffix", SUFFIXES, ids=["db", "wal", "shm"])
def test_what_somebody_put_in_its_place_is_kept_and_not_written_to(tmp_path, suffix):
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    beside(path, suffix).rename(tmp_path / "aside")
    beside(path, suffix).write_bytes(b"somebody's own file")
    with pytest.raises(JournalMoved, match=f"^(.*: )?{beside(path, suffix).name} was replaced by another file$"):
        append(journal, 3)
    found = restore(journal)
    append(journal, 3)
    assert whys(path) == ["fact 0", "fact 1", "fact 2", "fact 3"]
    if suffix != "-shm":  # SQLite's index is no data: it is made anew from the rest
        assert beside(Path(found.damaged_path), suffix).read_bytes() == b"somebody's own file"


@pytest.mark.parametrize("spared", [True, False])
def test_an_emptied_wal_is_cut_and_its_facts_come_from_the_spare(tmp_path, spared):
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    journal._db.execute("PRAGMA shrink_memory")  # or SQLite's page cache would still have all of it
    os.truncate(beside(path, "-wal"), 0)
    if not spared:
        shutil.rmtree(spare.folder(path))
    with pytest.raises(JournalMoved) as moved:
        append(journal, 3)
    assert re.fullmatch(r"journal\.sqlite-wal was cut to 0 of [1-9][\d,]+ bytes", moved.value.why)
    found = restore(journal, 0 if spared else 3)
    assert found.saved == (3 if spared else 0)
    (row,) = append(journal, 5)
    assert row.seq == 5, "no number is given twice"


def test_a_database_that_was_cut_short_is_noticed(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(JournalMoved) as moved:
        append(journal, 3)
    assert moved.value.why == f"journal.sqlite was cut from {size:,} to {size - 1:,} bytes"


def test_a_checkpoint_by_somebody_else_is_no_damage(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    script = f"import sqlite3; db = sqlite3.connect({str(path)!r}); print(db.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("(0,")
    append(journal, 3)
    assert beside(path, "-wal").stat().st_size > 0
    assert journal.moved() == ""


def test_a_commit_that_lands_in_a_removed_file_is_no_success(tmp_path):
    """Removed between the check and the commit: the transaction itself cannot know."""
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    journal._db.create_function("gone", 0, lambda: path.unlink() or 1)
    journal._db.execute("CREATE TEMP TRIGGER removes AFTER INSERT ON main.fact BEGIN SELECT gone(); END")
    with pytest.raises(JournalMoved, match="was removed"):
        append(journal, 3)
    restore(journal)
    (row,) = append(journal, "again")
    assert row.seq == 5
    assert whys(path) == ["fact 0", "fact 1", "fact 2", "fact again"]


def test_nothing_is_restored_into_a_directory_that_is_not_the_journals(tmp_path):
    path = tmp_path / "state" / "journal.sqlite"
    path.parent.mkdir()
    journal = written(path)
    path.parent.rename(tmp_path / "away")
    with pytest.raises(JournalMoved):
        append(journal, 3)
    with pytest.raises(OSError, match=r"\] the directory of the journal was removed: "):
        restore(journal)
    path.parent.mkdir()
    with pytest.raises(OSError, match=r"\] the directory of the journal is not the one with which extralife started: "):
        restore(journal)
    assert not list(path.parent.iterdir())
    path.parent.rmdir()
    (tmp_path / "away").rename(path.parent)
    append(journal, 3)
    assert whys(path) == ["fact 0", "fact 1", "fact 2", "fact 3"]


def test_a_restored_journal_has_its_floor_and_its_gaps(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = written(path, 5)
    journal.append([Snapshot("a snapshot", as_text(State()))], **STAMP)
    append(journal, 6)
    journal_archive.compact(path, before_wall_s=1.8e9, most_bytes=2**30, pause=lambda _: False)
    journal.close()
    journal, facts, found = open_or_salvage(path, wall_s=1.7e9, seen_seq=20)
    assert found.lost == 13
    path.unlink()
    restore(journal)  # numbers that were lost long ago are not lost a second time
    append(journal, 7)
    with JournalReader(path) as reader:
        assert [each.seq for each in reader.read()] == [*(each.seq for each in facts), 22, 23]


def test_a_failed_restore_leaves_everything_for_the_next_try(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    path.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # as on a full disk
    with pytest.raises(OSError):
        restore(journal)
    with pytest.raises(JournalMoved):
        append(journal, 3)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for suffix in (".rebuilt", ".rebuilt.building", ".rebuilt.building-wal"):  # are put aside
        beside(path, suffix).unlink(missing_ok=True)
        beside(path, suffix).mkdir()
    restore(journal)
    append(journal, 3)
    assert whys(path) == ["fact 0", "fact 1", "fact 2", "fact 3"]


def test_a_commit_that_was_refused_is_not_there_twice(tmp_path, monkeypatch):
    """The check after the commit could not look (EIO): nobody knows, so it is no success, and it is not kept either."""
    path = tmp_path / "journal.sqlite"
    journal = written(path)
    looks = iter([None, OSError(5, "Input/output error")])

    def check():
        error = next(looks, None)
        if error is not None:
            raise error

    monkeypatch.setattr(journal._files, "check", check)
    with pytest.raises(OSError, match="Input/output"):
        append(journal, 3)
    monkeypatch.undo()
    with pytest.raises(JournalMoved, match="it ends at fact 4, and 3 were acknowledged"):
        append(journal, 3)
    assert "ends at fact 4" in restore(journal).why
    append(journal, 3)
    assert whys(path) == ["fact 0", "fact 1", "fact 2", "fact 3"]


# --- between two daemons -------------------------------------------------------------------------------------------------


def killed(path, count=3):
    """The files of a daemon that was killed: its facts are in the WAL."""
    live = path.with_name("live") / "journal.sqlite"
    live.parent.mkdir()
    journal = written(live, count)
    for suffix in SUFFIXES:
        shutil.copyfile(beside(live, suffix), beside(path, suffix))
    shutil.copytree(spare.folder(live), spare.folder(path))
    journal.close()


@pytest.mark.parametrize("gone", SUBSETS, ids=lambda gone: "+".join(suffix or "db" for suffix in gone))
def test_what_is_removed_between_two_daemons_never_keeps_the_next_from_starting(tmp_path, gone):
    path = tmp_path / "journal.sqlite"
    killed(path)
    for suffix in gone:
        beside(path, suffix).unlink()
    journal, facts, found = open_or_salvage(path, wall_s=1.7e9, seen_seq=3)
    assert [each.fact.why for each in facts if isinstance(each.fact, Finished)] == ["fact 0", "fact 1", "fact 2"]
    assert found is None or found.lost == 0
    if found is not None and found.damaged_path:
        assert os.path.exists(found.damaged_path), "what it is kept as is there"
        assert found.damaged_path != str(path)
    (row,) = journal.append([DaemonStopped("after that")], **STAMP)
    assert row.seq >= 4, "no number is given twice"
    journal.close()
    again, facts_again, found_again = open_or_salvage(path, wall_s=1.8e9, seen_seq=row.seq)
    assert found_again is None
    assert [each.seq for each in facts_again] == [*(each.seq for each in facts), row.seq]
    again.close()


def killed_in_restore(path, fatal):
    """A child that dies at its n-th call that changes a name or opens a file; its exit status."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        journal = written(path)
        path.unlink()
        path.write_bytes(b"somebody's own file")
        left = itertools.count(fatal, -1)

        def watch(event, args):
            names = event in {"os.rename", "os.link", "os.remove", "open"}
            if names and str(path.parent) in str(args[0]) and next(left) == 1:
                os._exit(9)

        sys.addaudithook(watch)
        restore(journal)
        append(journal, 3)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # the child starts no thread and ends by itself
def test_killed_at_any_moment_of_a_restore_nothing_is_lost_and_nobodys_file_is_gone(tmp_path):
    """The WAL still has its name here: its facts are salvaged, or the new journal has them."""
    ends = []
    for fatal in range(1, 60):
        path = tmp_path / str(fatal) / "journal.sqlite"
        path.parent.mkdir()
        ends.append(killed_in_restore(path, fatal))
        journal, facts, _ = open_or_salvage(path, wall_s=1.7e9, seen_seq=3)
        kept = [each.fact.why for each in facts if isinstance(each.fact, Finished)]
        assert kept[:3] == ["fact 0", "fact 1", "fact 2"], f"killed at call {fatal}"
        append(journal, "next")
        journal.close()
        assert whys(path)[-1] == "fact next"
        files = [each.read_bytes() for each in path.parent.iterdir() if each.is_file()]
        assert b"somebody's own file" in files, f"killed at call {fatal}"
        if ends[-1] == 0:
            break
    assert ends == [9] * (len(ends) - 1) + [0]
    assert len(ends) > 10
