"""Scripts that know nothing of extralife, told: what they do, what goes wrong, and the journal's account of it."""

import pytest
from test_stories import quiet_world, told, worker

from supervisor.model.inputs import Ending


def script_world():
    """One script that has used CPU time for ten minutes, and has printed nothing."""
    return quiet_world(scripts=1)


@pytest.mark.fault("silent-works")
def test_a_script_computes_for_a_night_without_a_word():
    world = quiet_world(scripts=1, jumps=True)  # ten hours of looks, of which few can be news
    world.run(10 * 3600.0)
    assert told(world) == [
        "0:10:01  P0   no sign of progress for 10m 1s since it was started, but it uses CPU time: it is quiet, not stalled"
    ]


@pytest.mark.fault("silent-hangs")
def test_a_script_hangs_and_hangs_again():
    world = script_world()
    worker(world).stick(world.now_s)
    world.run(640.0)
    worker(world).stick(world.now_s)
    world.run(1300.0)
    assert told(world) == [
        "0:10:01  P0   no sign of progress for 10m 1s since it was started, but it uses CPU time: it is quiet, not stalled",
        "0:20:01  P0   no progress for 20m 1s since it was started (limit 10m): nor has it used CPU time, read or written anything for 10m 1s",
        "0:20:02  P0   evidence taken before healing: stacks",
        "0:20:03  P0   stops the stalled worker (silent)",
        "0:20:06  P0   did not exit within 3s: SIGKILL to its whole process tree",
        "0:20:06  P0   ended after a stall (silent), killed by SIGKILL; +0 s",
        "0:20:17  P0   training began 11s after its start",
        "0:20:27  P0   trains again (last exit: stalled), but did not report from which step: how much work was lost is unknown",
        "0:40:07  P0   no sign of progress for 20m 1s since it was started, but it uses CPU time: it is quiet, not stalled",
        "0:40:41  P0   no progress for 20m 35s since it was started (limit 20m): nor has it used CPU time, read or written anything for 20m 1s",
        "0:40:43  P0   evidence taken before healing: stacks",
        "0:40:44  P0   stops the stalled worker (silent)",
        "0:40:47  P0   did not exit within 3s: SIGKILL to its whole process tree",
        "0:40:48  P0   ended after a stall (silent), killed by SIGKILL; +1 s",
        "0:40:59  P0   training began 11s after its start",
        "0:41:09  P0   trains again (last exit: stalled), but did not report from which step: how much work was lost is unknown",
    ]


@pytest.mark.fault("child-stopped")
def test_a_child_of_a_script_is_stopped():
    world = script_world()
    worker(world).stop_child(world.now_s)
    world.run(60.0)
    assert told(world) == [
        "0:10:01  P0   no sign of progress for 10m 1s since it was started, but it uses CPU time: it is quiet, not stalled",
        "0:10:05  P0   its process python(5001) is stopped for 5s (state T): it is sent SIGCONT",
    ]


@pytest.mark.fault("torn-own-checkpoint")
def test_a_script_is_killed_while_it_saves_and_dies_of_the_torn_one():
    world = quiet_world(scripts=1, own=True)
    world.run(1000.0)
    disk = worker(world).disk
    whole = disk.newest()
    disk.checkpoints.append(whole + 50)
    disk.damage[whole + 50] = "its end is missing"
    world.end(worker(world).token, Ending(signal=9))
    world.run(100.0)
    torn = "starts with checkpoint /w/158936.pt (step 158,936, 1.0 MB); 158986.pt is torn: its end is missing"
    assert told(world)[1:] == [
        "0:26:40  P0   killed by SIGKILL, which extralife did not send; +0 s",
        f"0:26:40  P0   {torn}",
        "0:26:44  P0   exit code 1: RuntimeError: unexpected EOF; +1 s",
        f"0:26:44  P0   {torn}",
        "0:26:49  P0   exit code 1: RuntimeError: unexpected EOF; +2 s",
        f"0:26:49  P0   {torn}",
        "0:26:52  P0   exit code 1: RuntimeError: unexpected EOF",
        "0:26:52  P0   3 deaths in a row with checkpoint /w/158986.pt, without a step, which is torn: it is set aside, and the next start goes without it",
        "0:26:56  P0   exit code 1: RuntimeError: unexpected EOF; +4 s",
        "0:26:56  P0   starts with checkpoint /w/158936.pt (step 158,936, 1.0 MB)",
        "0:27:07  P0   training began 10s after its start",
        "0:27:17  P0   resumed at step 158,936 (last exit: crash), lost steps unknown",
    ]


def printing_world():
    """One script that prints its step, its loss and its return every ten seconds."""
    return quiet_world(scripts=1, prints_every=1000)


def test_a_script_that_prints_its_steps_is_killed():
    world = printing_world()
    worker(world).disk.checkpoints = [40_000]
    world.end(worker(world).token, Ending(signal=9))
    world.run(700.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        "0:10:11  P0   training began 11s after its start",
        "0:10:36  P0   shows step 41,000 first (last exit: killed): it has resumed there or before, at least 18,000 steps lost (3m, 31.0 % of the attempt)",
    ]


def test_a_script_that_prints_its_steps_falls_silent_and_works_on():
    world = printing_world()
    worker(world).prints_every = 0
    world.run(3 * 3600.0)
    assert told(world) == [
        "0:11:47  P0   no step beyond 59,000 for 1m 51s, usually 100 steps/s: it stands still",
        "0:11:48  P0   evidence taken while slow: stacks",
        "0:19:56  P0   no sign of progress for 10m 1s while training, but it uses CPU time: it is quiet, not stalled",
        "0:41:47  P0   no step for 31m 51s: it is asked to save, and restarts",
        "0:41:50  P0   stopped on request (slow), exit code 75",
        "0:41:50  P0   restarts because it was slow",
        "0:41:50  P0   a slot of level light is free",
        "0:42:01  P0   training began 10s after its start",
        "0:42:12  P0   shows step 251,000 first (last exit: stopped): it has resumed there or before, lost steps unknown",
    ]


def test_a_script_that_prints_its_steps_hangs():
    world = printing_world()
    worker(world).stick(world.now_s)
    world.run(1400.0)
    assert told(world) == [
        "0:11:47  P0   no step beyond 59,000 for 1m 51s, usually 100 steps/s: it stands still",
        "0:11:48  P0   evidence taken while slow: stacks",
        "0:19:56  P0   no sign of progress for 10m 1s while training, but it uses CPU time: it is quiet, not stalled",
        "0:20:01  P0   no progress for 10m 6s while training (limit 10m): nor has it used CPU time, read or written anything for 10m 1s",
        "0:20:02  P0   evidence taken before healing: stacks",
        "0:20:03  P0   stops the stalled worker (silent)",
        "0:20:06  P0   did not exit within 3s: SIGKILL to its whole process tree",
        "0:20:06  P0   ended after a stall (silent), killed by SIGKILL; +0 s",
        "0:20:17  P0   training began 11s after its start",
        "0:20:22  P0   shows step 59,000 first (last exit: stalled): it has resumed there or before, lost steps unknown",
    ]


def test_a_script_prints_a_loss_that_is_not_a_number():
    world = printing_world()
    worker(world).loss = float("nan")
    world.run(200.0)
    assert told(world) == [
        "0:11:06  P0   none of its 7 losses of the last 1m 1s was finite, and earlier ones were",
        "0:11:09  P0   ended because its losses were no longer finite, exit code 75",
        "0:11:09  P0   diverged at step 66,000: rollback 1 of 3: there is no checkpoint yet; restarts with another random seed",
        "0:11:09  P0   ended because its losses were no longer finite, exit code 75; +0 s",
        "0:11:20  P0   training began 10s after its start",
        "0:11:31  P0   shows step 67,000 first (last exit: diverged): it has resumed there or before, lost steps unknown",
    ]


def killed(world):
    """It is killed, and its next process has begun."""
    world.end(worker(world).token, Ending(signal=9))
    world.run(5.0)
    return worker(world)


@pytest.mark.fault("nan-not-yet")
def test_a_script_has_no_finite_loss_until_its_first_update():
    world = printing_world()
    killed(world).loss = float("nan")
    world.run(400.0)
    worker(world).loss = 0.5
    world.run(20.0)
    assert told(world)[3:] == [
        "0:15:06  P0   none of its 31 losses was finite, for 5m 1s: it may not learn yet, so it trains on",
        "0:16:46  P0   a loss is finite",
    ]


@pytest.mark.fault("slower-than-before")
def test_a_script_is_much_slower_after_a_restart():
    world = printing_world()
    world.run(700.0)
    killed(world).pace = 0.1
    world.run(700.0)
    assert told(world)[3:5] == [
        "0:28:11  P0   10 steps/s for 3m, usually 100 steps/s in earlier attempts; if that is usual now, use extralifectl restart",
        "0:28:13  P0   evidence taken while slow: stacks",
    ]


@pytest.mark.fault("long-evaluation")
def test_a_script_evaluates_for_an_hour_at_the_end_of_each_attempt():
    world = printing_world()
    for _ in range(3):
        worker(world).prints_every = 0
        world.run(3000.0)
    worker(world).prints_every = 1000
    world.run(60.0)
    assert [line for line in told(world) if " step beyond " in line or "restarts" in line or "steps came" in line] == [
        "0:11:47  P0   no step beyond 59,000 for 1m 51s, usually 100 steps/s: it stands still",
        "0:41:47  P0   no step for 31m 51s: it is asked to save, and restarts",
        "0:41:50  P0   restarts because it was slow",
        "1:01:43  P0   no step beyond 358,000 for 1m 51s, usually 100 steps/s: it stands still",
        "1:31:43  P0   no step for 31m 51s: it is asked to save, and restarts",
        "1:31:43  P0   restarts because it was slow",
        "1:51:49  P0   no step beyond 658,000 for 1m 51s, usually 100 steps/s: it stands still; two restarts did not help: set stall_timeout_s to have it restarted",
        "2:40:01  P0   its steps came again by themselves",
    ]
