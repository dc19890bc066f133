"""The journal's own troubles: told first once they are over, counted in the state, shown to people."""

from dataclasses import replace

from core_kit import Core, facts, kinds, of, settings

from supervisor.model.facts import Stamped
from supervisor.model.fold import fold
from supervisor.model.inputs import Sample
from supervisor.model.memory import Memory, Observation, Trouble
from supervisor.model.state import State
from supervisor.reports.status_view import journal_view


def troubled(core, since_s=10.0):
    """As the loop leaves it when a commit has failed."""
    core.memory = replace(core.memory, trouble=Trouble(core.now_s - since_s, 1.7e9, "No space left on device"))
    return core


def test_what_kept_the_journal_is_reported_first_and_once():
    core = troubled(Core(settings("Pong")).running("Pong"))
    decision = core.ended("Pong", signal=9)
    assert kinds(decision)[:2] == ["JournalStalled", "Exited"]
    assert decision.facts[0] == facts.JournalStalled(
        "the journal could not be written for 10s (No space left on device): extralife started nothing meanwhile",
        "No space left on device", 10.0, 1.7e9,
    )  # fmt: skip
    assert core.memory.trouble is None
    assert not of(core.later(1.0).woke(), facts.JournalStalled)


def test_an_hour_without_a_journal_is_no_absence_of_the_loop():
    core = Core(settings("Pong", "Qbert")).running("Pong", "Qbert")
    core.now_s += 3600.0
    hung_since_s = core.now_s - 1800.0
    decision = troubled(core, 3600.0).look(Pong=None, Qbert={"progress_at_s": hung_since_s})
    assert not of(decision, facts.DaemonSuspended)
    assert [fact.program for fact in of(decision, facts.Stalled)] == ["Qbert"], "readings are fresh, and so is the verdict"


def test_readings_are_shown_meanwhile_and_judged_later():
    mine, new = Sample("t1", steps=1), Sample("t1", steps=2)
    memory = Memory(watches={"Pong": Observation("t1", mine, 5.0), "Qbert": Observation("t2", Sample("t2"), 5.0)})
    shown = memory.showing({"Pong": new, "Qbert": Sample("t3", steps=9), "Nobody": new})
    assert shown.watches["Pong"] == Observation("t1", new, 5.0)
    assert shown.watches["Qbert"] == memory.watches["Qbert"], "another attempt's reading"
    assert set(shown.watches) == {"Pong", "Qbert"}


def test_damage_is_remembered_and_gaps_are_counted():
    state = State()
    for number, lost in enumerate((3, 0, None)):
        fact = facts.JournalSalvaged("it was damaged", "row 7", f"/s/journal.sqlite.damaged-{number}", 40, lost)
        state = fold(state, Stamped(number, 1.0, 2.0 + number, "", fact))
    assert state.gaps == 2, "a damage that took no fact leaves every count as it was"
    assert state.boots == 0
    assert journal_view(state, Trouble(1.0, 2.0, "EIO")) == {
        "error": "EIO",
        "error_since_wall_s": 2.0,
        "damage": {
            "wall_s": 4.0, "error": "row 7", "kept_as": "/s/journal.sqlite.damaged-2", "kept": 40, "lost": None,
        },
        "gaps": 2,
    }  # fmt: skip
    assert journal_view(State(), None) == {"error": "", "error_since_wall_s": None, "damage": None, "gaps": 0}
