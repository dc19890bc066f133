"""Damage of every kind to a real journal: what can be read is kept, the damaged file too, and it is told."""

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from supervisor.adapters.journal import salvage, schema
from supervisor.adapters.journal.salvage import carve, torn_commits
from supervisor.adapters.journal.sqlite import Journal, JournalDamaged, JournalReader, JournalRefused, open_or_salvage
from supervisor.model.facts import Finished, JournalSalvaged

BOOT = "0123456789abcdef0123456789abcdef"
PAGE = 4096
FRAME = PAGE + 24
LONG = 9  # this fact's body fills three pages


def fill(journal, first, last):
    for number in range(first, last + 1):
        why = f"fact {number}" + ("x" * 10_000 if number == LONG else "")
        journal.append([Finished(why=why, program="p" * 40)], at_s=number + 0.5, wall_s=1.7e9, boot_id=BOOT)


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """200 facts, one of them long, all in the main file."""
    path = tmp_path_factory.mktemp("closed") / "journal.sqlite"
    with contextlib.closing(Journal(path)) as journal:
        fill(journal, 1, 200)
    return path


@pytest.fixture(scope="module")
def dead(tmp_path_factory):
    """A daemon killed with 20 facts in the file and 40 more in the WAL, one commit each."""
    folder = tmp_path_factory.mktemp("dead")
    live, path = folder / "live.sqlite", folder / "journal.sqlite"
    with contextlib.closing(Journal(live)) as journal:
        fill(journal, 1, 20)
        journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(journal, 21, 60)
        copy(live, path)
    return path


def copy(source, target, suffixes=("", "-wal")):
    for suffix in suffixes:
        shutil.copyfile(source.with_name(source.name + suffix), target.with_name(target.name + suffix))


def copied(source, folder, suffixes=("", "-wal")):
    target = folder / "journal.sqlite"
    with contextlib.suppress(FileNotFoundError):
        copy(source, target, suffixes)
    return target


def change(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path, at):
    change(path, at, bytes([path.read_bytes()[at] ^ 0x10]))


def opened(path, **more):
    """(numbers of the facts that are there, the Salvage), after a daemon's start."""
    journal, facts, found = open_or_salvage(path, wall_s=77.0, **more)
    journal.close()
    if found is not None:
        assert facts.pop().fact == found.fact()
    for stamped in facts:
        number = stamped.seq
        why = f"fact {number}" + ("x" * 10_000 if number == LONG else "")
        assert stamped.fact == Finished(why=why, program="p" * 40), "what is kept is what was written"
        assert (stamped.at_s, stamped.wall_s, stamped.boot_id) == (number + 0.5, 1.7e9, BOOT)
    again, facts_again, none = open_or_salvage(path, wall_s=78.0)
    again.close()
    assert none is None, "what was rebuilt is whole"
    assert [each.seq for each in facts_again if not isinstance(each.fact, JournalSalvaged)] == [each.seq for each in facts]
    return [each.seq for each in facts], found


# --- the main file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, "its magic"), (16, "its page size"), (18, "its write version"), (24, "its change counter"),
        (28, "its size in pages"), (44, "its schema format"), (56, "its encoding"), (60, "its schema number"),
        (63, "the same"), (68, "its application id"), (71, "the same"), (100, "the kind of its first page"),
        (103, "the number of its tables"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"byte {value}",
)  # fmt: skip
def test_a_flipped_bit_in_the_header_costs_no_fact(closed, tmp_path, at, what):
    path = copied(closed, tmp_path, ("",))
    flip(path, at)
    damaged = path.read_bytes()
    kept, found = opened(path)
    assert kept == list(range(1, 201)), what
    if found is not None:  # SQLite does not mind all of them
        assert Path(found.damaged_path).read_bytes() == damaged


@pytest.mark.parametrize("junk", [bytes(PAGE), b"\xa5" * PAGE], ids=["zeroed", "overwritten"])
def test_no_page_takes_more_with_it_than_its_own_facts(closed, tmp_path, junk):
    pages = closed.stat().st_size // PAGE
    cost = {}
    for number in range(pages):
        path = copied(closed, tmp_path, ("",))
        change(path, number * PAGE, junk)
        kept, found = opened(path)
        assert found is not None
        assert found.lost is None or found.lost == 200 - len(kept)
        cost[number + 1] = 200 - len(kept)
        for name in tmp_path.iterdir():
            name.unlink()
    assert cost[1] == 0, "the first page holds only the way to the others"
    assert max(cost.values()) < 45
    assert min(cost.values()) == 0
    assert sum(cost.values()) >= 199


@pytest.mark.parametrize(
    ("size", "pages", "defect"), [(4097, {1: b""}, "longer than the file"), (4096, {1: b""}, "a page is missing")]
)
def test_a_record_on_pages_that_are_gone_is_none(size, pages, defect):
    with pytest.raises(ValueError, match=f"^{defect}$"):
        salvage._payload(pages, bytes(PAGE), 0, size)


def test_a_text_that_is_cut_is_none():
    with pytest.raises(ValueError, match=r"^cut short$"):
        list(salvage._values(b"\x02\x13ab"))
    assert list(salvage._values(b"\x02\x11ab")) == ["ab"]


def test_a_number_of_the_journal_itself_that_is_none_is_damage():
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value)")
        assert (schema.floor(db), schema.table_version(db)) == (0, 0)
        db.execute("INSERT INTO about VALUES ('floor', 'x'), ('schema', 2)")
        assert schema.table_version(db) == 2
        with pytest.raises(sqlite3.DatabaseError, match=r"^a number in the table about is damaged$"):
            schema.floor(db)


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "the file is empty"), (None, "it is an empty database")], ids=["no byte", "no table"]
)
def test_a_file_without_a_journal_in_it_is_named(tmp_path, content, why):
    path = tmp_path / "journal.sqlite"
    if content is None:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
    else:
        path.write_bytes(content)
    with pytest.raises(JournalDamaged) as damaged:
        JournalReader(path)
    assert (damaged.value.why, str(damaged.value)) == (why, f"{path}: the journal is damaged: {why}")


def test_a_file_cut_short_keeps_what_is_left_of_it(closed, tmp_path):
    before = 201
    for pages in range(closed.stat().st_size // PAGE - 1, 0, -3):
        path = copied(closed, tmp_path, ("",))
        os.truncate(path, pages * PAGE - 100)
        kept, found = opened(path)
        assert found is not None
        assert len(kept) < before
        before = len(kept) + 1
        for name in tmp_path.iterdir():
            name.unlink()


def test_random_flips_never_invent_a_fact(closed, tmp_path):
    """Forty seeds of ten flipped bits each; `opened` compares every fact that is kept with what was written."""
    import random

    for seed in range(40):
        dice = random.Random(seed)
        path = copied(closed, tmp_path, ("",))
        for _ in range(10):
            flip(path, dice.randrange(closed.stat().st_size))
        try:
            kept, _ = opened(path)
        except JournalRefused as refused:
            raise AssertionError(f"seed {seed}: {refused}") from refused
        assert len(kept) >= 100, f"seed {seed}"
        for name in tmp_path.iterdir():
            name.unlink()


# --- the write-ahead log --------------------------------------------------------------------------------------------------


def test_a_killed_daemons_log_is_whole(dead, tmp_path):
    path = copied(dead, tmp_path)
    assert torn_commits(path) == 0
    assert opened(path) == (list(range(1, 61)), None)


@pytest.mark.parametrize("seen_seq", [0, 60, 70])
def test_a_damaged_place_in_the_log_does_not_hide_what_lies_behind(dead, tmp_path, seen_seq):
    """SQLite itself ends at the damage without a word: thirty acknowledged facts would be gone."""
    path = copied(dead, tmp_path)
    flip(path.with_name("journal.sqlite-wal"), 32 + 20 * FRAME + 24 + 4000)
    with JournalReader(path) as reader:
        assert len(list(reader.read())) < 60
    kept, found = opened(path, seen_seq=seen_seq)
    assert len(kept) >= 59
    assert found.why == "20 commits lie behind a damaged place of its write-ahead log"
    assert found.lost == max(60, seen_seq) - len(kept), "counted to the newest known fact, not to where SQLite ends"


def test_a_commit_that_a_power_cut_interrupted_is_no_damage(dead, tmp_path):
    """The last frame is torn: nobody was told that it had succeeded."""
    path = copied(dead, tmp_path)
    wal = path.with_name("journal.sqlite-wal")
    os.truncate(wal, wal.stat().st_size - 2000)
    assert opened(path) == (list(range(1, 60)), None)
    path = copied(dead, tmp_path)
    flip(wal, wal.stat().st_size - 2000)
    assert opened(path) == (list(range(1, 60)), None)


@pytest.mark.parametrize("gone", ["the log", "the whole journal"])
def test_what_was_removed_is_missed(dead, tmp_path, gone):
    """No damage is left to be found: only the sign of life remembers how far the journal had come."""
    path = copied(dead, tmp_path, ("",))
    if gone == "the whole journal":
        path.unlink()
    kept, found = opened(path, seen_seq=58)
    there = 0 if gone == "the whole journal" else 20
    assert kept == list(range(1, there + 1))
    assert (found.lost, found.saved) == (58 - there, there)
    assert found.why == f"it ends at fact {there}, and fact 58 had been written"
    with contextlib.closing(Journal(path)) as journal:
        assert journal.last_seq == 59
        assert journal.append([Finished("", "p")], at_s=0.0, wall_s=0.0, boot_id=BOOT)[0].seq == 60, "never a number twice"


def test_a_missing_index_of_the_log_is_made_again(dead, tmp_path):
    path = copied(dead, tmp_path)
    assert not path.with_name("journal.sqlite-shm").exists()
    assert opened(path)[0] == list(range(1, 61))


@pytest.mark.parametrize("content", [b"", b"junk", bytes(32), b"\x37\x7f\x06\x82" + bytes(5000)])
def test_a_log_that_is_none_is_no_log(dead, tmp_path, content):
    path = copied(dead, tmp_path, ("",))
    path.with_name("journal.sqlite-wal").write_bytes(content)
    assert torn_commits(path) == 0
    assert sorted(carve(path)) == list(range(1, 21))


def test_what_failed_and_was_overwritten_is_no_damage(tmp_path):
    """A long commit that failed leaves its frames behind a shorter one that succeeded."""
    import resource

    live, path = tmp_path / "live.sqlite", tmp_path / "journal.sqlite"
    with contextlib.closing(Journal(live)) as journal:
        fill(journal, 1, 3)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = live.with_name("live.sqlite-wal").stat().st_size
        for room in (7, 5):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + room * FRAME, hard))
            try:
                with pytest.raises(OSError, match="journal"):
                    journal.append([Finished("x" * 40_000, "p")], at_s=0.0, wall_s=0.0, boot_id=BOOT)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        fill(journal, 4, 4)
        copy(live, path)
    assert path.with_name("journal.sqlite-wal").stat().st_size > size + 4 * FRAME
    assert opened(path) == ([1, 2, 3, 4], None)


# --- files that are not ours to open ----------------------------------------------------------------------------------------


def test_another_programs_database_is_left_alone(tmp_path):
    path = tmp_path / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE fact (seq, at_s, wall_s, boot_id, kind, version, body, crc)")
        db.execute("INSERT INTO fact VALUES (1, 1.0, 1.0, '', 'Finished', 1, '{}', 5)")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(
        JournalRefused, match=r": this is not a journal of extralife \(SQLite application id 0x0\): move it aside$"
    ):
        open_or_salvage(path, wall_s=0.0)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["journal.sqlite"]


@contextlib.contextmanager
def as_nobody():
    """Permissions mean nothing to root."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else: an owner may change the mode of a file")
@pytest.mark.parametrize(
    ("file_mode", "directory_mode", "damaged", "says"),
    [
        (0o444, 0o755, False, "attempt to write a readonly database"),
        (0o000, 0o755, False, "Permission denied|unable to open database file"),
        (0o444, 0o555, True, "Permission denied"),
        (0o000, 0o000, False, "Permission denied"),
    ],
    ids=["a file that is another's", "one that is closed to us", "a damaged one", "a closed directory"],
)
def test_what_we_may_not_write_is_one_sentence_and_stays_as_it_is(closed, file_mode, directory_mode, damaged, says):
    with tempfile.TemporaryDirectory(prefix="extralife-test-") as folder:
        directory = Path(folder) / "state"
        Path(folder).chmod(0o755)
        directory.mkdir()
        path = copied(closed, directory, ("",))
        if damaged:
            flip(path, 0)
        before = path.read_bytes()
        path.chmod(file_mode)
        directory.chmod(directory_mode)
        with as_nobody(), pytest.raises(OSError, match=says) as caught:
            open_or_salvage(path, wall_s=0.0)
        directory.chmod(0o755)
        assert str(directory) in str(caught.value), "it names the place"
        assert path.read_bytes() == before
        assert [each.name for each in directory.iterdir()] == ["journal.sqlite"]


def test_damage_is_named_with_its_file(closed, tmp_path):
    path = copied(closed, tmp_path, ("",))
    change(path, 0, bytes(PAGE))
    with pytest.raises(JournalDamaged, match=f"{path}: the journal is damaged: file is not a database"):
        JournalReader(path)


def bad_sectors(monkeypatch, bad, number=errno.EIO):
    """The disk cannot read these blocks: pread(2) fails with EIO there, as on a worn disk."""
    real = os.pread

    def pread(fd, size, at):
        if any(at <= block * PAGE < at + size for block in bad):
            raise OSError(number, os.strerror(number))
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)


def test_a_bad_sector_costs_the_rows_of_its_block_and_none_behind_it(closed, monkeypatch):
    pages = closed.stat().st_size // PAGE
    whole = set(carve(closed))
    assert len(whole) == 200
    lost_somewhere = 0
    for block in range(pages):
        with monkeypatch.context() as patch:
            bad_sectors(patch, {block})
            lost = whole - set(carve(closed))
        assert len(lost) < 40, "one block holds less than that"
        lost_somewhere += bool(lost)
    assert lost_somewhere > 5


def test_a_disk_that_is_away_or_fails_in_another_way_is_no_damaged_journal(closed, monkeypatch):
    with monkeypatch.context() as patch:
        bad_sectors(patch, set(range(closed.stat().st_size // PAGE)))
        with pytest.raises(OSError, match="Input/output error"):
            carve(closed)
    bad_sectors(monkeypatch, {3}, errno.ESTALE)
    with pytest.raises(OSError, match="tale file handle"):
        carve(closed)
