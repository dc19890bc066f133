"""A training that goes wrong while it gets on: told with its numbers, rolled back to when it was well, at last given up."""

import pytest
from core_kit import Core, of, settings, spec

from supervisor.model import commands, facts
from supervisor.model.lifecycle import Phase
from supervisor.reports.view import program_view

Q = {"q_bound": 100.0}
RETURNS = {"best_return": 21.0, "first_return": 1.0, "best_spread": 4.0}


def running(**more):
    return Core(settings(spec("Pong", **more))).running("Pong")


def counting(first, step=10):
    """The steps (or games) of one look after the other."""
    numbers = iter(range(first, 10**9, step))
    return lambda _: next(numbers)


def save(core, step, **more):
    core.watch(1, Pong={"steps": step + 10, "ckpt_step": step, "ckpt_count": 1, **more})


def explode(core, steps, seconds=70):
    return core.watch(seconds, Pong={"steps": counting(steps), "q_max_abs": 1200.0, **Q})


def exploded(core, resumed, well, seconds=70):
    """An attempt that resumed there, was well until there, and exploded. Its last decision."""
    core.look(core.report("Pong", "resumed", step=resumed), Pong={"steps": resumed})
    core.watch(2, Pong={"steps": well, "q_max_abs": 60.0, **Q})
    explode(core, well + 1000, seconds)
    assert core.phase("Pong") is Phase.STOPPING
    return core.ended("Pong", signal=9, steps=well + 2000)


def again(core):
    """The next attempt runs."""
    if core.phase("Pong") is Phase.BACKOFF:
        core.to_wake()
    core.spawned("Pong")


@pytest.mark.fault("exploding-q")
def test_a_q_beyond_what_the_game_can_pay_is_rolled_back_to_when_it_was_well():
    core = running()
    core.watch(3, Pong={"steps": 79_990, "q_max_abs": 99.0, **Q})
    save(core, 79_990, q_max_abs=90.0, **Q)
    core.watch(1, Pong={"steps": 80_000, "q_max_abs": 90.0, **Q})
    core.watch(30, Pong={"steps": counting(80_010), "q_max_abs": 500.0, **Q})
    core.watch(59, Pong={"steps": counting(90_000), "q_max_abs": 1200.0, **Q})
    assert core.phase("Pong") is Phase.RUNNING, "a minute of it, not less"
    explode(core, 95_000, 3)
    assert core.phase("Pong") is Phase.STOPPING
    told = core.told(facts.Sickened)[0]
    assert (told.illness, told.action, told.fine_step) == ("exploding", "rollback", 80_000)
    assert told.why.startswith("its Q exploded for 1m: largest |Q| 1200, possible |Q| 100")
    assert told.evidence["largest |Q|"] == "1200"
    assert core.told(facts.KillIntended), "what it would save is not wanted"
    decision = core.ended("Pong", signal=9, steps=95_010, ckpt_step=94_000)
    assert core.told(facts.Exited)[0].cause == "sick"
    assert of(decision, commands.RollBack) == [commands.RollBack("Pong", 80_000)]
    assert core.program("Pong").rollbacks == 1
    assert of(decision, commands.Spawn) == [] or of(decision, commands.Spawn)[0].rollbacks == 1


@pytest.mark.fault("exploding-q")
def test_the_budget_is_that_of_divergences_and_then_it_is_given_up():
    core = running()
    exploded(core, 0, 80_000)
    for number in (1, 2, 3):
        assert core.fruitless("rollback") == number
        again(core)
        exploded(core, 70_000, 75_000)
    assert core.phase("Pong") is Phase.FATAL
    assert "its Q exploded again after 3 rollbacks" in core.program("Pong").why


@pytest.mark.fault("exploding-q")
def test_a_checkpoint_beyond_it_forgives_only_when_it_was_well_then():
    core = running()
    exploded(core, 0, 80_000)
    again(core)
    core.look(core.report("Pong", "resumed", step=70_000), Pong={"steps": 70_000})
    save(core, 90_000, q_max_abs=400.0, **Q)
    assert core.fruitless("rollback") == 1, "on its way to the next explosion"
    core.later(600.0)
    save(core, 91_000, q_max_abs=60.0, **Q)
    assert core.fruitless("rollback") == 0


def test_a_look_at_which_it_did_not_move_says_nothing():
    core = running()
    core.watch(2, Pong={"steps": 10, "q_max_abs": 60.0, **Q})
    core.watch(25, Pong={"steps": 20, "q_max_abs": 1e9, "progress_at_s": core.now_s, **Q})
    assert core.memory.watches["Pong"].spells == {}


def test_what_is_between_sick_and_well_neither_begins_nor_ends_a_spell():
    core = running()
    explode(core, 10, 40)
    core.watch(10, Pong={"steps": counting(1000), "q_max_abs": 300.0, **Q})
    assert core.memory.watches["Pong"].spells
    core.watch(2, Pong={"steps": counting(2000), "q_max_abs": 60.0, **Q})
    assert not core.memory.watches["Pong"].spells
    assert core.told(facts.Sickened) == []


@pytest.mark.fault("collapsed-entropy")
def test_a_collapsed_policy_is_reported_once_shown_and_over_when_it_tries_again():
    core = running()
    low = {"entropy_share": 0.002, "mean_return": 3.0, **RETURNS}
    core.watch(1700, 10.0, Pong={"steps": counting(10), **low})
    assert core.told(facts.Sickened) == []
    core.watch(300, 10.0, Pong={"steps": counting(5000), **low})
    assert [fact.illness for fact in core.told(facts.Sickened)] == ["collapsed"]
    assert core.phase("Pong") is Phase.RUNNING
    sample = core.memory.watches["Pong"].sample
    view = program_view(core.program("Pong"), sample, core.settings, core.state, now_s=core.now_s)
    assert view["why"] == "training, but its policy collapsed: see explain"
    core.watch(2, Pong={"steps": counting(9000), **low, "entropy_share": 0.2})
    assert [fact.illness for fact in core.told(facts.Healed)] == ["collapsed"]
    assert core.attempt("Pong").illnesses == ()


@pytest.mark.fault("falling-return")
@pytest.mark.parametrize("action", ["tell", "rollback", "new_seed", "give_up"])
def test_a_fallen_return_is_reported_after_so_many_games_and_what_follows_is_the_programs_choice(action):
    core = running(on_sick=action)
    core.watch(2, Pong={"steps": 1000, "episodes": 100, "mean_return": 21.0, **RETURNS})
    save(core, 1000, episodes=100, mean_return=21.0, **RETURNS)
    core.watch(99, Pong={"steps": counting(1100), "episodes": counting(100), "mean_return": 4.0, **RETURNS})
    assert core.told(facts.Sickened) == []
    core.watch(3, Pong={"steps": counting(3000), "episodes": counting(1090), "mean_return": 4.0, **RETURNS})
    told = core.told(facts.Sickened)
    assert [(fact.illness, fact.action, fact.fine_step) for fact in told] == [("falling", action, 1010)]
    assert core.phase("Pong") is (Phase.RUNNING if action == "tell" else Phase.STOPPING)
    assert bool(core.told(facts.KillIntended)) == (action == "rollback")
    if action == "tell":
        return
    decision = core.ended("Pong", code=75, steps=3030, ckpt_step=3030)
    asked = of(decision, commands.RollBack)
    assert asked == ([commands.RollBack("Pong", 1010)] if action == "rollback" else [])
    assert core.phase("Pong") is (Phase.FATAL if action == "give_up" else core.phase("Pong"))
    assert core.program("Pong").rollbacks == (0 if action == "give_up" else 1)
    assert ("the config says to give up" in core.program("Pong").why) == (action == "give_up")


@pytest.mark.fault("falling-return")
def test_new_seeds_have_a_budget_too():
    core = running(on_sick="new_seed")
    for _ in range(4):
        core.watch(2, Pong={"steps": 1000, "q_max_abs": 60.0, **Q})
        explode(core, 1100)
        core.ended("Pong", code=75)
        if core.phase("Pong") is not Phase.FATAL:
            again(core)
    assert core.phase("Pong") is Phase.FATAL
    assert core.told(facts.RolledBack)[0].from_step is None


def test_games_that_are_not_counted_are_no_fall_and_a_worker_that_leaves_is_not_judged():
    core = running()
    core.watch(2000, 10.0, Pong={"steps": counting(10), "mean_return": 4.0, **RETURNS})
    assert core.told(facts.Sickened) == []
    core.ask("stop", "Pong")
    core.watch(15, Pong={"steps": counting(90_000), "q_max_abs": 1e6, **Q})
    assert core.told(facts.Sickened) == []
    core.watch(2, Pong={"steps": None, "q_max_abs": 1.0, **Q})
    assert core.memory.watches["Pong"].well_at == {}


def test_nothing_is_known_of_a_worker_that_tells_nothing():
    from supervisor.deciding.health import figures
    from supervisor.model.inputs import Sample

    assert figures(Sample("t")) == "no figures known"
