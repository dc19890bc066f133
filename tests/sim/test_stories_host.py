"""Faults of the supervisor's side and of the host, told: what goes wrong, and the journal's account of it, to the second."""

import pytest
from test_stories import quiet_world, told, worker
from world import Ending, Phase, Verb

from supervisor.formats import span
from supervisor.model import facts
from supervisor.model.inputs import Ended, Sample, Sampled, SpawnBroke

HOUR_S = 3600.0


def dies(world, after_s, ending):
    """Every attempt from now on ends so, `after_s` after its start; the present one at once."""
    spawn = world.spawn

    def spawn_one_that_dies(name, number, token):
        spawn(name, number, token)
        world.after(after_s, world.end, token, ending)

    world.spawn = spawn_one_that_dies
    world.end(worker(world).token, ending)


@pytest.mark.fault("dies-at-once")
def test_a_worker_dies_at_once_every_time():
    world = quiet_world()
    dies(world, 0.0, Ending(code=1, last_lines=("ImportError: libcuda.so.1",)))
    world.run(2 * HOUR_S)
    assert told(world) == [
        "0:10:00  P0   exit code 1: ImportError: libcuda.so.1; +0 s",
        "0:10:01  P0   exit code 1: ImportError: libcuda.so.1; +1 s",
        "0:10:03  P0   exit code 1: ImportError: libcuda.so.1; +2 s",
        "0:10:07  P0   exit code 1: ImportError: libcuda.so.1; +4 s",
        "0:10:15  P0   exit code 1: ImportError: libcuda.so.1; +8 s",
        "0:10:31  P0   exit code 1: ImportError: libcuda.so.1; +16 s",
        "0:11:03  P0   exit code 1: ImportError: libcuda.so.1; +32 s",
        "0:41:04  P0   exit code 1: ImportError: libcuda.so.1; +1800 s",
        "1:41:04  P0   exit code 1: ImportError: libcuda.so.1; +3600 s",
        "1:41:04  P0   exit code 1: ImportError: libcuda.so.1; +7200 s",
    ]


@pytest.mark.fault("dies-soon")
def test_a_worker_dies_every_two_seconds():
    """At the settings that a config without a [restart] has."""
    world = quiet_world()
    dies(world, 2.0, Ending(code=1, last_lines=("RuntimeError: flaky",)))
    world.run(1000.0)
    assert told(world) == [
        "0:10:00  P0   exit code 1: RuntimeError: flaky; +0 s",
        "0:10:03  P0   exit code 1: RuntimeError: flaky; +1 s",
        "0:10:07  P0   exit code 1: RuntimeError: flaky; +2 s",
        "0:10:13  P0   exit code 1: RuntimeError: flaky; +4 s",
        "0:10:23  P0   exit code 1: RuntimeError: flaky; +8 s",
        "0:10:41  P0   exit code 1: RuntimeError: flaky; +16 s",
        "0:11:15  P0   exit code 1: RuntimeError: flaky; +32 s",
        "0:11:18  P0   exit code 1: RuntimeError: flaky; +1800 s",
    ]
    program = world.core.state.programs["P0"]
    assert (program.phase, program.retry.slow) == (Phase.BACKOFF, True)
    assert program.retry.at_s == pytest.approx(678.0 + 1800.0, abs=1.0), "and says when the next one is tried"


@pytest.mark.fault("orphans")
def test_a_worker_leaves_children_behind():
    world = quiet_world()
    world.end(worker(world).token, Ending(signal=11, leftovers=("sleep(71)", "python3(72)")))
    world.run(60.0)
    assert told(world) == [
        "0:10:00  P0   killed by SIGSEGV; 2 leftover processes ended",
        "0:10:00  P0   killed by SIGSEGV; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: crash), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
    ]


@pytest.mark.fault("ignores-sigterm")
def test_a_worker_ignores_sigterm():
    world = quiet_world()
    worker(world).ignores_term = True
    world.ask(Verb.STOP, "P0")
    world.run(60.0)
    assert told(world) == [
        "0:10:00  box  operator requested stop",
        "0:10:00  P0   stopped by operator",
        "0:10:20  P0   did not exit within 20s: SIGKILL to its whole process tree",
        "0:10:20  P0   stopped on request (operator), killed by SIGKILL",
        "0:10:20  P0   stopped by the operator",
    ]
    assert not world.waiting, "answered"


@pytest.mark.fault("state-d")
def test_the_kernel_does_not_let_go_of_a_worker():
    """Reported once; its slot is kept; a stop is answered; once it comes out, the pending SIGKILL takes it."""
    world = quiet_world(programs=2, slots=1)
    found = worker(world)
    found.stick(world.now_s)
    found.state = "D"
    world.run(HOUR_S)
    assert told(world) == [
        "0:10:31  P0   no progress for 31s while training (limit 30s): it waits inside the kernel or a driver (state D), where no signal reaches it",
        "0:10:32  P0   evidence taken before healing: stacks",
    ]
    assert [each.name for each in world.alive()] == ["P0"], "its GPU memory is taken: nobody else is started beside it"
    world.ask(Verb.STOP, "P0")
    world.run(30.0)
    assert not world.waiting, "answered"
    world.run(300.0)
    world._leave_kernel(found.token)
    world.run(30.0)
    assert told(world)[2:] == [
        "1:10:00  box  operator requested stop",
        "1:10:00  P0   stopped by operator",
        "1:10:20  P0   did not exit within 20s: SIGKILL to its whole process tree; it is inside a kernel call (state D) and ends when that call returns",
        "1:10:40  P0   did not exit within 40s: SIGKILL to its whole process tree; it is inside a kernel call (state D) and ends when that call returns",
        "1:11:20  P0   it is alive after 2 SIGKILLs: it is inside a kernel call (state D) and ends when that call returns",
        "1:15:30  P0   stopped on request (operator), killed by SIGKILL",
        "1:15:30  P0   stopped by the operator",
        "1:15:30  P1   a slot of level light is free",
        "1:15:36  P1   begins at step 0",
        "1:15:36  P1   training began 5.9s after its start",
    ]


@pytest.mark.fault("state-d")
def test_a_worker_comes_out_of_the_kernel_by_itself():
    world = quiet_world()
    found = worker(world)
    found.stick(world.now_s)
    found.state = "D"
    world.run(300.0)
    found.state = "S"
    found.move_again(world.now_s)
    world.run(60.0)
    assert told(world) == [
        "0:10:31  P0   no progress for 31s while training (limit 30s): it waits inside the kernel or a driver (state D), where no signal reaches it",
        "0:10:32  P0   evidence taken before healing: stacks",
        "0:15:01  P0   makes progress again by itself, 4m 30s after the stall",
    ]


@pytest.mark.fault("late-worker")
def test_a_worker_comes_back_after_its_successor_started():
    """It was frozen with its shim gone, and looked dead. What it says is not heard, and it does not end its successor."""
    world = quiet_world()
    late = worker(world)
    late.stick(world.now_s)
    world.end(late.token, Ending(fate="its shim was killed by signal 9"))
    world.run(60.0)
    ghost = Ending(code=77, last_lines=("another attempt owns the run directory",), steps=10**9, ckpt_step=10**9)
    world.post(Sampled(0.0, {"P0": Sample(late.token, steps=10**9, progress_at_s=world.now_s, ready=True)}))
    world.post(Ended(0.0, "P0", late.token, ghost))
    world.run(60.0)
    assert told(world) == [
        "0:10:00  P0   its shim was killed by signal 9; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: lost), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
    ]
    assert worker(world).number == 2


@pytest.mark.fault("daemon-stopped")
def test_the_daemon_stands_still_for_a_minute():
    """One worker trains on, one hangs in that very minute: nobody is judged by it, and the hang is found after it."""
    world = quiet_world(programs=2, slots=2)
    world.pause_daemon(60.0)
    worker(world, "P1").stick(world.now_s)
    world.run(120.0)
    assert told(world) == [
        "0:11:00  box  the daemon did not run for 1m: that time does not count against any worker",
        "0:11:31  P1   no progress for 31s while training (limit 30s): its other threads run, so a call in Python, the environment or CUDA never returned",
        "0:11:31  P1   evidence taken before healing: stacks",
        "0:11:32  P1   stops the stalled worker (hang)",
        "0:11:35  P1   did not exit within 3s: SIGKILL to its whole process tree",
        "0:11:35  P1   ended after a stall (hang), killed by SIGKILL; +0 s",
        "0:11:41  P1   resumed at step 59,175 (last exit: stalled), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:11:41  P1   training began 6s after its start",
    ]


@pytest.mark.fault("daemon-stopped")
def test_the_whole_host_is_asleep_for_an_hour():
    world = quiet_world(programs=2, slots=2)
    world.suspend_host(HOUR_S)
    world.run(120.0)
    assert told(world) == ["1:10:00  box  the daemon did not run for 1h: that time does not count against any worker"]


@pytest.mark.parametrize(
    "step_s",
    [
        pytest.param(HOUR_S, marks=pytest.mark.fault("clock-forward"), id="forward"),
        pytest.param(-HOUR_S, marks=pytest.mark.fault("clock-back"), id="back"),
    ],
)
def test_the_wall_clock_jumps_by_an_hour(step_s):
    """While one trains and the other waits for its restart; then the daemon dies, and last the box reboots."""
    world = quiet_world(programs=2, slots=2)
    world.end(worker(world, "P1").token, Ending(signal=11))
    world.run(10.0)
    world.end(worker(world, "P1").token, Ending(signal=11))
    world.core.wall_offset_s += step_s
    world.run(60.0)
    world.kill_daemon()
    world.run(60.0)
    world.reboot(down_s=60.0)
    world.core.wall_offset_s -= step_s
    world.run(120.0)
    story = told(world)
    at = story.index("0:11:11  box  started after the previous daemon ended unexpectedly, 2 running workers adopted")
    assert story[: at + 1] == [
        "0:10:00  P1   killed by SIGSEGV; +0 s",
        "0:10:06  P1   resumed at step 59,175 (last exit: crash), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P1   training began 6s after its start",
        "0:10:10  P1   killed by SIGSEGV; +1 s",
        f"0:10:11  box  the wall clock moved {'ahead' if step_s > 0 else 'back'} by {span(abs(step_s))}; only displayed times change",
        "0:10:11  P1   killed by SIGSEGV; +1 s",
        "0:10:17  P1   resumed at step 59,175 (last exit: crash), 497 steps lost (5s, 100.0 % of the attempt)",
        "0:10:17  P1   training began 5.9s after its start",
        "0:11:11  box  started after the previous daemon ended unexpectedly, 2 running workers adopted",
    ]
    (reboot,) = (row.fact for row in world.core.journal if isinstance(row.fact, facts.HostRebooted))
    assert reboot.down_s is None or reboot.down_s >= 60.0, "a clock that was wrong may hide the time, never turn it"
    assert [line[14:] for line in story[-2:]] == ["training began 5s after its start"] * 2
    times = [row.at_s for row in world.core.journal]
    assert times == sorted(times)


@pytest.mark.fault("pid-reuse")
def test_a_dead_workers_pid_belongs_to_somebody_else():
    world = quiet_world()
    world.kill_daemon()
    found = worker(world)
    world.end(found.token, Ending(fate="its shim was killed"))
    world.run(60.0)
    assert told(world) == [
        "0:10:01  box  started after the previous daemon ended unexpectedly",
        "0:10:01  P0   its shim was killed; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: lost), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5s after its start",
    ]


@pytest.mark.fault("fork-fails")
def test_nothing_can_be_forked():
    world = quiet_world(programs=2, slots=2)
    fork = world.spawn

    def no_fork(name, number, token):
        world.send(0.0, 0.0, SpawnBroke(0.0, name, token, "cannot start it: Resource temporarily unavailable"), number)

    world.spawn = no_fork
    world.end(worker(world).token, Ending(signal=9))
    world.run(60.0)
    world.spawn = fork
    world.run(600.0)
    program = world.core.state.programs["P0"]
    assert len(program.deaths.at_s) == 1, "that nothing could be forked is held against no program"
    assert told(world) == [
        "0:10:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        "0:10:00  P0   cannot start it: Resource temporarily unavailable",
        "0:10:01  P0   its process could not be started: cannot start it: Resource temporarily unavailable; +1 s",
        "0:10:01  P0   cannot start it: Resource temporarily unavailable",
        "0:10:03  P0   its process could not be started: cannot start it: Resource temporarily unavailable; +2 s",
        "0:10:03  P0   cannot start it: Resource temporarily unavailable",
        "0:10:07  P0   its process could not be started: cannot start it: Resource temporarily unavailable; +4 s",
        "0:10:07  P0   cannot start it: Resource temporarily unavailable",
        "0:10:15  P0   its process could not be started: cannot start it: Resource temporarily unavailable; +8 s",
        "0:10:15  P0   cannot start it: Resource temporarily unavailable",
        "0:10:31  P0   its process could not be started: cannot start it: Resource temporarily unavailable; +16 s",
        "0:10:31  P0   cannot start it: Resource temporarily unavailable",
        "0:11:03  P0   its process could not be started: cannot start it: Resource temporarily unavailable; +32 s",
        "0:11:09  P0   resumed at step 59,175 (last exit: killed), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:11:09  P0   training began 5.9s after its start",
    ]
