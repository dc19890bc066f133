"""The deciding thread's loop on a real journal whose file is taken away: what was acknowledged stays true."""

import contextlib
import math
import os
import shutil
from dataclasses import replace

import pytest
from fakes import FakeClock

from supervisor.adapters.journal import spare
from supervisor.adapters.journal.sqlite import Journal, open_or_salvage
from supervisor.model import commands, facts
from supervisor.model.fold import replay
from supervisor.model.inputs import Asked, Began, BootEvidence, ConfigLoaded, SupervisionLooked, Verb, Woke
from supervisor.model.settings import Paths, ProgramSpec, Settings
from supervisor.model.state import State
from supervisor.shell.inbox import Inbox
from supervisor.shell.loop import Loop


class RecordingPerformer:
    """`loop.Performer` that keeps what it is told."""

    def __init__(self):
        self.done, self.refused, self.alarms = [], [], []

    def perform(self, decision):
        self.done += decision.commands

    def refuse(self, item, text):
        self.refused.append(text)

    def alarm(self, notice, ago_s=None):
        if due := ago_s is None or ago_s >= 3600.0:
            self.alarms.append(notice)
        return due


@pytest.fixture
def loop(tmp_path):
    (tmp_path / "state").mkdir()
    made = Loop(
        settings=Settings(Paths("/state", "/run"), programs=tuple(ProgramSpec(n, ("x",), n) for n in ("Pong", "Qbert"))),
        state=State(), clock=FakeClock(), boot_id="boot-1",
        journal=Journal(tmp_path / "state" / "journal.sqlite"), inbox=Inbox(), performer=RecordingPerformer(), publish=lambda _: None,
        watchdog=lambda: None, pause=lambda _: None,
    )  # fmt: skip
    evidence = BootEvidence("boot-1", None, "first start")
    made.turn(Began(made.clock.now_s(), made.settings, evidence, {}, 7, "1", "salt"))
    yield made
    made.journal.close()


def look(loop):
    """A turn without news, in which the loop looks at its journal."""
    loop.inbox.post(Woke(loop.clock.now_s()))
    loop.looked_at_s = -math.inf
    loop._next()


def stop(loop, name):
    loop.turn(Asked(loop.clock.now_s(), Verb.STOP, 1, (name,)))


def next_daemon(path):
    """What the next daemon makes of the journal: its state, and the kinds of all facts."""
    journal, stamped, _ = open_or_salvage(path, wall_s=1.7e9)
    with contextlib.closing(journal):
        state, misfits = replay(stamped)
        kinds = [type(each.fact).__name__ for each in journal.read()]
    assert misfits == 0
    return state, kinds


def test_a_lack_of_memory_loses_neither_an_input_nor_its_commands(loop):
    rest = iter([MemoryError(), MemoryError(), MemoryError()])

    def short_once(*_args):
        for error in rest:
            raise error

    loop.look = lambda state: short_once() or SupervisionLooked(0.0)
    loop.publish = loop.pause = short_once  # also when it answers an error
    loop.inbox.post(Asked(loop.clock.now_s(), Verb.STOP, 1, ("Pong",)))
    loop.inbox.post(Asked(loop.clock.now_s(), Verb.RELOAD, 2))  # ends the loop
    loop.run()
    replies = [each for each in loop.performer.done if isinstance(each, commands.Reply)]
    assert [each.request_id for each in replies] == [2]
    assert not loop.state.programs["Pong"].wanted
    assert not loop.performer.refused


def test_a_request_is_done_on_a_journal_that_was_removed_a_moment_ago(loop, tmp_path):
    path = tmp_path / "state" / "journal.sqlite"
    for file in path.parent.glob("journal.sqlite*"):
        file.unlink()
    stop(loop, "Pong")
    assert not loop.performer.refused
    assert loop.memory.trouble is None
    state, kinds = next_daemon(path)
    assert state == loop.state
    assert not state.programs["Pong"].wanted
    assert kinds.count("JournalSalvaged") == 1
    assert kinds.index("JournalSalvaged") < kinds.index("OperatorAsked"), "it is said first"
    assert [alarm.kind for alarm in loop.performer.alarms] == ["journal"]


def test_a_look_alone_has_it_restored(loop, tmp_path):
    path = tmp_path / "state" / "journal.sqlite"
    path.unlink()
    look(loop)
    assert path.exists()
    assert "JournalSalvaged" in next_daemon(path)[1]


def test_a_journal_cut_short_costs_history_and_never_the_truth(loop, tmp_path):
    path = tmp_path / "state" / "journal.sqlite"
    stop(loop, "Pong")
    loop.journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    loop.journal._db.execute("PRAGMA shrink_memory")  # or SQLite's page cache would still have all of it
    os.truncate(path, 4096)
    shutil.rmtree(spare.folder(path))
    stop(loop, "Qbert")
    assert not loop.performer.refused
    state, kinds = next_daemon(path)
    assert state == loop.state
    assert not state.programs["Pong"].wanted
    assert not state.programs["Qbert"].wanted
    assert {"JournalSalvaged", "Snapshot"} <= set(kinds)
    assert [alarm.kind for alarm in loop.performer.alarms] == ["journal"]
    assert state.gaps == 1
    assert list(path.parent.glob("journal.sqlite.damaged-*")), "the file that was cut is kept"


def test_without_its_directory_requests_are_refused_and_nothing_is_made(loop, tmp_path):
    path = tmp_path / "state" / "journal.sqlite"
    path.parent.rename(tmp_path / "away")
    stop(loop, "Pong")
    (said,) = loop.performer.refused
    assert said.startswith("refused, because the journal cannot be written (its file was removed or replaced, and cannot")
    assert loop.memory.trouble is not None
    assert not path.parent.exists()
    (tmp_path / "away").rename(path.parent)
    stop(loop, "Pong")
    assert len(loop.performer.refused) == 1
    assert next_daemon(path)[0] == loop.state
    assert facts.JournalStalled.__name__ in next_daemon(path)[1]


def test_an_end_under_way_does_not_wait_for_a_directory_that_was_removed(loop, tmp_path):
    loop.turn(Asked(loop.clock.now_s(), Verb.SHUTDOWN, 1))
    assert (loop.state.stopping, bool(loop.state.live), loop.memory.ended) == (True, True, False)
    (tmp_path / "state").rename(tmp_path / "away")
    for waited_s in (0.0, 4.9, 0.2):
        assert not loop.memory.ended
        loop.clock.advance(waited_s)
        look(loop)
    assert loop.memory.ended, "the next daemon adopts the workers that it finds"


def test_a_shutdown_that_cannot_be_recorded_says_how_to_end_the_daemon(loop, tmp_path):
    (tmp_path / "state").rename(tmp_path / "away")
    loop.turn(Asked(loop.clock.now_s(), Verb.SHUTDOWN, 1))
    assert loop.performer.refused[0].endswith("; SIGTERM ends the daemon alone, and its workers run on")


def test_a_disk_that_is_full_again_and_again_is_one_alarm_in_the_time_for_the_same_kind(loop, tmp_path):
    """A checkpoint that is pruned frees a MB, and the next one takes it: the journal fails every minute of a night."""
    state, away = tmp_path / "state", tmp_path / "away"

    def fails():
        state.rename(away)
        stop(loop, "Pong")
        away.rename(state)

    for _ in range(30):
        loop.clock.advance(60.0)
        fails()
        stop(loop, "Pong")
        assert loop.memory.trouble is None
    assert len(loop.performer.alarms) == 1
    fails()
    loop.clock.advance(1900.0)
    fails()
    assert len(loop.performer.alarms) == 2, "a trouble that lasts sends an alarm as soon as one is due"
    loop.clock.advance(7200.0)
    fails()
    assert len(loop.performer.alarms) == 2, "and once"


def test_an_update_that_cannot_be_recorded_is_refused(loop, tmp_path):
    state = tmp_path / "state"
    state.rename(tmp_path / "away")
    waiting = ConfigLoaded(loop.clock.now_s(), replace(loop.settings, programs=()), request_id=7)
    loop.inbox.post(replace(waiting, request_id=8))
    before = loop.settings
    loop.turn(waiting)
    assert len(loop.performer.refused) == 2, "the one that waited too"
    assert loop.inbox.take(0.0) is None
    (tmp_path / "away").rename(state)
    stop(loop, "Pong")
    assert loop.settings == before, "what was refused is not carried out later"


def test_what_is_answered_is_published_before(loop):
    seen = []
    loop.publish = lambda published: seen.append(("published", published.settings.programs))
    loop.performer.perform = lambda decision: seen.extend(
        ("answered", each.results) for each in decision.commands if isinstance(each, commands.Reply)
    )
    loop.turn(ConfigLoaded(loop.clock.now_s(), replace(loop.settings, programs=()), request_id=7))
    assert [what for what, _ in seen] == ["published", "answered"]
    assert seen[0] == ("published", ())
