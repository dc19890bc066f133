"""Any script can be supervised: one that only prints, one of shell with systemd-notify, one with the small client."""

from __future__ import annotations

import json
import os
import signal

import pytest
from box import FLOOR_S, Box, until
from tools import needs


def shell(name: str, script: str, keys: str) -> str:
    return f"[program.{name}]\ncommand = {json.dumps(['sh', '-c', script])}\nstall_timeout_s = {FLOOR_S}\n{keys}\n"


def test_any_script_is_watched_by_what_it_does(box: Box) -> None:
    """One that prints, one that writes files, one that tells systemd-notify, one that knows no signal, beside each other."""
    needs("systemd-notify")
    where = box.directory / "ckpts"
    where.mkdir()
    box.config(
        shell(
            "prints",
            "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo epoch $i; sleep 0.05; done; exec sleep 1000",
            'progress = "log"',
        )
        + shell(
            "saves",
            "i=0; while :; do i=$((i+1)); [ -e stop ] || echo $i > model-$i.pt; sleep 0.1; done",
            f'directory = "{where}"\nprogress = "files"\nprogress_glob = "*.pt"',
        )
        + shell(
            "shell",
            "sleep 0.3; systemd-notify --ready --status='warming up'; i=0; "
            "while [ $i -lt 8 ]; do i=$((i+1)); systemd-notify WATCHDOG=1 X_EXTRALIFE_STEPS=$i; sleep 0.1; done; "
            "exec sleep 1000",
            'progress = "notify"',
        )
        + shell("mute", "echo once; exec sleep 1000", 'progress = "log"')
        + shell("env", "env; echo that is all; exec sleep 1000", 'progress = "none"').replace("stall_timeout_s", "# ")
        + box.trainer("client"),
        slots=6,
    )
    os.environ["WATCHDOG_USEC"], os.environ["NOTIFY_SOCKET"] = "30000000", "/nonexistent/systemd"
    try:
        box.start()
    finally:
        del os.environ["WATCHDOG_USEC"], os.environ["NOTIFY_SOCKET"]

    box.wait_phase("shell", "RUNNING")
    assert "warming up" in box.program("shell")["why"]
    until(lambda: box.program("shell").get("steps") == 8, 20, "its steps")
    stalled = box.wait_fact("Stalled", "prints")
    assert stalled["stall"] == "silent"
    assert stalled["age_s"] >= FLOOR_S
    for name in ("prints", "shell"):
        box.wait_fact("Stalled", name)
        box.wait_fact("BecameReady", name, count=2)
    assert box.facts("Exited", "prints")[0]["cause"] == "stalled"
    assert "epoch 40" in box.ctl("tail", "prints").stdout

    box.wait_fact("Examined", "mute")
    exited = box.wait_fact("Exited", "mute")
    assert exited["signal"] in {signal.SIGTERM, signal.SIGKILL}, "ended by the healing, not by the examination"

    until(lambda: len(list(where.glob("*.pt"))) > 15 * FLOOR_S, 20, "it to live longer than its stall limit")
    assert not box.facts("Stalled", "saves")
    (where / "stop").touch()
    box.wait_fact("Stalled", "saves")

    printed = until(
        lambda: (text := box.ctl("tail", "-100000", "env").stdout).endswith("that is all\n") and text, 10,
        "all to be printed",
    )  # fmt: skip
    assert "WATCHDOG_USEC" not in printed
    assert "/nonexistent/systemd" not in printed
    assert "EXTRALIFE_TOKEN=" in printed

    shown = until(lambda: (p := box.program("client")).get("ckpt_step", 0) >= 50 and p, 20, "its checkpoint to be seen")
    assert shown["worker_phase"] == "training"
    assert shown["steps"] >= 50
    assert shown["mean_return"] == 1.5
    assert shown["steps_per_s"] == pytest.approx(100.0)
