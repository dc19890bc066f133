"""A start reads the newest snapshot and what follows: the state is the fold of all facts, and older damage is still found."""

import contextlib
import itertools
import sqlite3

import pytest
from journal_kit import never, night, written
from structlog.testing import capture_logs

from supervisor.adapters.journal import spare
from supervisor.adapters.journal.archive import compact
from supervisor.adapters.journal.sqlite import Journal, JournalReader, open_or_salvage
from supervisor.model import codec
from supervisor.model.facts import BackupIntended, Finished, HostRebooted, OperatorAsked, Snapshot, Stamped
from supervisor.model.fold import fold_all, replay
from supervisor.reports.facts_view import select


def of_box(seed, box):
    """Some hours of a box, with snapshots in between, and facts after the newest."""
    return night(seed, *[1800.0] * 4, 900.0, odds=box)


@pytest.fixture(scope="module")
def rough():
    return of_box(7, "rough")


def started(path):
    """(state, facts that were read, Salvage) of a daemon's start."""
    journal, facts, found = open_or_salvage(path, wall_s=1.9e9)
    journal.close()
    state, misfits = replay(facts)
    assert misfits == 0
    return state, facts, found


def snapshots(stamped):
    return [each.seq for each in stamped if isinstance(each.fact, Snapshot)]


def with_snapshots(stamped, texts):
    """The same facts, with other texts in some snapshots."""
    return [
        Stamped(each.seq, each.at_s, each.wall_s, each.boot_id, Snapshot("", texts[each.seq])) if each.seq in texts else each
        for each in stamped
    ]


def flip(path, seq):
    """Damage the body of one row, and nothing else."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        (body,) = db.execute("SELECT body FROM fact WHERE seq = ?", (seq,)).fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data, begin = path.read_bytes(), body[:150].encode()
    assert data.count(begin) == 1, "a row that is unique"
    at = data.index(begin) + len('{"why":"a')
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))


@pytest.mark.parametrize(("seed", "box"), [(1, "rough"), (2, "year")])
def test_the_state_of_a_start_is_the_fold_of_all_facts(tmp_path, seed, box):
    facts = of_box(seed, box)
    path = written(tmp_path / "journal.sqlite", facts)
    state, read, found = started(path)
    assert found is None
    assert state == fold_all(facts)
    assert read[0].seq == snapshots(facts)[-1]


def test_with_an_archive_and_after_a_restore_as_well(rough, tmp_path):
    path = written(tmp_path / "journal.sqlite", rough)
    assert compact(path, before_wall_s=rough[-1].wall_s, most_bytes=2**40, pause=never) is not None
    assert started(path)[0] == fold_all(rough)
    journal, _, _ = open_or_salvage(path, wall_s=1.9e9)
    with contextlib.closing(journal):
        path.unlink()
        loss, found = journal.restore(at_s=rough[-1].at_s, wall_s=1.9e9, boot_id=rough[-1].boot_id)
    assert not found.lost
    assert started(path)[0] == fold_all([*rough, loss])


@pytest.mark.parametrize("bad", [1, 2, 99], ids=["the newest", "two", "all"])
def test_a_snapshot_that_cannot_be_decoded_gives_way_to_an_older_one_or_to_all_facts(rough, tmp_path, bad):
    """Another version has written it: its row is whole."""
    known = snapshots(rough)
    texts = dict.fromkeys(known[-bad:], '{"programs":7}')
    path = written(tmp_path / "journal.sqlite", with_snapshots(rough, texts))
    journal, read, found = open_or_salvage(path, wall_s=1.9e9)
    journal.close()
    assert found is None
    assert read[0].seq == ([0, *known][-bad - 1] if bad < len(known) else 1)
    assert replay(read) == (fold_all(rough), 0)


def overwritten(path, index):
    """The first page of an index becomes noise."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xaa" * size)


@pytest.mark.parametrize("index", ["fact_by_kind", "fact_by_program"])
def test_an_index_that_is_damaged_is_made_again_and_that_is_said(rough, tmp_path, index):
    path = written(tmp_path / "journal.sqlite", rough)
    overwritten(path, index)
    with capture_logs() as said:
        if index == "fact_by_program":  # a start does not read it: the check of the next copy finds it
            assert spare.renew(path)
        state, facts, found = started(path)
    assert found is None, "no fact is lost, so nothing is salvaged"
    assert [each["event"] for each in said if each["event"] == "journal_indexed"] == ["journal_indexed"]
    assert (state.programs, facts[-1]) == (fold_all(rough).programs, rough[-1])
    with JournalReader(path) as reader:
        reader.check()
        assert [each.fact.program for each in reader.search(0, (), "P1", 3)] == ["P1"] * 3
        assert reader.search(0, ("Exited",), None, 1)


def test_damage_in_what_a_start_reads_is_salvaged_at_once(rough, tmp_path):
    path = written(tmp_path / "journal.sqlite", rough)
    assert spare.renew(path) == ""
    newest = snapshots(rough)[-1]
    flip(path, newest)
    state, _, found = started(path)
    assert found.lost == 0, "the spare has it"
    assert (state.gaps, state.damage is None) == (0, False)
    assert state.programs == fold_all(rough).programs


def test_damage_below_the_snapshot_is_told_by_the_next_copy_and_salvaged_by_the_next_start(rough, tmp_path):
    path = written(tmp_path / "journal.sqlite", rough)
    assert spare.renew(path) == ""
    seq = next(each.seq for each in rough[9:] if type(each.fact).__name__ == "Resumed")
    flip(path, seq)
    state, _, found = started(path)
    assert (state, found) == (fold_all(rough), None), "the start does not read it"
    paused = []
    assert spare.renew(path, paused.append) == f"row {seq}: its CRC does not match"
    assert spare.found_defect(path)
    state, _, found = started(path)
    assert found.lost == 0
    assert state.programs == fold_all(rough).programs
    with JournalReader(path) as reader:
        assert list(reader.read())[:-1] == rough, "every fact is back, from the copy"
    assert spare.renew(path, paused.append) == ""
    assert not spare.found_defect(path), "and the next start is short again"
    assert paused, "the check lets others run"


def test_a_journal_without_a_snapshot_is_read_and_checked_as_a_whole(rough, tmp_path):
    """Of the first release, or young."""
    first = snapshots(rough)[0]
    young = rough[: first - 1]
    path = written(tmp_path / "journal.sqlite", young)
    state, read, found = started(path)
    assert (read, found, state) == (young, None, fold_all(young))
    flip(path, next(each.seq for each in young[9:] if type(each.fact).__name__ == "Resumed"))
    assert started(path)[2] is not None


# --- facts by kind, program and number -------------------------------------------------------------------------------------


QUIET = ("Checkpointed", "Tallied", "Snapshot", "IntervalChosen")
KINDS = [(), ("Exited",), ("HostRebooted", "Exited", "Exited"), ("NoSuch",), (*(set(codec.kinds()) - set(QUIET)),)]
PROGRAMS = [None, "A", "C", "Ünï-s1", "nobody", "", 'with "quotes"']


@pytest.fixture(scope="module")
def facts():
    found = night(3, 2400.0, 2400.0, 2400.0, 600.0, odds={"crash_s": 900.0, "reboot_s": 3600.0})
    more = [
        Finished('quoted: "program":"A" and "A"', "Ünï-s1"), OperatorAsked("", "stop", ("A",), None),
        HostRebooted("", "a", "b", "unclean", "", 1.0, 2.0, "light", ("Ünï-s1",), {"A": 4}),
        BackupIntended("", "b-1", "", "operator", ("C", 'with "quotes"')),
    ]  # fmt: skip
    last = found[-1]
    return [*found, *(Stamped(last.seq + n, last.at_s, last.wall_s, "b", fact) for n, fact in enumerate(more, 1))]


@pytest.fixture
def searched(facts, tmp_path):
    return written(tmp_path / "journal.sqlite", facts)


def compared(path, facts):
    with JournalReader(path) as reader:
        for kinds, program, limit, after in itertools.product(KINDS, PROGRAMS, (1, 50, 10_000, -1, -50), (0, 300)):
            whole = select((each for each in facts if each.seq > after), program, limit, kinds, {})
            found = reader.search(after, kinds, program, limit)
            assert select(found, program, limit, kinds, {}) == whole, (kinds, program, limit, after)
            assert len(found) == len(whole), "nothing is decoded that is not wanted"


def test_a_journal_without_indexes_is_read_and_gets_them_at_the_next_start(facts, searched):
    with contextlib.closing(sqlite3.connect(searched)) as db:
        db.execute("DROP INDEX fact_by_kind")
        db.execute("DROP INDEX fact_by_program")
    compared(searched, facts)
    for expected in (["journal_indexed"], []):
        with capture_logs() as said, contextlib.closing(Journal(searched)):
            pass
        assert [each["event"] for each in said] == expected
    compared(searched, facts)
