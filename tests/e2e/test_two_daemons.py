"""Two daemons on one state directory: one decides, the others say who does, and nobody is started twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from box import PATIENCE, ROOT, Box, until


def supervisord(box: Box, *more: str) -> subprocess.Popen[str]:
    env = {**os.environ, "EXTRALIFE_BOOT_FILES": str(box.boot_files), "PYTHONPATH": str(ROOT), **box.home}
    return subprocess.Popen(
        [sys.executable, "-m", "supervisor", "-c", str(box.config_file), *more],
        cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def test_a_detached_daemon_imports_nothing_from_the_current_directory(box: Box) -> None:
    """It may be /tmp, and another user's file there would run as root."""
    here = box.directory / "here"
    here.mkdir()
    for name in ("html", "queue", "random"):
        (here / f"{name}.py").write_text("raise SystemExit('run')\n")
    box.config(box.trainer("a"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), **box.home}
    command = [sys.executable, "-P", "-m", "supervisor", "-c", str(box.config_file), "--detach"]  # as the installed script
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False, timeout=60 * PATIENCE)
    try:
        assert done.returncode == 0, done.stderr
        box.wait_phase("a", "RUNNING")
    finally:
        box.ctl("shutdown")
        until(lambda: not box.shims(), 30, "its end")


def refused(second: subprocess.Popen[str], first: int) -> None:
    _, said = second.communicate(timeout=60 * PATIENCE)
    assert second.returncode == 1, said
    assert said.startswith(f"supervisord: another supervisord (pid {first}) runs on "), said
    assert said.count("\n") == 1, "one sentence"


@pytest.mark.fault("two-daemons")
def test_of_four_daemons_started_at_once_one_decides(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"))
    daemons = [supervisord(box) for _ in range(4)]
    try:
        until(lambda: sum(each.poll() is not None for each in daemons) == 3, 30, "three of four to give up")
        first = next(each for each in daemons if each.poll() is None)
        for second in (each for each in daemons if each is not first):
            refused(second, first.pid)
        for name in "ab":
            box.wait_phase(name, "RUNNING")
        assert len(box.facts("DaemonStarted")) == 1
        assert len(box.facts("SpawnIntended")) == 2
        assert len(box.shims()) == 2
    finally:
        for each in daemons:
            if each.poll() is None:
                each.kill()
            each.communicate()


@pytest.mark.fault("two-daemons")
def test_no_detour_leads_a_second_daemon_to_the_same_state(box: Box) -> None:
    """Neither another runtime directory, nor a first one that stands still; only its end."""
    box.config(box.trainer("a"))
    first = box.start()
    pid = box.wait_phase("a", "RUNNING")["pid"]
    elsewhere = box.runtime / "elsewhere"
    refused(supervisord(box, "--runtime-dir", str(elsewhere)), first.pid)
    first.send_signal(signal.SIGSTOP)
    refused(supervisord(box), first.pid)
    box.kill_daemon()
    box.start()
    assert box.wait_phase("a", "RUNNING")["pid"] == pid
    assert [fact["adopted"] for fact in box.facts("DaemonStarted")] == [0, 1]
    assert len(box.facts("SpawnIntended")) == 1


@pytest.mark.fault("two-daemons")
def test_neither_a_removed_lock_nor_a_removed_state_directory_lets_a_second_daemon_in(box: Box) -> None:
    box.config(box.trainer("a"))
    first = box.start()
    box.wait_phase("a", "RUNNING")
    (box.state / "lock").unlink()
    refused(supervisord(box, "--runtime-dir", str(box.runtime / "elsewhere")), first.pid)
    until((box.state / "lock").exists, 20, "the lock to be made anew")
    lost = box.wait_fact("FoundationLost")
    assert (lost["name"], lost["look"], lost["troubled"]) == ("lock", "missing", False)
    box.wait_fact("DaemonStarted", count=2)
    away = box.state.with_name("away")
    box.state.rename(away)
    try:
        refused(supervisord(box), first.pid)
        refused(supervisord(box, "--runtime-dir", str(box.runtime / "elsewhere")), first.pid)
        refused(supervisord(box, "--detach"), first.pid)
        assert not box.state.exists(), "nothing is made in its place"
    finally:
        away.rename(box.state)
    assert [fact["adopted"] for fact in box.facts("DaemonStarted")] == [0, 1]
    assert len(box.shims()) <= 1
