"""Faults of a worker's side, told: what goes wrong, and the journal's account of it, to the second."""

import pytest
from test_stories import quiet_world, told, worker
from world import Ending


@pytest.mark.fault("gil")
def test_a_loop_holds_the_gil():
    world = quiet_world()
    found = worker(world)
    found.stick(world.now_s)
    found.live_at_s = world.now_s
    world.run(60.0)
    assert told(world) == [
        "0:10:31  P0   no progress for 31s while training (limit 30s): none of its threads ran for 31s: something holds the GIL",
        "0:10:32  P0   evidence taken before healing: stacks",
        "0:10:33  P0   stops the stalled worker (gil)",
        "0:10:36  P0   did not exit within 3s: SIGKILL to its whole process tree",
        "0:10:36  P0   ended after a stall (gil), killed by SIGKILL; +0 s",
        "0:10:42  P0   resumed at step 59,175 (last exit: stalled), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:42  P0   training began 5.9s after its start",
    ]


@pytest.mark.fault("beat-damaged")
def test_a_beat_that_cannot_be_read_is_unknown_and_not_stalled():
    """Its log still grows; ten minutes later nothing of it moves any more."""
    world = quiet_world()
    found = worker(world)
    found.beat_lost = True
    found.stick(world.now_s)
    world.run(660.0)
    assert told(world)[0] == ("0:20:01  P0   no progress for 10m 1s while training (limit 10m): it sends no beats")


@pytest.mark.fault("segfault")
def test_a_worker_segfaults():
    world = quiet_world()
    world.end(worker(world).token, Ending(signal=11, last_lines=("Fatal Python error: Segmentation fault",)))
    world.run(30.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGSEGV: Fatal Python error: Segmentation fault; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: crash), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
    ]


@pytest.mark.fault("slow")
def test_a_worker_slows_to_a_crawl_for_ten_minutes():
    world = quiet_world()
    found = worker(world)
    found.pace = 0.2
    world.run(600.0)
    found.advance(world.now_s)
    found.pace = 1.0
    world.run(60.0)
    assert told(world) == [
        "0:11:01  P0   20 steps/s for 1m, usually 100 steps/s",
        "0:11:02  P0   evidence taken while slow: stacks",
        "0:20:01  P0   100 steps/s again, after 9m of slowness",
    ]


@pytest.mark.fault("slow")
def test_a_worker_slows_to_a_crawl_and_stays_there():
    world = quiet_world(programs=2, slots=2)
    worker(world, "P0").pace = 0.2
    world.run(2000.0)
    assert told(world) == [
        "0:11:01  P0   20 steps/s for 1m, usually 100 steps/s",
        "0:11:02  P0   evidence taken while slow: stacks",
        "0:41:01  P0   slow for 30m while no other program is: saves and restarts",
        "0:41:04  P0   stopped on request (slow), exit code 75",
        "0:41:04  P0   restarts because it was slow",
        "0:41:04  P0   a slot of level light is free",
        "0:41:10  P0   resumed at step 96,741 (last exit: stopped), 0 steps lost (0s, 0.0 % of the attempt)",
        "0:41:10  P0   training began 5.2s after its start",
        "0:42:09  P0   the restart has helped: its rate is usual again",
    ]
    assert world.core.state.programs["P0"].restarts == 0


@pytest.mark.fault("slow")
def test_all_workers_slow_down_with_their_box():
    world = quiet_world(programs=2, slots=2)
    for name in ("P0", "P1"):
        worker(world, name).pace = 0.4
    world.run(7200.0)
    assert told(world) == [
        "0:11:01  P0   40 steps/s for 1m, usually 100 steps/s",
        "0:11:01  P1   40 steps/s for 1m, usually 100 steps/s",
        "0:11:01  P1   evidence taken while slow: stacks",
        "0:11:02  P0   evidence taken while slow: stacks",
    ]


@pytest.mark.fault("nan")
def test_the_loss_becomes_nan_until_it_is_given_up():
    world = quiet_world()
    for _ in range(4):
        found = worker(world)
        found.ignores_term = False
        world.end(found.token, Ending(code=65, last_lines=("workers: diverged",)))
        world.run(40.0)
    world.run(10.0)
    assert told(world) == [
        "0:10:00  P0   its losses were no longer finite: workers: diverged",
        "0:10:00  P0   diverged at step 59,469: rollback 1 of 3: checkpoints from step 59,175 on are set aside; restarts with another random seed",
        "0:10:00  P0   its losses were no longer finite: workers: diverged; +0 s",
        "0:10:06  P0   resumed at step 58,416 (last exit: diverged), 1,053 steps lost (11s, 1.8 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
        "0:10:40  P0   its losses were no longer finite: workers: diverged",
        "0:10:40  P0   diverged at step 61,899: rollback 2 of 3: checkpoints from step 58,416 on are set aside; restarts with another random seed",
        "0:10:40  P0   its losses were no longer finite: workers: diverged; +0 s",
        "0:10:46  P0   resumed at step 57,656 (last exit: diverged), 4,243 steps lost (42s, 100.0 % of the attempt)",
        "0:10:46  P0   training began 5.8s after its start",
        "0:11:20  P0   its losses were no longer finite: workers: diverged",
        "0:11:20  P0   diverged at step 61,135: rollback 3 of 3: checkpoints from step 57,656 on are set aside; restarts with another random seed",
        "0:11:20  P0   its losses were no longer finite: workers: diverged; +0 s",
        "0:11:26  P0   resumed at step 56,897 (last exit: diverged), 4,238 steps lost (42s, 100.0 % of the attempt)",
        "0:11:26  P0   training began 5.9s after its start",
        "0:12:00  P0   its losses were no longer finite: workers: diverged; diverged again after 3 rollbacks; it starts again after a change of its config or `extralifectl start`",
    ]


@pytest.mark.fault("nan")
def test_a_worker_beats_on_with_nan():
    world = quiet_world()
    worker(world).bad_since_s = world.now_s
    world.run(120.0)
    assert told(world) == [
        "0:11:01  P0   none of its 610 losses of the last 1m was finite, and earlier ones were",
        "0:11:04  P0   ended because its losses were no longer finite, exit code 75",
        "0:11:04  P0   diverged at step 65,927: rollback 1 of 3: checkpoints from step 59,469 on are set aside; restarts with another random seed",
        "0:11:04  P0   ended because its losses were no longer finite, exit code 75; +0 s",
        "0:11:10  P0   resumed at step 59,175 (last exit: diverged), 6,752 steps lost (1m 8s, 10.2 % of the attempt)",
        "0:11:10  P0   training began 5.2s after its start",
    ]


@pytest.mark.fault("exploding-q")
def test_q_explodes():
    world = quiet_world()
    found = worker(world)
    found.figures = {"q_max_abs": 20.0, "q_bound": 100.0}
    world.run(10.0)
    found.figures = {"q_max_abs": 5e4, "q_bound": 100.0}
    world.run(90.0)
    assert told(world) == [
        "0:11:11  P0   its Q exploded for 1m and 600 games: largest |Q| 5e+04, possible |Q| 100; it is killed and rolled back",
        "0:11:11  P0   SIGKILL to its whole process tree at once, without time to save",
        "0:11:11  P0   ended because its training went wrong, killed by SIGKILL",
        "0:11:11  P0   its Q exploded at step 66,565: rollback 1 of 3: checkpoints from step 60,468 on are set aside; restarts with another random seed",
        "0:11:11  P0   ended because its training went wrong, killed by SIGKILL; +0 s",
        "0:11:17  P0   resumed at step 59,934 (last exit: sick), 6,631 steps lost (1m 6s, 10.0 % of the attempt)",
        "0:11:17  P0   training began 5.9s after its start",
    ]


@pytest.mark.fault("collapsed-entropy")
def test_a_policy_collapses():
    world = quiet_world()
    worker(world).figures = {
        "entropy_share": 0.001,
        "mean_return": 15.0,
        "best_return": 20.0,
        "first_return": 1.0,
        "best_spread": 4.0,
    }
    world.run(1900.0)
    assert told(world) == [
        "0:40:01  P0   its policy collapsed for 30m and 17,991 games: entropy share 0.001, mean return 15, best return 20; it trains on"
    ]


@pytest.mark.fault("falling-return")
def test_the_return_falls():
    world = quiet_world()
    worker(world).figures = {"mean_return": 2.0, "best_return": 20.0, "first_return": 1.0, "best_spread": 4.0}
    world.run(120.0)
    assert told(world) == [
        "0:11:41  P0   its return fell for 1m 40s and 1,000 games: mean return 2, best return 20; it trains on"
    ]


@pytest.mark.fault("memory-error")
def test_a_worker_runs_out_of_memory_until_its_batch_fits():
    world = quiet_world()
    for batch in (512, 256):
        world.end(worker(world).token, Ending(code=1, last_lines=("MemoryError",), batch_size=batch))
        world.run(30.0)
    world.run(10.0)
    assert told(world) == [
        "0:10:00  P0   ran out of the host's memory, exit code 1: MemoryError",
        "0:10:00  P0   ran out of memory with batch 512 at level light: 256 from now on",
        "0:10:00  P0   ran out of the host's memory, exit code 1: MemoryError; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: out_of_memory), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
        "0:10:30  P0   ran out of the host's memory, exit code 1: MemoryError",
        "0:10:30  P0   ran out of memory with batch 256 at level light: 128 from now on",
        "0:10:30  P0   ran out of the host's memory, exit code 1: MemoryError; +0 s",
        "0:10:36  P0   resumed at step 61,452 (last exit: out_of_memory), 207 steps lost (2s, 8.3 % of the attempt)",
        "0:10:36  P0   training began 5.8s after its start",
    ]
    assert world.core.state.programs["P0"].at("light").batch_size == 128


@pytest.mark.fault("oom-kill")
def test_the_kernels_oom_killer_takes_one_worker_and_somebody_kills_the_other():
    world = quiet_world(programs=2, slots=2)
    world.end(worker(world, "P0").token, Ending(signal=9, batch_size=512, oom_kills=(0, 1)))
    world.run(20.0)
    world.end(worker(world, "P1").token, Ending(signal=9, batch_size=512, oom_kills=(0, 1)))
    world.run(30.0)
    assert told(world) == [
        "0:10:00  P0   killed by the kernel's OOM killer: it acted in a cgroup that the worker shares, while it ran",
        "0:10:00  P0   ran out of memory with batch 512 at level light: 256 from now on",
        "0:10:00  P0   killed by the kernel's OOM killer: it acted in a cgroup that the worker shares, while it ran; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: oom_killed), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
        "0:10:20  P1   killed by SIGKILL, which extralife did not send; +0 s",
        "0:10:26  P1   resumed at step 61,452 (last exit: killed), 15 steps lost (0s, 0.0 % of the attempt)",
        "0:10:26  P1   training began 6s after its start",
    ]


@pytest.mark.fault("disk-full-checkpoint")
def test_the_disk_is_full_when_it_saves_and_a_death_costs_what_was_not_saved():
    world = quiet_world()
    world.disks["P0"].full = True
    world.run(300.0)
    assert world.core.state.programs["P0"].attempt.save_error
    world.end(worker(world).token, Ending(signal=9))
    world.run(20.0)
    world.disks["P0"].full = False
    world.run(200.0)
    assert told(world) == [
        "0:10:05  P0   checkpoint at step 59934 was not written: No space left on device: make room (df -h, df -i) (0.0 MB free); it trains on",
        "0:15:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        "0:15:06  P0   resumed at step 59,175 (last exit: killed), 30,278 steps lost (5m 3s, 33.8 % of the attempt)",
        "0:15:06  P0   training began 5.9s after its start",
        "0:15:13  P0   checkpoint at step 59934 was not written: No space left on device: make room (df -h, df -i) (0.0 MB free); it trains on",
    ]
    assert not world.core.state.programs["P0"].attempt.save_error


DEFECTS = {
    "flipped": "tensors.safetensors does not match its digest",
    "truncated": "tensors.safetensors has 13 bytes, expected 1,700",
    "empty": "tensors.safetensors has 0 bytes, expected 1,700",
    "missing": "tensors.safetensors is missing",
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("flipped", marks=pytest.mark.fault("checkpoint-flipped")),
        pytest.param("truncated", marks=pytest.mark.fault("checkpoint-truncated")),
        pytest.param("empty", marks=pytest.mark.fault("checkpoint-empty")),
        pytest.param("missing", marks=pytest.mark.fault("checkpoint-missing")),
    ],
)
def test_the_newest_checkpoint_is_damaged(kind):
    world = quiet_world()
    disk = world.disks["P0"]
    disk.damage[disk.newest()] = DEFECTS[kind]
    world.end(worker(world).token, Ending(signal=9))
    world.run(30.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        f"0:10:06  P0   ckpt-59175.bad was set aside: {DEFECTS[kind]}",
        "0:10:06  P0   resumed at step 58,416 (last exit: killed), 1,053 steps lost (11s, 1.8 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
    ]


def test_no_checkpoint_is_whole():
    world = quiet_world()
    disk = world.disks["P0"]
    disk.damage.update(dict.fromkeys(disk.checkpoints[-2:], DEFECTS["empty"]))
    disk.checkpoints = disk.checkpoints[-2:]
    world.end(worker(world).token, Ending(signal=9))
    world.run(30.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        "0:10:06  P0   ckpt-59175.bad was set aside: tensors.safetensors has 0 bytes, expected 1,700",
        "0:10:06  P0   ckpt-58416.bad was set aside: tensors.safetensors has 0 bytes, expected 1,700",
        (
            "0:10:06  P0   no checkpoint was found, although there was one at step 59,175; resumed at step 0 (last exit: killed), 59,469 "
            "steps lost (9m 55s, 100.0 % of the attempt)"
        ),
        "0:10:06  P0   the worker reports from_scratch: error: no checkpoint is whole, step: 0",
        "0:10:06  P0   training began 5.9s after its start",
    ]


@pytest.mark.fault("checkpoint-poison")
def test_a_checkpoint_kills_whoever_loads_it():
    world = quiet_world()
    disk, spawn = world.disks["P0"], world.spawn
    poisonous = disk.newest()

    def spawn_one_that_may_die(name, number, token):
        spawn(name, number, token)
        if disk.newest() == poisonous:
            world.after(6.0, world.end, token, Ending(signal=11))

    world.spawn = spawn_one_that_may_die
    world.end(worker(world).token, Ending(signal=11))
    world.run(60.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGSEGV; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: crash), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
        "0:10:07  P0   killed by SIGSEGV; +1 s",
        "0:10:13  P0   resumed at step 59,175 (last exit: crash), 100 steps lost (1s, 100.0 % of the attempt)",
        "0:10:13  P0   training began 5.7s after its start",
        "0:10:15  P0   killed by SIGSEGV; +2 s",
        "0:10:21  P0   resumed at step 59,175 (last exit: crash), 100 steps lost (1s, 100.0 % of the attempt)",
        "0:10:21  P0   training began 5.6s after its start",
        "0:10:21  P0   killed by SIGSEGV",
        "0:10:21  P0   3 deaths in a row after resuming from step 59175: the checkpoint before it is used",
        "0:10:25  P0   killed by SIGSEGV; +4 s",
        "0:10:31  P0   resumed at step 58,416 (last exit: crash), 859 steps lost (9s, 100.0 % of the attempt)",
        "0:10:31  P0   training began 5.5s after its start",
    ]
    assert poisonous not in disk.checkpoints
