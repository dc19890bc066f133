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


@pytest.mark.parametrize("asked", [True, False])
def test_a_container_that_is_started_again_is_told_as_that_and_unclean_only_without_sigterm(box: Box, asked: bool) -> None:
    """`docker stop` with too little grace, and `docker kill`: the boot id stays, pid 1 is another."""
    box.env["EXTRALIFE_STOP_WITHIN_S"] = "5"
    box.config(box.trainer("a") + box.trainer("b", "ignore-term"))
    box.start()
    box.wait_fact("BecameReady", "a")
    box.wait_fact("BecameReady", "b")
    boot_id = (box.boot_files / "boot_id").read_text()
    if asked:
        assert box.daemon is not None
        box.daemon.send_signal(signal.SIGTERM)
        box.wait_fact("StopIntended", "b")
        assert box.facts("StopIntended", "b")[-1]["grace_s"] < 5.0
    box.power_cut()
    (box.boot_files / "boot_id").write_text(boot_id)
    box.start()
    told = box.wait_fact("HostRebooted")
    assert (told["cause"], told["end"]) == ("orderly" if asked else "unclean", "container")
    assert told["why"].startswith("the container was started again, ")
    box.wait_fact("BecameReady", "a", count=2)
    assert not any(fact["counted"] for fact in box.facts("Exited"))
