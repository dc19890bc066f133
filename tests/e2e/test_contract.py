"""Any script can be supervised: one that only prints, one of shell with systemd-notify, one with the small client."""

from __future__ import annotations

import json
import os
import signal

import pytest
from box import FLOOR_S, Box, until
from tools import needs


def test_an_unmodified_script_that_only_prints(box: Box) -> None:
    script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo epoch $i; sleep 0.05; done; exec sleep 1000"
    box.config(
        f'[program.prints]\ncommand = {json.dumps(["sh", "-c", script])}\nprogress = "log"\nstall_timeout_s = {FLOOR_S}\n'
    )
    box.start()
    box.wait_phase("prints", "RUNNING")
    stalled = box.wait_fact("Stalled", "prints")
    assert stalled["stall"] == "silent"
    assert stalled["age_s"] >= FLOOR_S
    box.wait_fact("BecameReady", "prints", count=2)
    assert box.facts("Exited", "prints")[0]["cause"] == "stalled"
    assert "epoch 40" in box.ctl("tail", "prints").stdout


def test_progress_may_be_the_growth_of_a_checkpoint_directory(box: Box) -> None:
    where = box.directory / "ckpts"
    where.mkdir()
    script = "i=0; while :; do i=$((i+1)); [ -e stop ] || echo $i > model-$i.pt; sleep 0.1; done"
    box.config(
        f'[program.saves]\ncommand = {json.dumps(["sh", "-c", script])}\ndirectory = "{where}"\n'
        f'progress = "files"\nprogress_glob = "*.pt"\nstall_timeout_s = {FLOOR_S}\n'
    )
    box.start()
    box.wait_phase("saves", "RUNNING")
    until(lambda: len(list(where.glob("*.pt"))) > 15 * FLOOR_S, 20, "it to live longer than its stall limit")
    assert not box.facts("Stalled")
    (where / "stop").touch()
    box.wait_fact("Stalled", "saves")


def test_a_shell_script_with_systemd_notify(box: Box) -> None:
    needs("systemd-notify")
    script = (
        "sleep 0.3; systemd-notify --ready --status='warming up'; i=0; "
        "while [ $i -lt 8 ]; do i=$((i+1)); systemd-notify WATCHDOG=1 X_EXTRALIFE_STEPS=$i; sleep 0.1; done; "
        "exec sleep 1000"
    )
    box.config(
        f'[program.shell]\ncommand = {json.dumps(["sh", "-c", script])}\nprogress = "notify"\nstall_timeout_s = {FLOOR_S}\n'
    )
    box.start()
    box.wait_phase("shell", "RUNNING")
    assert "warming up" in box.program("shell")["why"]
    until(lambda: box.program("shell").get("steps") == 8, 20, "its steps")
    box.wait_fact("Stalled", "shell")
    box.wait_fact("BecameReady", "shell", count=2)


def test_a_python_script_with_the_small_client(box: Box) -> None:
    box.config(box.trainer("client"))
    box.start()
    program = box.wait_phase("client", "RUNNING")
    assert program["worker_phase"] == "training"
    until(lambda: (box.program("client").get("ckpt_step") or 0) >= 50, 20, "its checkpoint to be seen")
    shown = box.program("client")
    assert shown["steps"] >= 50
    assert shown["mean_return"] == 1.5
    assert shown["steps_per_s"] == pytest.approx(100.0)


def test_a_script_without_the_stacks_signal_is_not_killed_by_being_examined(box: Box) -> None:
    box.config(
        f"[program.mute]\ncommand = {json.dumps(['sh', '-c', 'echo once; exec sleep 1000'])}\n"
        'progress = "log"\nstall_timeout_s = 1.0\n'
    )
    box.start()
    box.wait_fact("Examined", "mute")
    exited = box.wait_fact("Exited", "mute")
    assert exited["signal"] in {signal.SIGTERM, signal.SIGKILL}, "ended by the healing, not by the examination"


def test_workers_do_not_inherit_the_daemons_own_notify_socket(box: Box) -> None:
    box.config(
        f'[program.env]\ncommand = {json.dumps(["sh", "-c", "env; echo that is all; exec sleep 1000"])}\nprogress = "none"\n'
    )
    os.environ["WATCHDOG_USEC"], os.environ["NOTIFY_SOCKET"] = "30000000", "/nonexistent/systemd"
    try:
        box.start()
    finally:
        del os.environ["WATCHDOG_USEC"], os.environ["NOTIFY_SOCKET"]
    box.wait_phase("env", "RUNNING")
    printed = until(
        lambda: (text := box.ctl("tail", "-100000", "env").stdout).endswith("that is all\n") and text,
        10,
        "all to be printed",
    )
    assert "WATCHDOG_USEC" not in printed
    assert "/nonexistent/systemd" not in printed
    assert "EXTRALIFE_TOKEN=" in printed
