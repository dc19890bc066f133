"""Damage of every kind to a real journal: its spare has all facts, what is lost without it is counted, the damaged file is kept."""

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from supervisor.adapters.journal import spare
from supervisor.adapters.journal.schema import beside
from supervisor.adapters.journal.sqlite import Journal, JournalReader, JournalRefused, open_or_salvage
from supervisor.model.facts import Finished, JournalSalvaged

BOOT = "0123456789abcdef0123456789abcdef"
PAGE = 4096
FRAME = PAGE + 24
LONG = 9  # this fact's body fills three pages
LAST = 60
with contextlib.closing(sqlite3.connect(":memory:")) as made:
    made.execute("PRAGMA user_version = 1")
    NO_TABLE = made.serialize()


def fill(journal, first, last):
    for number in range(first, last + 1):
        why = f"fact {number}" + ("x" * 10_000 if number == LONG else "")
        journal.append([Finished(why=why, program="p" * 40)], at_s=number + 0.5, wall_s=1.7e9, boot_id=BOOT)


@pytest.fixture(scope="module")
def dead(tmp_path_factory):
    """A daemon killed with 20 facts in the file and 40 more in the WAL; the spare was copied at fact 30."""
    directory = tmp_path_factory.mktemp("dead")
    live, path = directory / "live" / "journal.sqlite", directory / "journal.sqlite"
    live.parent.mkdir()
    with contextlib.closing(Journal(live)) as journal:
        fill(journal, 1, 20)
        journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(journal, 21, 30)
        assert spare.renew(live) == ""
        journal._since.close()  # as the next file of text begins
        fill(journal, 31, LAST)
        assert spare.renew(live) == ""
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{live}{suffix}", f"{path}{suffix}")
        shutil.copytree(spare.folder(live), spare.folder(path))
    return path


@pytest.fixture
def path(dead, tmp_path):
    """The same, all of it in the file."""
    path = copied(dead, tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    beside(path, "-wal").unlink(missing_ok=True)
    return path


def copied(source, directory):
    target = directory / "journal.sqlite"
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
    shutil.copytree(spare.folder(source), spare.folder(target))
    return target


def without_spare(path):
    shutil.rmtree(spare.folder(path))
    return path


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


ALL = list(range(1, LAST + 1))
HEADER = (0, 16, 18, 24, 28, 44, 56, 60, 63, 68, 71, 100, 103)


# --- with its spare ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", HEADER)
def test_a_flipped_bit_in_the_header_costs_no_fact(path, at):
    flip(path, at)
    damaged = path.read_bytes()
    kept, found = opened(path)
    assert kept == ALL
    if found is not None:  # SQLite does not mind all of them
        assert found.lost == 0
        assert Path(found.damaged_path).read_bytes() == damaged


@pytest.mark.parametrize("live", [False, True], ids=["between daemons", "under a daemon"])
def test_a_second_damage_before_the_next_copy_costs_no_fact_and_both_are_recorded(path, live):
    def spoil():
        path.unlink() if live else path.write_bytes(b"\xff" * PAGE)

    spoil()
    journal, _, first = open_or_salvage(path, wall_s=77.0, seen_seq=LAST)
    with contextlib.closing(journal):
        fill(journal, LAST + 2, LAST + 4)
        if live:
            spoil()
            _, second = journal.restore(at_s=99.0, wall_s=80.0, boot_id=BOOT)
    if not live:
        spoil()
        journal, _, second = open_or_salvage(path, wall_s=80.0)
        journal.close()
    assert (first.lost, second.lost) == (0, 0)
    with JournalReader(path) as reader:
        kept = list(reader.read())
    assert [each.seq for each in kept] == list(range(1, LAST + 6))
    assert [each.fact.why for each in kept if isinstance(each.fact, JournalSalvaged)] == [str(first), str(second)]


@pytest.mark.parametrize("junk", [bytes(PAGE), b"\xa5" * PAGE], ids=["zeroed", "overwritten"])
def test_no_page_costs_a_fact_and_those_between_two_damaged_pages_are_counted_without_a_spare(path, tmp_path, junk):
    cost = 0
    for page in range(path.stat().st_size // PAGE):
        for spared in (True, False):
            (tmp_path / f"{page}{spared}").mkdir()
            again = tmp_path / f"{page}{spared}" / "journal.sqlite"
            shutil.copyfile(path, again)
            if spared:
                shutil.copytree(spare.folder(path), spare.folder(again))
            change(again, page * PAGE, junk)
            kept, found = opened(again, seen_seq=LAST)
            if found is not None:  # else only an index was damaged: it is made again
                assert (found.saved, found.lost) == (len(kept), LAST - len(kept))
            assert kept == ALL or (found is not None and not spared)
            cost += not spared and len(kept) < LAST
    assert cost > 1


@pytest.mark.parametrize(
    "content",
    [None, b"", b"x" * 5000, b"SQLite format 3\0" + b"\0" * 200, NO_TABLE],
    ids=["gone", "empty", "junk", "a header alone", "an empty database"],
)
@pytest.mark.parametrize("wal", ["its own", "none"])
@pytest.mark.parametrize("spared", [True, False])
def test_a_file_that_is_no_journal_any_more_is_kept_and_said_aloud(dead, tmp_path, content, wal, spared):
    path = copied(dead, tmp_path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    if wal == "none":
        beside(path, "-wal").unlink()
    if not spared:
        without_spare(path)
    kept, found = opened(path, seen_seq=LAST - 1 if spared else 0)
    if not spared and content is None and wal == "none":
        assert found is None, "a first start"
        return
    assert kept == ALL or not spared
    assert found.lost == (LAST - len(kept) if kept else None)
    assert kept or "an unknown number of facts is lost" in str(found)
    if content is not None:
        assert Path(found.damaged_path).read_bytes() == content
    elif wal == "none":
        assert found.damaged_path == ""
    else:
        assert Path(found.damaged_path).name == "journal.sqlite.damaged-77-wal"


def test_random_flips_never_invent_a_fact_and_cost_none(path, tmp_path):
    """Twenty seeds of ten flipped bits each; `opened` compares every fact that is kept with what was written."""
    import random

    for seed in range(20):
        dice = random.Random(seed)
        (tmp_path / str(seed)).mkdir()
        again = tmp_path / str(seed) / "journal.sqlite"
        shutil.copyfile(path, again)
        shutil.copytree(spare.folder(path), spare.folder(again))
        for _ in range(10):
            flip(again, dice.randrange(path.stat().st_size))
        try:
            assert opened(again)[0] == ALL, f"seed {seed}"
        except JournalRefused as refused:
            raise AssertionError(f"seed {seed}: {refused}") from refused


# --- the write-ahead log --------------------------------------------------------------------------------------------------


def test_a_killed_daemons_log_is_whole(dead, tmp_path):
    assert opened(copied(dead, tmp_path), seen_seq=LAST) == (ALL, None)


def test_a_damaged_place_in_the_log_does_not_hide_what_lies_behind(dead, tmp_path):
    """SQLite itself ends at the damage without a word: thirty acknowledged facts would be gone."""
    path = copied(dead, tmp_path)
    flip(beside(path, "-wal"), 32 + 20 * FRAME + 24 + 4000)
    with JournalReader(path) as reader:
        seen = len(list(reader.read()))
    assert seen < LAST - 2
    kept, found = opened(path)
    assert kept == ALL
    assert (found.lost, found.why) == (0, f"it ends at fact {seen}, and fact {LAST} had been written")


def test_a_commit_that_a_power_cut_interrupted_is_no_damage(dead, tmp_path):
    """The last frame is torn, and so is the line of text: nobody was told that it had succeeded."""
    path = copied(dead, tmp_path)
    wal, text = beside(path, "-wal"), max(spare.folder(path).glob("since-*"))
    os.truncate(wal, wal.stat().st_size - 2000)
    os.truncate(text, text.stat().st_size - 20)
    assert opened(path) == (list(range(1, LAST)), None)


def test_a_missing_log_is_missed_by_the_sign_of_life_if_there_is_no_spare(dead, tmp_path):
    path = without_spare(copied(dead, tmp_path))
    beside(path, "-wal").unlink()
    kept, found = opened(path, seen_seq=58)
    assert (kept, found.lost, found.why) == (list(range(1, 21)), 38, "it ends at fact 20, and fact 58 had been written")
    with contextlib.closing(Journal(path)) as journal:
        assert journal.append([Finished("", "p")], at_s=0.0, wall_s=0.0, boot_id=BOOT)[0].seq == 60, "never a number twice"


# --- the spare itself ------------------------------------------------------------------------------------------------------


def test_the_copy_is_renewed_only_from_a_whole_journal_and_covers_the_text_before_it(path, tmp_path):
    directory = spare.folder(path)
    assert sorted(each.name for each in directory.iterdir()) == ["journal.sqlite", "since-000000000031.jsonl"]
    copy = (directory / "journal.sqlite").read_bytes()
    at = path.read_bytes().index(b"fact 42")
    flip(path, at)
    assert spare.renew(path) == "row 42: its CRC does not match"
    assert spare.renew(path) == "row 42: its CRC does not match", "it leaves nothing in its own way"
    change(path, PAGE, bytes(PAGE))
    assert spare.renew(path) != ""
    assert (directory / "journal.sqlite").read_bytes() == copy, "the last good one stays"
    path.unlink()
    with pytest.raises(OSError, match="No such file"):
        spare.renew(path)


def test_damaged_text_and_a_damaged_copy_cost_only_themselves(path):
    directory = spare.folder(path)
    text = directory / "since-000000000031.jsonl"
    lines = text.read_text().splitlines()
    wrong = [*json.loads(lines[5])[:6], "{}", 5]
    text.write_text("\n".join([*lines[:4], "\0\0\0", "[1, 2]", json.dumps(wrong), *lines[6:]]))
    at = (directory / "journal.sqlite").read_bytes().index(b"fact 7")
    flip(directory / "journal.sqlite", at)
    change(path, 0, bytes(PAGE))
    kept, found = opened(path)
    assert (sorted(set(ALL) - set(kept)), found.lost) == ([7], 1)


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
def test_what_we_may_not_write_is_one_sentence_and_stays_as_it_is(path, file_mode, directory_mode, damaged, says):
    with tempfile.TemporaryDirectory(prefix="extralife-test-") as folder:
        directory = Path(folder) / "state"
        Path(folder).chmod(0o755)
        directory.mkdir()
        path = Path(shutil.copy(path, directory))
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
