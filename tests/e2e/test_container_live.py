"""A container's kernel and limits, on a real daemon: what it refuses, what is small, what is not there."""

from __future__ import annotations

import os
import signal

import pytest
import seccomp
from box import Box, until


@pytest.mark.parametrize(
    ("error", "calls"),
    [("EPERM", (seccomp.PIDFD_OPEN, seccomp.PIDFD_SEND_SIGNAL)), ("ENOSYS", (seccomp.PIDFD_SEND_SIGNAL,))],
)
def test_without_pidfds_every_end_is_noticed_and_every_tree_ended(box: Box, error: str, calls: tuple[int, ...]) -> None:
    box.under = seccomp.command(error, calls)
    box.config(box.trainer("a") + box.trainer("b", "ignore-term"))
    box.start()
    first = box.wait_fact("BecameReady", "a") and box.facts("Spawned", "a")[0]
    box.wait_fact("BecameReady", "b")
    os.kill(first["pid"], signal.SIGKILL)
    assert box.wait_fact("Exited", "a", timeout_s=5)["cause"] == "killed"
    box.wait_fact("BecameReady", "a", count=2)
    box.kill_daemon()
    os.kill(box.facts("Spawned", "a")[1]["pid"], signal.SIGKILL)
    box.start()
    box.wait_fact("BecameReady", "a", count=3)
    assert box.facts("Spawned", "b")[-1]["pid"] == box.facts("Spawned", "b")[0]["pid"], "the other one was adopted"
    os.kill(box.facts("Spawned", "b")[0]["shim_pid"], signal.SIGKILL)
    assert box.wait_fact("Exited", "b", timeout_s=5)["cause"] == "lost"
    box.wait_fact("BecameReady", "b", count=2)
    box.ctl("stop", "all", timeout_s=30, check=True)
    until(lambda: not box.pids(), 10, "every process to be gone")
    assert box.stop_daemon() == 0
