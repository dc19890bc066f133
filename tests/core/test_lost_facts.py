"""A journal that has lost facts: what is left never raises what was stopped, and never starts what runs."""

import os
import random

import pytest
from core_kit import Core, facts, kinds, of, settings
from world import Odds, World

from supervisor.model import commands
from supervisor.model.fold import fold, replay
from supervisor.model.inputs import Began, BootEvidence, Survival, Survivor
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.state import State

SEEDS = int(os.environ.get("SIM_SEEDS", "2"))


def stranger(token="f" * 32, pid=4242):
    return Survivor(token, Survival.ALIVE, pid, 5, pid + 1, 5)


def began(core, *survivors, rebooted=False, **strangers):
    """A daemon starts on what is left of the journal, and finds these alive."""
    core.memory = Memory()
    core.state, _ = replay(core.journal)
    seen = BootEvidence(core.boot_id, rebooted=rebooted, evidence="test")
    return core.give(Began(core.now_s, core.settings, seen, dict(survivors), 101, "0.1.0", "salt2", strangers))


def without(core, *lost):
    """The journal has lost every fact of these kinds."""
    core.journal = [item for item in core.journal if not isinstance(item.fact, lost)]


def test_a_worker_whose_start_was_lost_is_taken_over_and_not_doubled():
    core = Core(settings("Pong")).running("Pong")
    token = core.token("Pong")
    without(core, facts.SpawnIntended)
    decision = began(core, Pong=(7, stranger(token)))
    assert not of(decision, commands.Spawn)
    assert [command.survivor.token for command in of(decision, commands.Adopt)] == [token]
    assert core.attempt("Pong").number == 7
    assert core.phase("Pong") is Phase.STARTING
    core.later(1.0).look(Pong=None)
    assert core.phase("Pong") is Phase.RUNNING
    core.ended("Pong", signal=9)
    assert core.attempt("Pong").number == 8, "no number is given twice"


def test_with_no_journal_left_at_all_workers_go_on():
    core = Core(settings("Pong", "Qbert"))
    decision = began(core, Pong=(3, stranger()))
    assert [command.spec.name for command in of(decision, commands.Spawn)] == ["Qbert"]
    assert core.attempt("Pong").pid == 4242


@pytest.mark.parametrize("phase", [Phase.BACKOFF, Phase.DONE, Phase.FATAL], ids=lambda phase: phase.value)
def test_a_stranger_of_a_program_in_any_phase_is_taken_over(phase):
    core = Core(settings("Pong")).into(phase)
    began(core, Pong=(9, stranger()))
    assert core.phase("Pong") is Phase.STARTING


def test_a_stranger_of_a_program_that_is_to_be_down_is_stopped():
    core = Core(settings("Pong")).into(Phase.STOPPED)
    decision = began(core, Pong=(9, stranger()))
    assert core.phase("Pong") is Phase.STOPPING
    assert not core.program("Pong").wanted
    assert of(decision, commands.AskToLeave)
    core.ended("Pong", code=75)
    assert core.phase("Pong") is Phase.STOPPED


def test_a_stranger_that_is_none_changes_nothing():
    core = Core(settings("Pong")).running("Pong")
    alone = core.survivor("Pong", Survival.ALIVE)
    assert kinds(began(core, alone, Pong=(5, stranger()), Nobody=(1, stranger()))) == ["DaemonStarted"]


@pytest.mark.parametrize("lost", [facts.Wanted, (facts.Wanted, facts.StopIntended), (facts.Wanted, facts.StayedDown)])
def test_a_program_that_was_stopped_stays_down_when_the_word_was_lost(lost):
    core = Core(settings("Pong")).into(Phase.STOPPED)
    without(core, *(lost if isinstance(lost, tuple) else (lost,)))
    core.state, _ = replay(core.journal)
    assert not core.program("Pong").wanted
    survivors = [core.survivor("Pong", Survival.ENDED, code=75)] if core.state.live else []
    assert not of(began(core, *survivors), commands.Spawn)
    assert core.phase("Pong") is Phase.STOPPED


@pytest.mark.parametrize("survival", [Survival.VANISHED, Survival.ENDED], ids=lambda each: each.value)
def test_a_program_that_was_to_stop_stays_down_though_its_stop_was_lost_and_it_ended_meanwhile(survival):
    core = Core(settings("Pong")).running("Pong")
    core.ask("stop", "Pong")
    without(core, facts.StopIntended)
    core.state, _ = replay(core.journal)
    assert (core.phase("Pong"), core.program("Pong").wanted) == (Phase.RUNNING, False)
    survivor = core.survivor("Pong", survival, **({"signal": 9} if survival is Survival.ENDED else {}))
    assert not of(began(core, survivor), commands.Spawn)
    assert core.phase("Pong") is Phase.STOPPED


def test_a_waiting_program_that_was_to_stop_stays_down_though_what_followed_was_lost():
    core = Core(settings("Pong", "Qbert", slots=1)).running("Pong")
    assert core.phase("Qbert") is Phase.QUEUED
    core.ask("stop", "Qbert")
    without(core, facts.StayedDown)
    core.state, _ = replay(core.journal)
    assert (core.phase("Qbert"), core.program("Qbert").wanted) == (Phase.QUEUED, False)
    began(core)
    assert core.phase("Qbert") is Phase.STOPPED


def test_an_end_without_its_consequence_leaves_nobody_between_phases():
    core = Core(settings("Pong")).running("Pong")
    core.ended("Pong", signal=9)
    last = next(n for n, item in enumerate(core.journal) if isinstance(item.fact, facts.Exited))
    core.journal = core.journal[: last + 1]
    assert replay(core.journal)[0].programs["Pong"].phase is Phase.RUNNING, "with no attempt: a phase without an end"
    decision = began(core)
    assert kinds(decision) == ["DaemonStarted", "Requeued", "SpawnIntended"]


def test_a_program_whose_start_was_asked_for_starts_though_what_followed_was_lost():
    """The request is on record, and the queue and the start that it led to are not."""
    core = Core(settings("Pong")).running("Pong")
    core.ask("stop", "Pong")
    core.ended("Pong", signal=15)
    assert core.phase("Pong") is Phase.STOPPED
    core.ask("start", "Pong")
    wanted = max(n for n, item in enumerate(core.journal) if isinstance(item.fact, facts.Wanted) and item.fact.run)
    del core.journal[wanted + 1 :]
    core.state, _ = replay(core.journal)
    assert (core.phase("Pong"), core.program("Pong").wanted) == (Phase.STOPPED, True)
    core.begin()
    assert core.phase("Pong") is Phase.STARTING
    (queued,) = (fact for fact in core.told(facts.Requeued)[-1:])
    assert queued.why == "the journal has its start request, but lost what followed when it was damaged"


def test_of_two_attempts_the_one_that_lives_is_taken_over():
    core = Core(settings("Pong")).running("Pong")
    old = core.attempt("Pong")
    core.ended("Pong", signal=9)
    core.spawned("Pong")
    new = core.attempt("Pong")
    without(core, facts.Exited, facts.BackedOff)
    core.state, misfits = replay(core.journal)
    assert misfits
    assert core.token("Pong") == old.token, "the journal believes in the first"
    dead = core.survivor("Pong", Survival.ENDED, signal=9)
    assert not of(began(core, dead, Pong=(new.number, stranger(new.token))), commands.Spawn)
    assert core.token("Pong") == new.token


def test_a_program_that_was_started_again_stays_up_when_that_word_was_lost():
    core = Core(settings("Pong")).into(Phase.STOPPED)
    core.ask("start", "Pong")
    core.journal = [item for item in core.journal if not (isinstance(item.fact, facts.Wanted) and item.fact.run)]
    assert replay(core.journal)[0].programs["Pong"].wanted


def test_in_a_whole_journal_the_deeds_say_what_the_word_said():
    """So that to fold them changes nothing: over every night that the simulator tells."""
    said = {facts.StayedDown: False, facts.Requeued: True, facts.SpawnIntended: True}
    met = set()
    for seed in range(1, SEEDS + 1):
        world = World(seed, odds=Odds(operator_s=300.0), look_s=20.0).begin()
        world.run(12 * 3600.0)
        state = State()
        for item in world.core.journal:
            fact = item.fact
            deed = said.get(type(fact))
            if isinstance(fact, facts.StopIntended) and fact.reason == "operator":
                deed = False
            if deed is not None and fact.program in state.programs:
                assert state.programs[fact.program].wanted is deed, fact
                met.add(type(fact))
            state = fold(state, item)
    assert met == {*said, facts.StopIntended}


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_whatever_is_lost_the_next_daemon_starts_and_nobody_is_stuck(seed):
    """Holes of every size in the journal of a rough night: the daemon begins, and its invariants hold (`Core.give`)."""
    world = World(seed, odds=Odds(crash_s=900.0, stall_s=900.0, operator_s=300.0), look_s=20.0).begin()
    world.run(4 * 3600.0)
    whole, dice = list(world.core.journal), random.Random(seed)
    for _ in range(60):
        core = Core(world.configured, now_s=world.now_s, boot_id=world.core.boot_id)
        first = dice.randrange(len(whole))
        hole = range(first, first + dice.choice([1, 2, 5, 20, 200]))
        cut = len(whole) - dice.choice([0, 0, 1, 3])
        core.journal = [item for n, item in enumerate(whole[:cut]) if n not in hole]
        core.state, _ = replay(core.journal)
        survivors = [
            (name, Survivor(program.attempt.token, dice.choice([Survival.NEVER, Survival.VANISHED])))
            for name, program in core.state.live.items()
        ]
        began(core, *survivors, rebooted=dice.random() < 0.3)
