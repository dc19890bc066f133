"""Faults of the supervisor's side and of the host, on real processes: each told apart, healed and explained."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import FLOOR_S, ROOT, Box, until

from supervisor.adapters import procfs
from workers import daemon_side

ASTRAY = ROOT / "tests" / "e2e" / "programs" / "astray.py"
_PR_SET_CHILD_SUBREAPER = 36


def astray(name: str, *args: str, keys: str = "") -> str:
    command = json.dumps([sys.executable, str(ASTRAY), *args])
    return f'[program.{name}]\ncommand = {command}\nprogress = "beat"\nstop_grace_s = 3.0\n{keys}\n'


def shell(name: str, script: str) -> str:
    return f'[program.{name}]\ncommand = {json.dumps(["bash", "-c", script])}\nprogress = "none"\n'


def said(mark: str) -> list[int]:
    """Live processes that have the mark in their command line."""
    return Box._processes("cmdline", mark.encode())


def hiding(box: Box) -> list[int]:
    """Hidden workers of this box: they were told its run directory as an argument."""
    hidden = set(said("\0hidden\0"))  # not read one by one: a process may end between two looks
    return [pid for pid in said(f"{box.state}/programs") if pid in hidden]


@pytest.fixture
def family() -> Iterator[None]:
    """Orphans come home to this process, so that their exit codes can be read."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


# --- killed -------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("killed")
@pytest.mark.parametrize("whom", ["worker and shim", "daemon and worker", "daemon, shim and worker"])
def test_whatever_is_killed_together_one_successor_trains_on(box: Box, whom: str) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    spawned = box.facts("Spawned", "a")[0]
    until(lambda: (box.program("a").get("steps") or 0) > 60, 10, "a checkpoint to exist")
    if "daemon" in whom:
        box.kill_daemon()
    if "shim" in whom:
        os.kill(spawned["shim_pid"], signal.SIGSTOP)  # else it has left before its turn, as soon as its worker is dead
    for part, pid in (("worker", spawned["pid"]), ("shim", spawned["shim_pid"])):
        if part in whom:
            os.kill(pid, signal.SIGKILL)
    if "daemon" in whom:
        until(lambda: not box.pids(), 10, "worker and shim to be gone")
        box.start()
    exited = box.wait_fact("Exited", "a")
    assert exited["counted"]
    assert exited["cause"] == ("killed" if whom == "daemon and worker" else "lost")
    box.wait_fact("BecameReady", "a", count=2)
    assert len(box.pids()) == 2, "one shim, one worker"
    assert box.facts("Resumed", "a")[1]["step"] >= 50
    told = box.ctl("explain", "a").stdout
    assert exited["why"] in told
    assert "killed by SIGKILL" in told if exited["cause"] == "killed" else "shim was killed" in told


# --- deaths in a row ----------------------------------------------------------------------------------------------------


@pytest.mark.fault("dies-soon")
def test_a_worker_that_dies_every_two_seconds_ends_in_slow_retry_with_a_time(box: Box) -> None:
    extra = "[restart]\nwindow_s = 60.0\nwindow_deaths = 2\nbase_delay_s = 0.05\nslow_retry_s = 1800.0\n"
    box.config(shell("a", "sleep 2; echo lived two seconds; exit 3"), extra=extra)
    box.start()
    box.wait_fact("BackedOff", "a", count=2)
    program = box.program("a")
    assert (program["phase"], program["slow_retry"]) == ("BACKOFF", True)
    assert 1700 < program["retry_in_s"] <= 1800
    assert len(box.facts("Exited", "a")) == 2
    told = box.ctl("explain", "a").stdout
    assert "exit code 3: lived two seconds; 2 deaths in the last 1m: one trial start after 30m" in told
    assert "next: " in told
    assert "30m" in box.ctl("status").stdout or "29m" in box.ctl("status").stdout


# --- children -----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("orphans")
def test_fifteen_crashes_leave_none_of_their_hidden_children(box: Box) -> None:
    """Double-forked, in a session of their own, with nothing open, another name and no environment."""
    seconds = f"98765.{os.getpid()}"
    hidden = f"""exec -c -a "[kworker/0:1]" sleep {seconds}"""
    mark = f"[9]8765[.]{os.getpid()}"  # as a pattern that does not match its own grep
    both = f"until [ $(grep -lzx '{mark}' /proc/[0-9]*/cmdline 2> /dev/null | wc -l) = 2 ]; do sleep 0.02; done"
    script = f"(setsid bash -c '{hidden}' <&- >&- 2>&- & setsid bash -c '{hidden}' <&- >&- 2>&- &); {both}; exit 3"
    box.config(shell("a", script), extra="[restart]\nwindow_deaths = 60\nbase_delay_s = 0.01\nfactor = 1.0\n")
    box.start()
    box.wait_fact("Exited", "a", count=15)
    box.ctl("stop", "a")
    assert not said(seconds), "nobody is left"
    exits = [fact for fact in box.facts("Exited", "a") if fact["cause"] == "crash"]
    assert len(exits) >= 15
    assert all(len(fact["leftovers"]) == 2 for fact in exits), [fact["leftovers"] for fact in exits]
    told = box.ctl("explain", "a").stdout
    assert "2 leftover processes ended" in told
    assert "sleep(" in told


# --- a worker that ignores SIGTERM -----------------------------------------------------------------------------------------


@pytest.mark.fault("ignores-sigterm")
def test_what_was_killed_because_it_did_not_leave_is_explained(box: Box) -> None:
    box.config(box.trainer("a", "ignore-term", keys="priority = 5").replace("stop_grace_s = 3.0", "stop_grace_s = 0.5"))
    box.start()
    first = box.wait_phase("a", "RUNNING")["pid"]
    assert box.ctl("restart", "a").stdout.startswith("a: stopped\na: started")
    assert box.wait_phase("a", "RUNNING")["pid"] != first
    told = box.ctl("explain", "a").stdout
    waited = re.search(r"did not exit within ([\d.]+)(m?)s: SIGKILL to its whole process tree", told)
    assert waited is not None, told
    assert float(waited[1]) * (0.001 if waited[2] else 1.0) >= 0.5, "later on a busy box, never earlier"
    assert "stopped on request (restart), killed by SIGKILL" in told


# --- state D ------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("state-d")
def test_a_worker_in_state_d_is_reported_once_keeps_its_slot_and_goes_on(box: Box) -> None:
    released = box.directory / "released"
    box.config(
        astray("a", "state-d", str(released), keys="priority = 1") + box.trainer("b", keys="priority = 2"), slots=1,
        floor_s=FLOOR_S,
    )  # fmt: skip
    box.start()
    stalled = box.wait_fact("Stalled", "a")
    assert stalled["stall"] == "uninterruptible"
    examined = box.wait_fact("Examined", "a")
    assert "state D" in examined["evidence"]["process"]
    assert examined["evidence"]["wchan"], "where in the kernel it waits"
    pid = box.program("a")["pid"]
    until(lambda: box.program("a")["why"] == "stalled (uninterruptible), no signal reaches it", 10, "status to say so")
    signal.sigtimedwait([], 1.1 * FLOOR_S)  # longer than floor_s: there is time for what must not happen
    assert (box.program("a")["pid"], box.program("b")["phase"]) == (pid, "QUEUED"), "neither killed nor replaced"
    assert len(box.facts("Stalled", "a")) == 1
    told = box.ctl("explain", "a").stdout
    assert "it waits inside the kernel or a driver (state D), where no signal reaches it" in told
    assert examined["evidence"]["wchan"] in told
    released.touch()
    box.wait_fact("Revived", "a")
    assert box.wait_phase("a", "RUNNING")["pid"] == pid
    assert not box.facts("Exited", "a")
    assert not box.facts("StopIntended", "a")


@pytest.mark.fault("orphans")
def test_a_hidden_worker_whose_shim_is_killed_is_ended_before_its_successor_starts(box: Box) -> None:
    """In a session and an environment of its own, where there are no cgroups: it comes home to the daemon."""
    box.config(astray("a", "late"), extra="[cgroups]\nuse = false\n")
    box.start()
    box.wait_fact("BecameReady", "a")
    (late,) = until(lambda: hiding(box), 20, "it to hide")
    os.kill(late, signal.SIGSTOP)
    os.kill(box.facts("Spawned", "a")[0]["shim_pid"], signal.SIGKILL)
    exited = box.wait_fact("Exited", "a")
    found = procfs.read_stat(late)
    assert found is None or not found.alive
    assert any(f"({late})" in name for name in exited["leftovers"])
    assert box.wait_fact("Spawned", "a", count=2)


# --- a worker that comes back ---------------------------------------------------------------------------------------------


@pytest.mark.fault("late-worker")
def test_a_worker_that_comes_back_after_its_successor_started_is_fenced(box: Box, family: None) -> None:
    box.config(astray("a", "late"))
    box.start()
    saved = box.state / "programs" / "a" / "checkpoints"
    until(lambda: len(list(saved.glob("ckpt-*"))) >= 2, 30, "checkpoints of the first attempt")
    spawned = box.facts("Spawned", "a")[0]
    (late,) = hiding(box)
    try:
        os.kill(late, signal.SIGSTOP)
        box.kill_daemon()  # a living one is the sub-reaper that ends it
        os.kill(spawned["shim_pid"], signal.SIGKILL)
        box.start()
        assert box.wait_fact("Exited", "a")["cause"] == "lost"
        box.wait_fact("BecameReady", "a", count=2)
        successor = box.wait_phase("a", "RUNNING")
        before = {path.name for path in saved.glob(f"ckpt-*.{spawned['token']}")}
        os.kill(late, signal.SIGCONT)
        _, status = until(lambda: (found := os.waitpid(late, os.WNOHANG))[0] and found, 20, "the late one to leave")
        assert os.waitstatus_to_exitcode(status) == 77, "fenced"
    finally:
        if Path(f"/proc/{late}/stat").exists():
            os.kill(late, signal.SIGKILL)
    steps = successor["steps"]
    until(lambda: (box.program("a")["steps"] or 0) > steps + 40, 20, "the successor to train on, undisturbed")
    assert box.program("a")["pid"] == successor["pid"]
    after = {path.name for path in saved.glob(f"ckpt-*.{spawned['token']}")}
    assert after <= before, "nothing of the late one was committed"
    beat = daemon_side.read_beat(str(box.runtime / "beats" / "a.2.beat"))
    assert beat is not None
    assert beat.token == box.facts("Spawned", "a")[1]["token"], "the record of the successor is its own"
    assert len(box.facts("Exited", "a")) == 1
    told = box.ctl("explain", "a").stdout
    assert "its shim was killed" in told
    log = (box.state / "programs" / "a" / "stdout.log").read_text()
    assert "fenced at step" in log
    assert "another attempt owns" in log
