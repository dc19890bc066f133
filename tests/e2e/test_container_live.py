"""A container's kernel and limits, on a real daemon: what it refuses, what is small, what is not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

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


FILLS = """
import mmap
with open("/dev/shm/batch", "w+b") as file:
    file.truncate(100 << 20)
    memory = mmap.mmap(file.fileno(), 100 << 20)
for at in range(0, 100 << 20, 4096):
    memory[at] = 1
"""


def test_a_worker_that_a_small_dev_shm_kills_is_reported_so(box: Box) -> None:
    small = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'
    box.under = ["unshare", "--mount", "--map-root-user", "sh", "-c", small, "sh"]
    if subprocess.run([*box.under, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel lets nobody mount in a namespace of their own")
    shutil.rmtree(box.runtime)
    box.runtime = Path(tempfile.mkdtemp(prefix="xl-", dir="/tmp"))
    box.config(f"[program.a]\ncommand = {json.dumps([sys.executable, '-c', FILLS])}\nprogress = 'none'\n")
    box.start()
    why = box.wait_fact("Exited", "a")["why"]
    assert re.match(r"killed by SIGBUS.*; /dev/shm \(64 MiB\) ", why), why


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Mounts one directory once more, as another container does: each sees only its own locks."""
    (tmp_path / "lower").mkdir()
    (tmp_path / "upper").mkdir()
    mounted: list[Path] = []

    def mount() -> Path:
        place, work = tmp_path / f"mount{len(mounted)}", tmp_path / f"work{len(mounted)}"
        place.mkdir()
        work.mkdir()
        layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={work},timeout=0"
        command = ["fuse-overlayfs", "-o", layers, str(place)]
        if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no file system in user space can be mounted here")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "--lazy", place], check=False)


def test_of_two_containers_on_one_network_volume_only_one_trains(box: Box, volume: Callable[[], Path]) -> None:
    first = volume()
    box.state = first / "state"
    box.config(box.trainer("a"))
    box.start()
    box.wait_fact("BecameReady", "a")
    other = {str(first): str(volume()), str(box.runtime): f"{box.runtime}/other"}
    box.config_file.write_text(re.sub("|".join(other), lambda found: other[found[0]], box.config_file.read_text()))
    box.under = ["unshare", "--uts", "sh", "-c", 'hostname another && exec "$@"', "sh"]
    daemon = box.start(wait=False)
    assert daemon.wait(60) != 0
    assert "another supervisord (pid " in box.log.read_text()
    assert len(box.facts("DaemonStarted")) == 1
    assert len(box.facts("Spawned")) == 1
