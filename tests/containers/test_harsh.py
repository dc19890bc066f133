"""Containers that forbid much or have little: everything trains, is watched, saves and goes on all the same."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from containerbox import until

NO_PIDFD = ["pidfd_open", "pidfd_getfd", "pidfd_send_signal"]


def seccomp(tmp_path, errno: int) -> tuple[str, str]:
    """podman's own profile, without pidfds."""
    profile = json.loads(Path("/usr/share/containers/seccomp.json").read_text())
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in NO_PIDFD]
    profile["syscalls"].append({"names": NO_PIDFD, "action": "SCMP_ACT_ERRNO", "errnoRet": errno})
    (tmp_path / "seccomp.json").write_text(json.dumps(profile))
    return "--security-opt", f"seccomp={tmp_path}/seccomp.json"


RESTRICTED, SHARED = "as restricted pods of Kubernetes", "with the processes of the host"
KINDS = {
    RESTRICTED: lambda tmp: (
        *seccomp(tmp, 1), "--read-only", "--read-only-tmpfs=false", "--user", "12345:12345", "--cap-drop", "all",
        "--security-opt", "no-new-privileges",
    ),
    SHARED: lambda tmp: (*seccomp(tmp, 38), "--pid", "host"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [RESTRICTED, pytest.param(SHARED, marks=pytest.mark.slow)])
def test_it_trains_is_watched_and_ends_in_order(box, tmp_path, kind):
    for directory, _, files in os.walk(box.volume):
        for each in (".", *files):
            os.chown(f"{directory}/{each}", 12345, 12345, follow_symlinks=False)
    box.run(*KINDS[kind](tmp_path))
    first = box.trains()
    box.exec("sh", "-c", f"kill -9 {first['pid']}")
    second = until(
        lambda: (found := box.program()).get("pid") not in {None, first["pid"]} and found, 30, "a replacement", box.said
    )
    box.exec("sh", "-c", "kill -9 $(/workspace/extralife/extralifectl pid)")
    assert box.trains()["pid"] == second["pid"]
    assert box.stop(20) < 15, box.said()
    assert box.status_of_end() == 0, box.said()
    stored = box.acknowledged()
    box.start()
    assert box.trains()["steps"] >= stored


@pytest.mark.slow
def test_an_oom_kill_of_the_container_is_known_and_ends_neither_the_daemon_nor_the_other_program(box):
    glutton = box.volume / "glutton.py"
    glutton.write_text("import time\nheap = []\nwhile True:\n    heap.append(b'x' * 2**24)\n    time.sleep(0.02)\n")
    with (box.home / "extralife.toml").open("a") as config:
        config.write(f'[program.glutton]\ncommand = ["{sys.executable}", "/workspace/glutton.py"]\n')
    box.run("--memory", "600m", "--memory-swap", "600m")
    before = box.trains(120)
    until(lambda: box.program("glutton").get("restarts"), 60, "an OOM kill", box.said)
    assert "oom_killed" in box.ctl("history", "--json", "glutton")
    assert box.trains()["pid"] == before["pid"]


@pytest.mark.slow
def test_a_full_dev_shm_stops_no_training(box):
    box.run("--shm-size", "1m")
    before = box.trains()
    box.exec("sh", "-c", "cat /dev/zero >/dev/shm/filler", check=False)
    box.exec("sh", "-c", f"kill -9 {before['pid']}")
    until(
        lambda: (found := box.program()).get("pid") not in {None, before["pid"]} and found["phase"] == "RUNNING", 60,
        "a replacement", box.said,
    )  # fmt: skip
    box.exec("sh", "-c", "kill -9 $(/workspace/extralife/extralifectl pid)")
    box.trains()
    stored = box.acknowledged()
    box.kill()
    box.run("--shm-size", "16k")
    assert box.trains()["steps"] >= stored


def test_a_stop_without_enough_time_loses_no_stored_step_and_blames_nobody(box):
    config = box.home / "extralife.toml"
    config.write_text(config.read_text().replace('"none"', '"ignore-term"'))
    box.run("--env", "EXTRALIFE_STOP_WITHIN_S=2")
    box.trains()
    stored = box.acknowledged()
    box.stop(2)
    box.start()
    assert box.trains()["steps"] >= stored
    assert box.ctl("reboots", check=False).count("unclean") == 0
