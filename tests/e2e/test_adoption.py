"""The daemon dies or is replaced; the workers train on and are adopted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import Box, until

from supervisor.adapters import leftovers, procfs


@contextlib.contextmanager
def awaited_by(daemon: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the mark of a daemon's child."""
    started = procfs.read_stat(daemon)
    assert started is not None
    space = Path("/proc/self/ns/pid").stat().st_ino
    mark = f"{space}:{daemon}:{started.start_ticks}:tree"
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, leftovers.ENV: mark})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_killed_daemon_loses_nobody(box: Box) -> None:
    box.config(box.trainer("silent") + box.trainer("chatty", "chatty") + box.trainer("parent", "grandchild"))
    box.start()
    names = ["silent", "chatty", "parent"]
    before = {name: box.wait_phase(name, "RUNNING")["pid"] for name in names}
    until(lambda: box.named("sleep"), 10, "the grandchild")
    processes = set(box.pids())
    with awaited_by(box.daemon.pid) as awaited:
        box.kill_daemon()
        assert set(box.pids()) == processes, "workers do not notice"
        box.start()
        assert awaited.wait(30.0) == -signal.SIGKILL, "a child that the killed daemon awaited is ended"
    after = {name: box.wait_phase(name, "RUNNING") for name in names}
    assert {name: program["pid"] for name, program in after.items()} == before
    assert all(program["restarts"] == 0 for program in after.values())
    assert set(box.pids()) == processes, "no duplicate"
    assert box.facts("DaemonStarted")[-1]["adopted"] == 3
    assert box.facts("DaemonStarted")[-1]["clean"] is False
    assert not box.facts("Exited")


def test_the_end_of_a_worker_that_died_meanwhile_is_known(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    worker = box.wait_phase("a", "RUNNING")["pid"]
    box.kill_daemon()
    os.kill(worker, signal.SIGSEGV)
    until(lambda: not box.pids(), 10, "worker and shim to be gone")
    box.start()
    exited = box.wait_fact("Exited", "a")
    assert (exited["cause"], exited["signal"]) == ("crash", signal.SIGSEGV)
    assert box.wait_phase("a", "RUNNING")["pid"] != worker


def test_an_adopted_worker_is_healed_like_any_other(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    worker = box.wait_phase("a", "RUNNING")["pid"]
    box.kill_daemon()
    box.start()
    os.kill(worker, signal.SIGKILL)
    box.wait_fact("BecameReady", "a", count=2)
    assert box.wait_phase("a", "RUNNING")["restarts"] == 1


def test_reload_replaces_the_daemon_in_place(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"))
    box.start()
    before = {name: box.wait_phase(name, "RUNNING")["pid"] for name in "ab"}
    daemon = box.daemon
    assert daemon is not None
    assert box.ctl("reload").returncode == 0
    box.wait_fact("DaemonStarted", count=2)
    until(box._serves, 20, "the new image to serve")
    assert daemon.poll() is None, "same process, new image"
    assert {name: box.wait_phase(name, "RUNNING")["pid"] for name in "ab"} == before
    daemon.send_signal(signal.SIGHUP)
    box.wait_fact("DaemonStarted", count=3)
    until(box._serves, 20, "the third image to serve")
    assert {name: box.wait_phase(name, "RUNNING")["pid"] for name in "ab"} == before
    assert not box.facts("Exited")
    os.kill(before["a"], signal.SIGKILL)
    box.wait_fact("BecameReady", "a", count=2)


@pytest.mark.fault("killed")
def test_a_killed_shim_takes_its_tree_along_and_is_replaced(box: Box) -> None:
    box.config(box.trainer("a", "grandchild"))
    box.start()
    box.wait_phase("a", "RUNNING")
    spawned = box.facts("Spawned", "a")[0]
    os.kill(spawned["shim_pid"], signal.SIGKILL)
    exited = box.wait_fact("Exited", "a")
    assert exited["cause"] == "lost"
    box.wait_fact("BecameReady", "a", count=2)
    until(lambda: len(box.pids()) == 3, 10, "exactly one shim, worker and grandchild")
