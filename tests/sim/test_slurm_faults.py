"""Random harm to a simulated Slurm: no program is ever submitted twice, none trains twice, and all reach their targets."""

import pytest
from slurm_world import HARM, SlurmWorld

from supervisor.model import facts
from supervisor.model.inputs import Verb
from supervisor.model.lifecycle import Phase


def harmed(world):
    for _ in range(25):
        for _ in range(world.chance.randint(1, 40)):
            world.step()
        world.harm()
    return world


@pytest.mark.parametrize("seed", range(8))
def test_twenty_five_faults_and_no_double_submission(seed, tmp_path):
    """200 faults in all: answers that are late or lost, daemons killed in between, controllers and nodes that go away."""
    world = harmed(SlurmWorld(seed, tmp_path))
    assert len(world.faults) == 25
    for _ in range(3000):
        world.step()
        for name in world.names:
            if world.core.phase(name) is Phase.STOPPED:
                world.ask(Verb.START, name)
        if all(world.core.phase(name) is Phase.DONE for name in world.names):
            break
    assert {world.core.phase(name) for name in world.names} == {Phase.DONE}
    assert world.slurm.live() == []


def test_the_harm_is_real(tmp_path):
    """Over all seeds every kind of harm strikes: a simulator that does nothing would find nothing."""
    kinds = {kind for seed in range(8) for kind in _kinds(seed, tmp_path / str(seed))}
    assert kinds == set(HARM)


def _kinds(seed, tmp_path):
    world = SlurmWorld(seed, tmp_path)
    for _ in range(25):
        for _ in range(world.chance.randint(1, 3)):
            world.step()
        world.harm()
    return {kind for _, kind in world.faults}


def test_the_simulator_finds_a_daemon_that_submits_again_too_soon(tmp_path):
    """Otherwise it would show nothing that nothing is found."""
    with pytest.raises(AssertionError, match="P0 has jobs"):
        harmed(SlurmWorld(1, tmp_path, settle_s=3.0))


def test_the_links_of_a_chain_cost_nothing(tmp_path):
    world = SlurmWorld(1, tmp_path, programs=1)
    for _ in range(2000):
        world.step()
    assert world.core.phase("P0") is Phase.DONE
    causes = [fact.cause for fact in world.told(facts.Exited)]
    assert causes == ["time_limit", "time_limit", "done"]
    assert world.slurm.submissions == 3
    assert world.core.program("P0").failures == 0
