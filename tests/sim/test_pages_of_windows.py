"""Every page that reads its window answers as if everything had been folded from the beginning of the journal.

The oracle is `FakeSources`: it folds all facts for each answer. The journals are simulated nights with trouble of all kinds,
written bit by bit. What is merged by day is tested in tests/core/test_digest.py.
"""

import contextlib
import json
import random
import sqlite3

import pytest
from boxes import DAY_S, HOUR_S, night
from fakes import FakeSources
from structlog.testing import capture_logs
from world import Odds, World

from supervisor.adapters import durable, summaries
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.archive import compact
from supervisor.adapters.journal.sqlite import JournalReader, open_or_salvage
from supervisor.adapters.summaries import Summaries, path_of
from supervisor.model.codec import encode
from supervisor.model.facts import JournalSalvaged, Snapshot, Stamped
from supervisor.model.fold import fold_all
from supervisor.model.inputs import SnapshotDue
from supervisor.model.memory import Memory
from supervisor.reports.pages import BadQuery, pages

NIGHTS = [("rough", 3, 2 * HOUR_S), ("reboots", 1, 2 * HOUR_S), ("mixed", 7, DAY_S)]
PAGES_OF_WINDOWS = ("accounts", "cost", "days", "incidents", "report", "timeline")


@pytest.fixture(autouse=True)
def soon_written(monkeypatch):
    monkeypatch.setattr(summaries, "_EVERY_FACTS", 40)
    monkeypatch.setattr(summaries, "_PIECE", 30)


@pytest.fixture(scope="module", params=NIGHTS, ids=lambda each: f"{each[0]}-{each[1]}")
def told(request):
    box, seed, length_s = request.param
    found = night(box, seed, 3, length_s=length_s)
    assert found.error is None
    return found.world


class OverAJournal(FakeSources):
    """The same sources, over a journal on the disk and its summaries."""

    def __init__(self, summary, **more):
        super().__init__(**more)
        self.summaries = summary

    def closed(self):
        return self.summaries.ask(lambda found: (found.ledger.closed(self.now_s), self.wall_s))

    def incidents(self, since_s, until_s, program, view):
        rows = self.summaries.rows
        return view(self.summaries.ask(lambda found: found.incidents.between(since_s, until_s, rows, program))())

    def lanes(self, now_s, since_s, until_s):
        return self.summaries.ask(lambda found: found.lanes.lanes(now_s, since_s, until_s))


def rowed(each):
    row = (each.seq, each.at_s, each.wall_s, each.boot_id, *encode(each.fact), 0)
    return (*row[:7], schema.crc_of(row))


def append(path, stamped):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.executemany(schema.INSERT, map(rowed, stamped))


def windows(world, end, chance, count=4):
    length_s = end.at_s + 1.0
    yield from ({}, {"since": "600s"}, {"since": f"{length_s / 2:.0f}s", "until": f"{length_s / 3:.0f}s"})
    if count:
        yield from ({"since": "boot"}, {"since": "@5"}, {"since": f"@{end.wall_s + 99:.0f}"})
    for _ in range(count):
        ago_s = chance.uniform(0.0, length_s)
        until_s = chance.uniform(0.0, ago_s)
        yield {"since": f"{ago_s:.3f}s", "until": f"{until_s:.3f}s"}
        yield {"since": f"@{end.wall_s - ago_s:.0f}", "until": f"@{end.wall_s - until_s:.0f}"}


def answer(sources, page, query):
    try:
        return json.loads(json.dumps(pages()[page].of(sources, query)))
    except BadQuery as bad:
        return str(bad)


def compare(summary, world, journal, chance, count=4):
    end = journal[-1]
    more = {
        "state": world.core.state, "settings": world.core.settings, "memory": world.core.memory, "journal": journal,
        "now_s": end.at_s + chance.choice((0.0, 7.0, 4000.0)), "wall_s": end.wall_s + 7.0,
    }  # fmt: skip
    with_files, whole = OverAJournal(summary, **more), FakeSources(**more)
    for query in windows(world, end, chance, count):
        for page in PAGES_OF_WINDOWS:
            assert answer(with_files, page, query) == answer(whole, page, query), (page, query, end.seq)
    name = chance.choice(sorted(world.core.state.programs))
    asked = {"program": name, "limit": "100"}
    assert answer(with_files, "incidents", asked) == answer(whole, "incidents", asked)


def test_every_window_of_a_growing_journal_is_that_of_the_whole_fold(told, tmp_path):
    """Daemons come and go: each has the file of the one before, and folds only what came since."""
    journal, chance, path = list(told.core.journal), random.Random(1), tmp_path / "journal.sqlite"
    schema.build(path, [])
    summary, written = Summaries(path, writes=True), 0
    for end in [*sorted(chance.sample(range(2, len(journal)), 3)), len(journal)]:
        append(path, journal[written:end])
        written = end
        if chance.random() < 0.5:
            summary = Summaries(path, writes=True)
        summary._care()
        compare(summary, told, journal[:end], chance, 0)
    with capture_logs() as said:
        compare(Summaries(path, writes=True), told, journal, chance)
        dead = Summaries(path, writes=False)
        compare(dead, told, journal, chance, 0)
    assert said == [], "nothing was made again"
    assert dead._saved_seq > 0, "it has read the file"


def two_hours():
    """A world with a snapshot in the middle of its journal."""
    found = World(2, programs=3, odds=Odds(crash_s=900.0, stall_s=1800.0, operator_s=600.0), look_s=20.0).begin()
    found.run(HOUR_S)
    found.post(SnapshotDue(0.0, 1))
    found.run(HOUR_S)
    return found


def test_after_an_archiving_the_days_before_it_stay_until_the_file_is_made_again(tmp_path):
    told = two_hours()
    journal, chance, path = list(told.core.journal), random.Random(2), tmp_path / "journal.sqlite"
    schema.build(path, list(map(rowed, journal)))
    summary = Summaries(path, writes=True)
    summary._care()
    moved = compact(path, before_wall_s=float("inf"), most_bytes=2**40, pause=lambda _: False)
    assert moved.facts > 0
    for each in (summary, Summaries(path, writes=True)):
        first_s = each.ask(lambda found: found.ledger.first_s)
        assert first_s == journal[0].at_s
    path_of(path).unlink()
    compare(Summaries(path, writes=True), told, journal[moved.facts :], chance, 1)


def test_the_journal_of_the_first_release_has_pages_of_all_windows(tmp_path):
    from first_release import unpacked

    path = unpacked(tmp_path, tmp_path / "run").state / "journal.sqlite"
    open_or_salvage(path, wall_s=1.9e9)[0].close()
    with JournalReader(path) as reader:
        journal = list(reader.read())
    state, end = fold_all(journal), journal[-1]
    more = {
        "state": state, "settings": None, "memory": Memory(), "journal": journal, "now_s": end.at_s, "wall_s": end.wall_s,
    }  # fmt: skip
    for page in PAGES_OF_WINDOWS:
        for query in ({}, {"since": "43200s"}, {"since": "boot"}):
            assert answer(OverAJournal(Summaries(path, writes=True), **more), page, query) == answer(
                FakeSources(**more), page, query
            )


def broken(path, how):
    """Do something to the file of the summaries. Returns why they are made again."""
    file = path_of(path)
    if how == "not a file":
        file.unlink()
        file.mkdir()
        return "not a regular file"
    head, _, folds = file.read_bytes().partition(b"\n")
    file.write_bytes({
        "cut": head + b"\n" + folds[:600], "another version": head.replace(b'"version": ', b'"version": 7') + b"\n" + folds,
        "a flipped bit": head + b"\n" + folds.replace(b"0", b"1", 1),
        "a key that is gone": head.replace(b'"crc"', b'"cqc"') + b"\n" + folds,
    }[how])  # fmt: skip
    return how if how == "another version" else "they are damaged"


@pytest.fixture(scope="module")
def short():
    found = night("rough", 4, 2, length_s=HOUR_S)
    assert found.error is None
    return found.world


@pytest.fixture
def journal_of(short, tmp_path):
    """(path, facts) of a journal with summaries of everything."""
    path, journal = tmp_path / "journal.sqlite", list(short.core.journal)
    schema.build(path, list(map(rowed, journal)))
    Summaries(path, writes=True)._care()
    return path, journal


@pytest.mark.parametrize("how", ["cut", "not a file", "another version", "a flipped bit", "a key that is gone"])
def test_summaries_that_are_damaged_or_of_another_version_are_made_again_and_that_is_said(how, short, journal_of):
    path, journal = journal_of
    why = broken(path, how)
    with capture_logs() as said:
        compare(Summaries(path, writes=False), short, journal, random.Random(3), 0)
        assert said == [], "only the daemon writes the file"
        summary = Summaries(path, writes=True)
        compare(summary, short, journal, random.Random(3), 0)
        summary._care()
    assert [each["event"] for each in said] == ["summaries_made_again"]
    assert why in said[0]["why"]
    with capture_logs() as said:
        compare(Summaries(path, writes=True), short, journal, random.Random(3), 0)
    assert said == []


def test_summaries_of_another_journal_are_made_again(short, journal_of):
    """An older copy was put back."""
    path, journal = journal_of
    path.unlink()
    schema.build(path, list(map(rowed, journal[:-9])))
    with capture_logs() as said:
        compare(Summaries(path, writes=True), short, journal[:-9], random.Random(4), 0)
    assert [each["why"] for each in said] == ["they are of another journal"]


def test_without_room_for_the_file_the_pages_are_made_in_memory(short, tmp_path, monkeypatch):
    path, journal = tmp_path / "journal.sqlite", list(short.core.journal)
    schema.build(path, list(map(rowed, journal)))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    summary = Summaries(path, writes=True)
    with capture_logs() as said, monkeypatch.context() as patch:
        patch.setattr(durable, "replace", full)
        summary._care()
        compare(summary, short, journal, random.Random(5), 0)
    assert [each["event"] for each in said] == ["summaries_not_written"]
    assert not path_of(path).exists()
    summary._care()
    assert path_of(path).exists()


def test_until_the_record_is_read_again_pages_have_the_newest_day_and_say_that_earlier_ones_are_not_counted(tmp_path, monkeypatch):  # fmt: skip
    monkeypatch.setattr(summaries, "_AT_ONCE_S", HOUR_S / 2)
    journal, path = list(two_hours().core.journal), tmp_path / "journal.sqlite"
    schema.build(path, list(map(rowed, journal)))
    path_of(path).write_text('{"version": 1}\n{}')  # of an earlier release
    summary, end = Summaries(path, writes=True), journal[-1]
    summary._tended = True  # its thread has not run yet
    more = {"journal": journal, "now_s": end.at_s, "wall_s": end.wall_s, "state": fold_all(journal), "settings": None}
    sources, whole = OverAJournal(summary, **more), FakeSources(**more)
    (snapshot,) = (each for each in journal if isinstance(each.fact, Snapshot))
    for page in PAGES_OF_WINDOWS:
        if page not in {"report", "timeline"}:  # levels are measured over the whole record, spans keep their beginning
            assert answer(sources, page, {"since": "1200s"}) == answer(whole, page, {"since": "1200s"})
        for query in ({}, {"until": "5400s"}):
            found = answer(sources, page, query)
            assert "earlier days are not counted yet" in found["not_counted"]
            assert found.get("since_s", snapshot.at_s) == snapshot.at_s, "earlier time is left out, not booked as zero"
    assert answer(sources, "curves", {}) == answer(whole, "curves", {}), "the recorder lacks nothing"
    summary._care()
    assert all(answer(sources, page, {}) == answer(whole, page, {}) for page in PAGES_OF_WINDOWS)


def test_a_journal_that_was_restored_under_a_running_daemon_is_read_again(short, journal_of):
    path, journal = journal_of
    summary = Summaries(path, writes=True)
    summary._tended = True
    summary._care()
    left = [each for each in journal if each.seq not in range(50, 60)]
    last, lost = left[-1], JournalSalvaged("", "journal.sqlite.damaged-1", "row 50 is damaged", len(left), 10)
    left.append(Stamped(last.seq + 1, last.at_s, last.wall_s, last.boot_id, lost))
    path.unlink()
    schema.build(path, list(map(rowed, left)))
    with capture_logs() as said:
        summary._care()
        summary._care()
        compare(summary, short, left, random.Random(4), 0)
    assert [each["why"] for each in said] == ["the journal was restored"]
