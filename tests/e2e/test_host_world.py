"""The world goes wrong around a real daemon: it stands still, clocks jump, pids come back, nothing can be forked."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import preload
import pytest
from box import FLOOR_S, ROOT, Box, await_ping, service_manager, until

from supervisor.adapters.host import boot
from supervisor.formats import span

AS_PID = ROOT / "tests" / "e2e" / "programs" / "as_pid.py"


def away(seconds: float) -> None:
    signal.sigtimedwait([], seconds)


# --- the daemon stands still ------------------------------------------------------------------------------------------------


def frozen(box: Box, seconds: float) -> None:
    """Two workers train, one of them hangs while the daemon is stopped: the other one must not pay for that."""
    with service_manager(box) as systemd:
        box.config(box.trainer("a") + box.trainer("b"), floor_s=FLOOR_S)
        daemon = box.start()
        before = {name: box.wait_phase(name, "RUNNING")["pid"] for name in "ab"}
        began_s = time.monotonic()
        daemon.send_signal(signal.SIGSTOP)
        away(seconds)
        daemon.send_signal(signal.SIGCONT)
        await_ping(systemd)
    suspended = box.wait_fact("DaemonSuspended")
    assert seconds - 3.0 < suspended["gap_s"] < time.monotonic() - began_s + 5.0
    os.kill(before["b"], signal.SIGKILL)
    box.wait_fact("BecameReady", "b", count=2)
    away(1.1 * FLOOR_S)  # longer than floor_s: whoever was to be judged by the absence would be by now
    assert not box.facts("Stalled")
    assert box.program("a")["pid"] == before["a"]
    assert [fact["program"] for fact in box.facts("Exited")] == ["b"]
    assert "the daemon did not run for" in box.ctl("history").stdout
    assert box.ctl("explain", "a").stdout.endswith("Nothing has gone wrong with a so far.\n")
    told = box.ctl("accounts", "--json")
    assert told.returncode == 0, told
    accounts = json.loads(told.stdout)
    (mine,) = (each["seconds"] for each in accounts["programs"] if each["name"] == "a")
    assert mine["TRAINING"] > seconds, "its steps prove that it worked while nobody looked"
    assert mine["UNKNOWN"] == 0


@pytest.mark.fault("daemon-stopped")
def test_a_daemon_that_stood_still_judges_nobody_and_goes_on(box: Box) -> None:
    frozen(box, 7.0)


@pytest.mark.slow
@pytest.mark.fault("daemon-stopped")
def test_a_daemon_that_stood_still_for_a_minute_judges_nobody_and_goes_on(box: Box) -> None:
    frozen(box, 60.0)


# --- the wall clock ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step_s",
    [
        pytest.param(3600, marks=pytest.mark.fault("clock-forward"), id="forward"),
        pytest.param(-3600, marks=pytest.mark.fault("clock-back"), id="back"),
    ],
)
def test_a_wall_clock_that_jumps_moves_nothing_but_what_is_shown(box: Box, step_s: int) -> None:
    box.env = preload.environment(box.directory)
    waits = box.trainer("waits", "die", "--after", "1")
    extra = "[restart]\nwindow_deaths = 1\nslow_retry_s = 1800.0\n"
    box.config(box.trainer("a") + waits, extra=extra, floor_s=FLOOR_S)
    box.start()
    first = box.wait_phase("a", "RUNNING")
    box.wait_phase("waits", "BACKOFF")
    until(lambda: (box.program("a")["steps"] or 0) > 60, 10, "a checkpoint to exist")
    preload.set_clock(box.directory, step_s)
    stepped = box.wait_fact("ClockStepped")
    assert stepped["step_s"] == pytest.approx(step_s, abs=5.0)
    mark = until(lambda: _mark_of(box, step_s), 10, "a sign of life with the new clock")
    assert mark.at_s < 600.0, "journal time goes on as before"
    away(1.1 * FLOOR_S)  # longer than floor_s
    assert not box.facts("Stalled")
    assert not box.facts("HostRebooted")
    assert not box.facts("Exited", "a")
    after, waiting = box.program("a"), box.program("waits")
    assert after["pid"] == first["pid"]
    assert 0 < after["uptime_s"] < 300
    assert 0 <= after["ckpt_age_s"] < 300
    assert 1400 < waiting["retry_in_s"] <= 1800, "no deadline has moved"
    assert 0 <= box.status()["daemon"]["uptime_s"] < 300
    told = box.ctl("history").stdout
    assert (
        f"the wall clock moved {'ahead' if step_s > 0 else 'back'} by {span(abs(stepped['step_s']))}; only displayed times change"
        in told
    )
    _restart_and_reboot(box, step_s, first["pid"])


def test_a_clock_that_begins_in_1970_is_mended_once_it_is_set(box: Box) -> None:
    """A board without a battery: the network sets its clock some time after the boot."""
    box.env = preload.environment(box.directory)
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    until(lambda: (box.program("a")["steps"] or 0) > 60, 10, "a checkpoint to exist")
    box.power_cut()
    preload.set_clock(box.directory, 100 - int(time.time()))
    box.start()
    box.wait_phase("a", "RUNNING")
    assert box.wait_fact("HostRebooted")["down_s"] is None, "neither 56 years nor 0"
    assert told_of_reboots(box).startswith("? REBOOT n=1 ")
    at_s = box.status()["now_s"]
    assert at_s < 3600.0, "journal time has not jumped"
    preload.set_clock(box.directory, 0)
    known = box.wait_fact("ClockSet")
    assert known["down_s"] == pytest.approx(time.time() - known["reboot_wall_s"], abs=120.0)
    rows = json.loads(box.ctl("history", "--all", "--json").stdout)["facts"]
    assert len(rows) > 5
    assert all(abs(time.time() - row["wall_s"]) < 3600.0 for row in rows), "no line of 1970 is left"
    lines = until(
        lambda: (box.state / "reboot_alerts.log").read_text().splitlines()[1:], 10, "the line that mends the other"
    )
    assert f" REBOOT n=1 clock=set at={dt.datetime.now(dt.UTC).year}-" in lines[0]
    assert 0 <= box.status()["daemon"]["last_reboot"]["ago_s"] < 600.0


def told_of_reboots(box: Box) -> str:
    """A thread of its own writes the line: a worker may train before."""
    log = box.state / "reboot_alerts.log"
    return str(until(lambda: log.exists() and log.read_text(), 30, "the line of the reboot"))


def _mark_of(box: Box, step_s: int) -> boot.AliveMark | None:
    mark = boot.read_mark(box.state / "alive")
    return mark if mark is not None and abs(mark.wall_s - time.time() - step_s) < 60.0 else None


def _restart_and_reboot(box: Box, step_s: int, pid: int) -> None:
    """Right after the step another daemon begins; then the box reboots with the clock as it was."""
    box.kill_daemon()
    preload.set_clock(box.directory, 2 * step_s)  # and once more while nobody looks
    box.start()
    assert box.wait_phase("a", "RUNNING")["pid"] == pid, "adopted"
    assert not box.facts("HostRebooted")
    assert 1400 < box.program("waits")["retry_in_s"] <= 1800
    box.power_cut()
    preload.set_clock(box.directory, 0)
    box.start()
    reboot = box.wait_fact("HostRebooted")
    assert reboot["down_s"] is None or reboot["down_s"] >= 0, "a clock that was wrong turns no time round"
    box.wait_phase("a", "RUNNING")
    assert [fact["cause"] for fact in box.facts("Exited", "a")] == ["reboot"]
    assert told_of_reboots(box).count("\n") == 1


# --- pids ------------------------------------------------------------------------------------------------------------------


def stranger(pid: int) -> None:
    """Another process with this very pid; what the kernel does not allow here cannot be tested here."""
    command = [sys.executable, AS_PID, str(pid), "sleep", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode == 3 and "not permitted" in done.stderr:
        pytest.skip(f"a pid cannot be chosen here: {done.stderr.strip()} (root can)")
    assert done.returncode == 0, done.stderr


@pytest.mark.fault("pid-reuse")
def test_a_pid_that_came_back_as_somebody_else_is_neither_adopted_nor_signalled(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    spawned = box.facts("Spawned", "a")[0]
    pids = [spawned["pid"], spawned["shim_pid"]]
    box.kill_daemon()
    os.kill(spawned["shim_pid"], signal.SIGKILL)  # the worker goes with it, and no record of an end is left
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10, "both pids to be free")
    try:
        for pid in pids:
            stranger(pid)
        box.start()
        exited = box.wait_fact("Exited", "a")
        assert (exited["cause"], exited["leftovers"]) == ("lost", [])
        box.wait_fact("BecameReady", "a", count=2)
        assert box.wait_phase("a", "RUNNING")["pid"] not in pids
        assert box.facts("DaemonStarted")[-1]["adopted"] == 0
        box.ctl("stop", "a")
        assert all(Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\x00" for pid in pids), "untouched"
        assert "its shim was killed" in box.ctl("explain", "a").stdout
    finally:
        for pid in pids:
            if Path(f"/proc/{pid}/cmdline").exists() and b"1000" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


# --- nothing can be forked -----------------------------------------------------------------------------------------------


@pytest.mark.fault("fork-fails")
def test_while_nothing_can_be_forked_starts_are_tried_again_and_held_against_nobody(box: Box) -> None:
    box.env = preload.environment(box.directory)
    box.config(box.trainer("a") + box.trainer("b"), extra="[restart]\nbase_delay_s = 0.2\n")
    daemon = box.start()
    first = {name: box.wait_phase(name, "RUNNING")["pid"] for name in "ab"}
    preload.no_forks(box.directory, refused=True)
    os.kill(first["a"], signal.SIGKILL)
    failed = box.wait_fact("SpawnFailed", "a", count=3)
    assert failed["permanent"] is False
    program = box.program("a")
    assert program["phase"] in {"BACKOFF", "STARTING"}
    assert program["deaths_in_window"] == 1, "the one that was a death"
    assert program["spawn_error"] in failed["error"]
    assert box.program("b")["pid"] == first["b"], "the neighbour trains on"
    assert "could not be started" in box.ctl("explain", "a").stdout
    until(lambda: "next try in" in box.ctl("explain", "a").stdout, 20, "one between two tries")
    preload.no_forks(box.directory, refused=False)
    box.wait_fact("BecameReady", "a", count=2)
    assert daemon.poll() is None
    assert len(box.facts("Exited")) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_start_that_lacks_a_thread_says_so_and_begins_again_whichever_thread_it_is(box: Box) -> None:
    box.env = preload.environment(box.directory)
    box.config(box.trainer("a"))
    preload.no_thread(box.directory, 1)
    number, before = box.directory / "thread", ""
    while number.read_text() != before:  # a start that is refused a thread of a task goes on by the spare one, and serves
        before = number.read_text()
        box.log.unlink(missing_ok=True)
        daemon = box.start(wait=False)
        until(lambda: daemon.poll() is not None or " serving " in box.log.read_text(), 120, "the daemon")  # noqa: B023
        assert daemon.poll() is None, f"thread {number.read_text()}: {box.log.read_text()[-3000:]}"
        assert "Traceback" not in box.log.read_text()
        daemon.kill()
        daemon.wait()
    assert int(before) > 20
