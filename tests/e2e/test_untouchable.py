"""Processes that extralife may send no signal, as those that sudo starts: it says so, and starts nothing beside them.

Here a daemon of root without CAP_KILL has a program of the user nobody. The kernel refuses it as it refuses an unprivileged
daemon a process of root.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from box import Box, until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as somebody else"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv takes CAP_KILL away"),
]
MARK = f"86399.{os.getpid()}"  # seconds of its sleep, by which its processes are found


@pytest.fixture
def theirs(box: Box) -> Box:
    """The program's shell waits for the sleep, which does not die with the shim."""
    box.under = ["setpriv", "--bounding-set=-kill"]
    box.config(
        f"""
[program.theirs]
command = "sleep {MARK} & wait"
shell = true
user = "nobody"
progress = "none"
stop_grace_s = 0.5
""",
        extra='[alerts]\ncommand = ["true"]',
    )
    box.start()
    box.wait_phase("theirs", "RUNNING")
    until(lambda: box.program("theirs")["trouble"] == "untouchable", 30, "its processes to be examined", box.tail)
    return box


def asleep() -> list[int]:
    return [
        pid
        for pid in Box._processes("cmdline", f"\0{MARK}\0".encode())
        if b"sleep" in Path(f"/proc/{pid}/comm").read_bytes()
    ]


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_stop_and_shutdown_end_and_name_the_processes_that_may_not_be_signalled(theirs: Box) -> None:
    box = theirs
    (pid,) = asleep()
    try:
        assert f"sleep({pid}) of nobody" in box.program("theirs")["why"]
        assert "may not signal it" in box.ctl("signal", "HUP", "theirs").stdout
        stopped = box.ctl("stop", "theirs", timeout_s=60)
        assert (stopped.returncode, f"sleep({pid}) of nobody" in stopped.stdout) == (1, True), stopped
        assert box.program("theirs")["phase"] == "STOPPING"
        assert [fact["alert"] for fact in box.facts("AlertRaised")] == ["unended"]
        assert "sleep" in box.ctl("stop", "theirs").stdout, "a second request is answered at once"
        assert "of nobody" in box.ctl("shutdown").stderr
        assert box.daemon is not None
        assert box.daemon.wait(60) == 0
        assert len(box.facts("KillIntended")) == 1, "no other one without effect"
        assert f"sleep({pid}) of nobody" in box.facts("DaemonStopped")[-1]["why"]
        assert asleep() == [pid]
        box.start()
        assert (box.program("theirs")["phase"], asleep()) == ("STOPPING", [pid]), "nothing is started beside it"
    finally:
        end([*asleep(), *box.pids()])
    box.wait_phase("theirs", "STOPPED")


def test_a_daemon_starts_although_what_a_lost_shim_left_may_not_be_signalled(theirs: Box) -> None:
    box = theirs
    (pid,) = asleep()
    try:
        box.kill_daemon()
        end(box.shims())
        box.start()
        assert (box.program("theirs")["phase"], asleep()) == ("RUNNING", [pid]), "nothing is started beside it"
    finally:
        end(asleep())
    box.wait_fact("BecameReady", "theirs", count=2)
    assert len(asleep()) == 1
    end(asleep())
