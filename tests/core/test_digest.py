"""The folds of the pages, with their older items outside of the memory, find what they find with everything in it."""

import json
import sys
from pathlib import Path

import pytest

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.reports import accounts, digest
from supervisor.reports.cost_view import kept_steps
from supervisor.reports.digest import Digest
from supervisor.reports.incidents import incidents
from supervisor.reports.incidents_view import incidents_view
from supervisor.reports.kept import Chunk
from supervisor.reports.ledger import NotCovered
from supervisor.reports.timeline import marks_of, timeline_view

HOUR_S = 3600.0


class Pile:
    """`reports.kept.Kept` in memory. What it holds was JSON."""

    def __init__(self):
        self.chunks, self.taken_back = {}, 0

    def put(self, chunks):
        for chunk in chunks:
            assert chunk.from_s <= chunk.to_s
            self.chunks[chunk[:3]] = Chunk(*json.loads(json.dumps(chunk)))

    def _of(self, kind, owner, below):
        found = [each for key, each in self.chunks.items() if key[:2] == (kind, owner) and key[2] < below]
        return sorted(found, key=lambda each: each.number)

    def overlapping(self, kind, owner, since_s, until_s, below):
        return [each for each in self._of(kind, owner, below) if each.to_s >= since_s and each.from_s <= until_s]

    def beside(self, kind, owner, at_s, below):
        found = self._of(kind, owner, below)
        return [each for each in found if each.to_s <= at_s][-1:] + [each for each in found if each.to_s > at_s][:1]

    def newest(self, kind, owner, below):
        self.taken_back += 1
        return self.chunks[kind, owner, below - 1]


def stamped(after, *more):
    return [Stamped(after.seq + n, after.at_s + n, after.wall_s + n, after.boot_id, fact) for n, fact in enumerate(more, 1)]


@pytest.fixture(scope="module")
def journal():
    """A rough evening; then a job, a trouble of the box, a program that leaves, and work that is lost from the beginning."""
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "sim")]
    from world import Odds, World

    odds = Odds(crash_s=900.0, stall_s=1500.0, reboot_s=1.5 * HOUR_S, daemon_kill_s=HOUR_S, operator_s=1200.0)
    world = World(5, programs=3, odds=odds, look_s=20.0).begin()
    world.run(5 * HOUR_S)
    found = list(world.core.journal)
    token = "f" * 32
    found += stamped(
        found[-1],
        facts.FoundationLost("", "socket", "/run/s", "missing", troubled=True),
        facts.SpawnIntended("", "P0", token, 99, "d", "light"),
        facts.JobStarted("", "P0", token, "7", "node", "part", "account", 2),
        facts.BecameReady("", "P0", token, 1.0),
        facts.Resumed("", "P0", token, 0, None, None, "crash", 0.1),
        facts.Checkpointed("", "P0", token, 1000, 0.1, 0.1),
        facts.SpawnIntended("", "P1", "e" * 32, 99, "d", "light"),
        facts.ResumeUnknown("", "P1", "e" * 32),
        facts.ProgramRemoved("", "P2"),
    )
    return found + stamped(found[-1], *(facts.Checkpointed("", "P0", token, 1000 + n, 0.1, 0.1) for n in range(9)))


def rows_of(journal):
    by_number = {each.seq: each for each in journal}
    return lambda numbers: {number: by_number[number] for number in numbers if number in by_number}


def shown(found):
    return incidents_view(found, {}, limit=100, chars=500)


def kept_outside(journal, every):
    """(folds whose older items are outside of the memory, that place)."""
    pile = Pile()
    found = Digest(pile)
    for number, each in enumerate(journal, 1):
        found.add(each)
        if number % every == 0 or number == len(journal):
            pile.put(found.seal())
            found = Digest.of_json(json.loads(json.dumps(found.as_json())), pile, rows_of(journal))
    return found, pile


@pytest.mark.parametrize("every", [7, 50])
def test_every_window_is_the_same(journal, every, monkeypatch):
    monkeypatch.setattr(digest, "_KEEP_S", 300.0)
    found, pile = kept_outside(journal, every)
    whole = Digest()
    for each in journal:
        whole.add(each)
    assert sum(len(each.slices) for each in found.ledger.all_timelines()) < 60 < len(pile.chunks)
    assert found.seq == journal[-1].seq
    assert pile.taken_back > 2, "work was lost that had left the memory"
    now_s, rows = journal[-1].at_s + 9.0, rows_of(journal)
    windows = [
        (0.0, now_s),
        (now_s - HOUR_S, now_s),
        (HOUR_S, 2 * HOUR_S),
        (HOUR_S, HOUR_S),
        (-5.0, -1.0),
        (now_s - 5.0, now_s),
    ]
    for begin_s, end_s in windows:
        closed, all_ = found.ledger.closed(now_s), whole.ledger.closed(now_s)
        moments = [at_s for at_s, _, _ in closed.levels]
        closed.fill(begin_s, end_s, [*moments, 100.0])
        window = {"since_s": begin_s, "until_s": end_s}
        assert accounts.summary(closed, **window) == accounts.summary(all_, **window)
        assert closed.all_jobs() == all_.all_jobs()
        for mine, other in zip(closed.all_timelines(), all_.all_timelines(), strict=True):
            for stretch in ((begin_s, end_s), *((at_s, 100.0) for at_s in moments)):
                assert kept_steps(mine, *stretch) == kept_steps(other, *stretch)
        for program in (None, "P0"):
            expected = list(whole.incidents(begin_s, end_s, program, rows)())
            assert shown(found.incidents(begin_s, end_s, program, rows)()) == shown(expected)
        pages = [
            timeline_view(closed, each.lanes(now_s, begin_s, end_s)(), marks_of(expected), begin_s, end_s, wall_s=1e9)
            for each in (found, whole)
        ]
        assert pages[0] == pages[1]


def test_an_incident_whose_facts_were_archived_is_left_out(journal, monkeypatch):
    monkeypatch.setattr(digest, "_KEEP_S", 300.0)
    found, _ = kept_outside(journal, 7)
    later = [each for each in journal if each.seq > 100]
    every = incidents(journal)
    expected = [each.cause.seq for each in every if each.cause.seq > 100]
    assert 0 < len(expected) < len(every)
    assert sorted(each.cause.seq for each in found.incidents(0.0, 1e9, None, rows_of(later))()) == sorted(expected)


def test_folds_that_begin_in_the_middle_refuse_a_window_that_may_need_what_was_before(journal):
    found = Digest(late=True)
    for each in journal[50:]:
        found.add(each)
    begin_s, end_s = journal[50].at_s, journal[-1].at_s
    closed = found.ledger.closed(end_s)
    closed.must_cover(begin_s + 0.1)
    assert [*found.incidents(begin_s + 0.1, end_s, None, rows_of(journal))()]
    asked = (
        closed.must_cover, lambda: closed.must_cover(begin_s), lambda: found.lanes(end_s, begin_s, end_s),
        lambda: found.incidents(begin_s, end_s, None, rows_of(journal)),
    )  # fmt: skip
    for ask in asked:
        with pytest.raises(NotCovered):
            ask()
