"""Counts of a program: what the journal says in sum, and that nothing ever takes a count back."""

from core_kit import Core, settings

from supervisor.model import facts
from supervisor.model.codec import as_text, of_text
from supervisor.model.counts import Counts, advanced, counted
from supervisor.model.state import State


def resumed(step, lost):
    return facts.Resumed("why", "Pong", "token", step, lost)


def ended(cause):
    return facts.Exited("why", "Pong", "token", cause, 1, None, None, None)


def test_steps_that_were_lost_stay_computed():
    counts = advanced(Counts(), None, 5000)
    counts = counted(counts, 5000, 4000, resumed(4000, 1200))  # it had come to 5,200 after all
    assert (counts.computed_steps, counts.lost_steps, counts.lost_unknown) == (5200, 1200, 0)
    counts = counted(counts, 4000, 4500, facts.Checkpointed("why", "Pong", "token", 4500, 0.1, 0.1))
    assert counts.computed_steps == 5700


def test_a_loss_of_unknown_size_is_counted_as_such():
    counts = counted(Counts(computed_steps=5000), 5000, 4000, resumed(4000, None))
    assert (counts.computed_steps, counts.lost_steps, counts.lost_unknown) == (5000, 0, 1)


def test_ends_by_cause():
    counts = counted(counted(Counts(), None, None, ended("crash")), None, None, ended("crash"))
    assert counted(counts, None, 70, ended("killed")) == Counts(ends={"crash": 2, "killed": 1}, computed_steps=70)


def test_they_survive_a_snapshot_and_never_fall():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"steps": 1000})
    core.ended("Pong", code=1, steps=1000)
    program = core.state.programs["Pong"]
    assert program.counts == Counts(ends={"crash": 1}, computed_steps=1000)
    assert of_text(State, as_text(core.state)).programs["Pong"].counts == program.counts
