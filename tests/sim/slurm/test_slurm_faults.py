"""Random harm to a simulated Slurm: no program is ever submitted twice, none trains twice, and all reach their targets."""

from dataclasses import replace

import pytest
from slurm_world import HARM, SlurmWorld

from supervisor.deciding import decide, features
from supervisor.features.slurm import decide as cluster
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
    with pytest.raises(AssertionError, match="P2 has jobs"):
        harmed(SlurmWorld(40, tmp_path, settle_s=3.0))


def test_the_links_of_a_chain_cost_nothing(tmp_path):
    world = SlurmWorld(1, tmp_path, programs=1)
    for _ in range(2000):
        world.step()
    assert world.core.phase("P0") is Phase.DONE
    causes = [fact.cause for fact in world.told(facts.Exited)]
    assert causes == ["time_limit", "time_limit", "done"]
    assert len(world.slurm.jobs_) == 3
    assert world.core.program("P0").restarts == 0


def test_a_job_that_was_put_back_does_not_go_on_with_the_resources_of_the_level_before(tmp_path, monkeypatch):
    world = SlurmWorld(1, tmp_path, programs=1)
    requeued_over_a_change(world)
    assert {job.partition for job in world.slurm.jobs_.values()} == {"main", "fast"}

    def as_if_not_asked(context, name, ending, before):
        program = before.programs[name]
        unasked = replace(program, attempt=replace(program.attempt, stop=None))
        cluster.FEATURE.ended(context, name, ending, replace(before, programs={**before.programs, name: unasked}))

    rows = [replace(row, ended=as_if_not_asked) if row is cluster.FEATURE else row for row in features.FEATURES]
    monkeypatch.setattr(decide, "FEATURES", tuple(rows))
    with pytest.raises(AssertionError, match="of P0"):  # else the simulator would show nothing
        requeued_over_a_change(SlurmWorld(1, tmp_path / "again", programs=1))


def requeued_over_a_change(world):
    """Again and again its job is lost and put back, and the level changes before the core has heard of it."""
    for _ in range(4):
        while not (running := [job for job in world.slurm.live() if job.run is not None]):
            world.step()
        world.step()
        world.slurm.vanish(running[0], requeue=True)
        world.launcher.poll()
        world.clock.at_s += 60.0  # the loop is held up, while the launcher waits in vain for the node's last word
        world.launcher.poll()
        world.ask(Verb.PIN, "heavy" if world.core.state.level == "light" else "light")
        for _ in range(30):
            world.step()


def test_a_gpu_that_breaks_is_the_nodes_fault_and_costs_no_restart_budget(tmp_path):
    world = SlurmWorld(3, tmp_path, programs=1)
    while not (running := [job for job in world.slurm.live() if job.run is not None]):
        world.step()
    for _ in range(10):
        world.step()
    node = running[0].row.nodes[0]
    world.slurm.drained[node] = "gpu ecc"
    world.slurm.end(running[0], "FAILED", code=1)
    for _ in range(10):
        world.step()
    assert [(fact.cause, fact.counted) for fact in world.told(facts.Exited)] == [("node_failed", False)]
    assert [(fact.node, fact.partition) for fact in world.told(facts.NodeFaulted)] == [(node, "main")]
    assert world.core.program("P0").restarts == 0
