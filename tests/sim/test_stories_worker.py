"""Faults of a worker's side, told: what goes wrong, and the journal's account of it, to the second."""

import dataclasses

import pytest
from test_stories import quiet_world, told, worker
from world import Ending

from supervisor.core import facts


def say(world, seconds):
    world.run(seconds)
    for line in told(world):
        print(f'        "{line}",')  # noqa: T201
    return told(world)


@pytest.mark.fault("gil")
def test_a_loop_holds_the_gil():
    world = quiet_world()
    found = worker(world)
    found.stick(world.now_s)
    found.live_at_s = world.now_s
    assert say(world, 60.0) == []


@pytest.mark.fault("no-progress")
def test_a_worker_beats_without_getting_on():
    world = quiet_world()
    worker(world).stick(world.now_s)
    assert say(world, 60.0) == []


@pytest.mark.fault("segfault")
def test_a_worker_segfaults():
    world = quiet_world()
    world.end(worker(world).token, Ending(signal=11, last_lines=("Fatal Python error: Segmentation fault",)))
    assert say(world, 30.0) == []


@pytest.mark.fault("slow")
def test_a_worker_slows_to_a_crawl_for_ten_minutes():
    world = quiet_world()
    found = worker(world)
    found.pace = 0.2
    world.run(600.0)
    found.advance(world.now_s)
    found.pace = 1.0
    assert say(world, 60.0) == []


@pytest.mark.fault("slow")
def test_a_worker_slows_to_a_crawl_and_stays_there():
    world = quiet_world(programs=2, slots=2)
    worker(world, "P0").pace = 0.2
    assert say(world, 2000.0) == []
    assert world.core.state.programs["P0"].restarts == 0


@pytest.mark.fault("slow")
def test_all_workers_slow_down_with_their_box():
    world = quiet_world(programs=2, slots=2)
    for name in ("P0", "P1"):
        worker(world, name).pace = 0.4
    assert say(world, 7200.0) == []


@pytest.mark.fault("nan")
def test_the_loss_becomes_nan_until_it_is_given_up():
    world = quiet_world()
    for _ in range(4):
        found = worker(world)
        found.ignores_term = False
        world.end(found.token, Ending(code=65, last_lines=("workers: diverged",)))
        world.run(40.0)
    assert say(world, 10.0) == []


@pytest.mark.fault("nan")
def test_a_worker_beats_on_with_nan():
    world = quiet_world()
    worker(world).bad_since_s = world.now_s
    assert say(world, 120.0) == []


@pytest.mark.fault("memory-error")
def test_a_worker_runs_out_of_memory_until_its_batch_fits():
    world = quiet_world()
    for batch in (512, 256):
        world.end(worker(world).token, Ending(code=1, last_lines=("MemoryError",), batch_size=batch))
        world.run(30.0)
    assert say(world, 10.0) == []
    assert world.core.state.programs["P0"].batches == (("light", 128),)


@pytest.mark.fault("oom-kill")
def test_the_kernels_oom_killer_takes_one_worker_and_somebody_kills_the_other():
    world = quiet_world(programs=2, slots=2)
    world.end(worker(world, "P0").token, Ending(signal=9, batch_size=512, oom_kills=(0, 1)))
    world.run(20.0)
    world.end(worker(world, "P1").token, Ending(signal=9, batch_size=512, oom_kills=(0, 1)))
    assert say(world, 30.0) == []


@pytest.mark.fault("disk-full-checkpoint")
def test_the_disk_is_full_when_it_saves_and_a_death_costs_what_was_not_saved():
    world = quiet_world()
    world.disks["P0"].full = True
    world.run(300.0)
    assert world.core.state.programs["P0"].attempt.save_error
    world.end(worker(world).token, Ending(signal=9))
    world.run(20.0)
    world.disks["P0"].full = False
    assert say(world, 200.0) == []
    assert not world.core.state.programs["P0"].attempt.save_error


DEFECTS = {
    "flipped": "tensors.safetensors does not match its digest",
    "truncated": "tensors.safetensors has 13 bytes, expected 1,700",
    "empty": "tensors.safetensors has 0 bytes, expected 1,700",
    "missing": "tensors.safetensors is missing",
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.fault(f"checkpoint-{kind}")) for kind in DEFECTS])
def test_the_newest_checkpoint_is_damaged(kind):
    world = quiet_world()
    disk = world.disks["P0"]
    disk.damage[disk.newest()] = DEFECTS[kind]
    world.end(worker(world).token, Ending(signal=9))
    assert say(world, 30.0) == []


def test_no_checkpoint_is_whole():
    world = quiet_world()
    disk = world.disks["P0"]
    disk.damage.update(dict.fromkeys(disk.checkpoints[-2:], DEFECTS["empty"]))
    disk.checkpoints = disk.checkpoints[-2:]
    world.end(worker(world).token, Ending(signal=9))
    assert say(world, 30.0) == []


@pytest.mark.fault("checkpoint-poison")
def test_a_checkpoint_kills_whoever_loads_it():
    world = quiet_world()
    disk = world.disks["P0"]
    disk.poison.add(disk.newest())
    world.end(worker(world).token, Ending(signal=11))
    assert say(world, 200.0) == []
    assert dataclasses.asdict(world.core.state.programs["P0"])["quarantined_since_ckpt"] or facts
