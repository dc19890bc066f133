"""Stories about going back to a backup: whatever dies in between, it ends there, and nobody runs meanwhile."""

import pytest
from test_stories import quiet_world, told, worker
from world import Odds, Verb, World

from supervisor.model import facts


def backed_up(world):
    """A backup of all; then ten minutes of training beyond it."""
    world.ask(Verb.BACKUP)
    world.run(60.0)
    (name,) = world.backups
    world.run(600.0)
    return name


def test_a_night_is_taken_back():
    world = quiet_world(programs=2)
    name = backed_up(world)
    step, was_at = world.backups[name]["P0"], int(worker(world, "P0").steps)
    world.ask(Verb.ROLLBACK, "P0", text=name)
    world.run(120.0)
    assert worker(world, "P0").resumed == step < was_at - 30_000
    kept = next(found for found in world.backups if found != name)
    assert world.backups[kept]["P0"] >= was_at, "what was there is kept"
    assert "P1" not in world.backups[kept]
    assert worker(world, "P1").number == 1, "the other one was not touched"
    assert not world.waiting
    lines = [line for line in told(world) if " P0 " in line or "back to" in line]
    assert any(f"back to {name}: P0 at step {step:,}; the state before it is backup {kept}" in line for line in lines)


@pytest.mark.parametrize("after_s", [0.0, 6.0, 20.0])
@pytest.mark.parametrize("end", ["kill_daemon", "reboot"])
def test_what_is_interrupted_at_any_moment_is_finished_by_the_next_daemon(end, after_s):
    world = quiet_world(programs=2)
    name = backed_up(world)
    world.ask(Verb.ROLLBACK, text=name)
    world.run(after_s)
    getattr(world, end)()
    world.run(400.0)
    ends = [row.fact for row in world.core.journal if isinstance(row.fact, facts.RolledBackTo | facts.RollbackFailed)]
    assert [type(fact) for fact in ends] == [facts.RolledBackTo]
    for program in ("P0", "P1"):
        resumes = [
            row.fact.step
            for row in world.core.journal
            if isinstance(row.fact, facts.Resumed) and row.fact.program == program
        ]
        assert world.backups[name][program] in resumes
        assert worker(world, program).steps > world.backups[name][program]


@pytest.mark.parametrize("seed", [3])
def test_in_a_rough_night_backups_and_rollbacks_end(seed):
    world = World(seed, odds=Odds(crash_s=900.0, daemon_kill_s=1200.0, operator_s=900.0), look_s=20.0).begin()
    for number in range(8):
        world.run(1700.0)
        if number % 2 and world.backups:
            world.ask(Verb.ROLLBACK, text=next(iter(world.backups)))
        else:
            world.ask(Verb.BACKUP)
    world.calm_down()
    world.run(3 * 3600.0)
    record = world.core.state.backups
    assert (record.making, record.rollback) == ((), None)
