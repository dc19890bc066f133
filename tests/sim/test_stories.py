"""Seven nights, told: what goes wrong, and the journal's account of it, to the second."""

import dataclasses

import pytest
from world import CALM, Ending, Verb, World


def quiet_world(**more):
    """Nothing goes wrong by itself; the programs have trained for ten minutes."""
    world = World(7, odds=dataclasses.replace(CALM), **{"programs": 1, "look_s": 1.0, **more}).begin()
    world.run(600.0)
    return world


def worker(world, name="P0"):
    """The live process of a program, brought up to now."""
    (found,) = world.alive(name)
    found.advance(world.now_s)
    return found


def told(world):
    """The tale from the fault on; what only repeats its neighbour (a cause, then the same cause and its consequence) once."""
    lines = [line for line in world.tale(600.0) if "earlier deaths no longer count" not in line]
    return [line for line, then in zip(lines, [*lines[1:], ""], strict=True) if line[9:] not in then]


@pytest.mark.fault("killed")
def test_a_worker_is_killed():
    world = quiet_world()
    world.end(worker(world).token, Ending(signal=9))
    world.run(700.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: killed), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
    ]


@pytest.mark.fault("stopped")
def test_a_worker_is_stopped_by_someone():
    world = quiet_world()
    found = worker(world)
    found.stick(world.now_s)
    found.state = "T"
    world.run(60.0)
    assert told(world) == [
        "0:10:06  P0   someone stopped the process (state T): no progress for 6s while training",
        "0:10:07  P0   makes progress again after SIGCONT, 1s after the stall",
    ]


@pytest.mark.fault("envpool-hang")
@pytest.mark.fault("no-progress")
def test_an_environment_never_returns():
    world = quiet_world()
    worker(world).stick(world.now_s)
    world.run(60.0)
    assert told(world) == [
        "0:10:31  P0   no progress for 31s while training (limit 30s): its other threads run, so a call in Python, the environment or CUDA never returned",
        "0:10:32  P0   evidence taken before healing: stacks",
        "0:10:33  P0   stops the stalled worker (hang)",
        "0:10:36  P0   did not exit within 3s: SIGKILL to its whole process tree",
        "0:10:36  P0   ended after a stall (hang), killed by SIGKILL; +0 s",
        "0:10:42  P0   resumed at step 59,175 (last exit: stalled), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:42  P0   training began 5.9s after its start",
    ]


def test_the_disk_fills_up_and_is_freed_at_dawn():
    world = quiet_world(look_s=30.0, lively_s=1.0)
    world.odds.bad_start = 1.0
    world.bad_code = 1
    world.end(worker(world).token, Ending(code=1, last_lines=("OSError: disk full",)))
    world.run(4 * 3600.0)
    world.odds.bad_start = 0.0
    world.run(5 * 3600.0)
    assert told(world) == [
        "0:10:00  P0   exit code 1: OSError: disk full; +0 s",
        "0:10:03  P0   exit code 1: OSError: disk full; +1 s",
        "0:10:07  P0   exit code 1: OSError: disk full; +2 s",
        "0:10:13  P0   exit code 1: OSError: disk full; +4 s",
        "0:10:22  P0   exit code 1: OSError: disk full; +8 s",
        "0:10:41  P0   exit code 1: OSError: disk full; +16 s",
        "0:11:17  P0   exit code 1: OSError: disk full; +32 s",
        "0:41:20  P0   exit code 1: OSError: disk full; +1800 s",
        "1:41:23  P0   exit code 1: OSError: disk full; +3600 s",
        "3:41:25  P0   exit code 1: OSError: disk full; +7200 s",
        "7:41:26  P0   exit code 1: OSError: disk full; +14400 s",
        "7:41:32  P0   resumed at step 59,175 (last exit: crash), 294 steps lost (3s, 0.5 % of the attempt)",
        "7:41:32  P0   training began 5.7s after its start",
    ]


def test_the_host_reboots_in_the_night():
    """P1 was stopped by the operator before, and P2 has its slot since."""
    world = quiet_world(programs=3, slots=2)
    world.ask(Verb.STOP, "P1")
    world.run(1200.0)
    world.reboot(down_s=95.0)
    world.run(200.0)
    assert told(world) == [
        "0:10:00  box  operator requested stop",
        "0:10:00  P1   stopped by operator",
        "0:31:36  box  the host rebooted, unclean, down 1m 35s (the boot id changed)",
        "0:31:36  box  started after a host reboot",
        "0:31:36  P0   ended by the host's reboot",
        "0:31:36  P0   resumes after the host's reboot",
        "0:31:36  P2   ended by the host's reboot",
        "0:31:36  P2   resumes after the host's reboot",
        "0:31:36  P0   a slot of level light is free",
        "0:31:36  P2   a slot of level light is free",
        "0:31:41  P0   resumed at step 179,118 (last exit: reboot), at least 188 steps lost (2s, 0.1 % of the attempt)",
        "0:31:41  P2   resumed at step 179,118 (last exit: reboot), at least 188 steps lost (2s, 0.1 % of the attempt)",
        "0:31:41  P0   training began 5s after its start",
        "0:31:41  P2   training began 5s after its start",
    ]


def test_the_daemon_dies_between_its_word_and_its_deed():
    """The start is in the journal, the process was never begun: the next daemon finds that out, and begins it."""
    world = quiet_world()
    world.cut = 0.0
    world.end(worker(world).token, Ending(signal=11))
    world.run(60.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGSEGV; +0 s",
        "0:10:01  box  started after the previous daemon ended unexpectedly",
        "0:10:01  P0   the previous daemon ended before it could start the process",
        "0:10:01  P0   starts now: the previous daemon ended before the start",
        "0:10:01  P0   a slot of level light is free",
        "0:10:06  P0   resumed at step 59,175 (last exit: crash), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5s after its start",
    ]


def test_the_daemon_dies_after_its_deed():
    """The process was begun, and nobody lived to hear of it: the next daemon adopts it, and begins no second one."""
    world = quiet_world()
    world.cut = 1.0
    world.end(worker(world).token, Ending(signal=11))
    world.run(60.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGSEGV; +0 s",
        "0:10:01  box  started after the previous daemon ended unexpectedly, 1 running worker adopted",
        "0:10:05  P0   resumed at step 59,175 (last exit: crash), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:05  P0   training began 5.6s after its start",
    ]
    assert [found.number for found in world.alive()] == [2]


def test_the_daemon_dies_before_it_sets_a_poisoned_checkpoint_aside():
    """Whoever resumes from it shows that it is still there."""
    world = quiet_world()
    for number in range(5):
        while not world.alive("P0") or worker(world).resumed is None:
            world.run(0.5)
        world.cut = 0.0 if number == 3 else None
        world.end(worker(world).token, Ending(signal=11))
        world.run(0.5)
    world.run(60.0)
    assert [
        line.split(" steps lost")[0] + line.partition(";")[2]
        for line in told(world)
        if " at step" in line or " from step" in line
    ] == [
        "0:10:05  P0   resumed at step 59,175 (last exit: crash), 294",
        "0:10:12  P0   resumed at step 59,175 (last exit: crash), 35",
        "0:10:19  P0   resumed at step 59,175 (last exit: crash), 32",
        "0:10:19  P0   3 deaths in a row after resuming from step 59175: the checkpoint before it is used",
        "0:10:29  P0   resumed at step 59,175 (last exit: crash), 42 that checkpoint should have been set aside before; it is set aside now",
        "0:10:42  P0   resumed at step 58,416 (last exit: crash), 795",
    ]
