"""The real worker under the real daemon: Double DQN on envpool, killed, damaged and power-cut, and it goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from box import Box, until

CATCH = Box.catch(1.0, 2.0)


def checkpoints(box: Box, program: str = "Catch") -> list[Path]:
    where = box.state / "programs" / program / "checkpoints"
    found = [p for p in where.glob("ckpt-*") if p.suffix not in {".bad", ".tmp"}] if where.exists() else []
    return sorted(found, key=lambda p: int(p.name.split("-")[1].split(".")[0]))


def test_real_training_survives_kill_9_and_a_damaged_newest_checkpoint(box: Box) -> None:
    box.config(CATCH)
    box.calm()
    box.start()
    first = box.wait_phase("Catch", "RUNNING", 90)
    until(lambda: len(checkpoints(box)) >= 3, 60, "three checkpoints")
    os.kill(first["pid"], signal.SIGKILL)
    box.wait_fact("BecameReady", "Catch", count=2, timeout_s=60)
    resumed = box.wait_fact("Resumed", "Catch", count=2)
    assert resumed["step"] > 0

    until(lambda: len(checkpoints(box)) >= 3, 60, "three checkpoints again")
    assert box.ctl("stop", "Catch").returncode == 0
    newest, before = checkpoints(box)[-1], checkpoints(box)[-2]
    tensors = next(p for p in newest.iterdir() if p.suffix == ".safetensors")
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(data)
    assert box.ctl("start", "Catch").returncode == 0
    bad = box.wait_fact("CheckpointBad", "Catch", timeout_s=60)
    assert newest.name in bad["path"]
    resumed = box.wait_fact("Resumed", "Catch", count=3, timeout_s=60)
    assert resumed["step"] == int(before.name.split("-")[1].split(".")[0])
    assert box.wait_phase("Catch", "RUNNING", 60)["restarts"] == 1


def test_real_training_resumes_after_a_power_cut(box: Box) -> None:
    box.config(CATCH)
    box.calm()
    box.start()
    box.wait_phase("Catch", "RUNNING", 90)
    until(lambda: len(checkpoints(box)) >= 2, 60, "two checkpoints")
    newest = int(checkpoints(box)[-1].name.split("-")[1].split(".")[0])
    box.power_cut()
    box.start()
    resumed = box.wait_fact("Resumed", "Catch", count=2, timeout_s=60)
    assert resumed["step"] >= newest
    box.wait_phase("Catch", "RUNNING", 60)


def test_a_finished_run_is_done_and_stays_done(box: Box) -> None:
    box.config(CATCH.replace("steps = 100000000", "steps = 2000"))
    box.start()
    box.wait_phase("Catch", "DONE", 120)
    box.kill_daemon()
    box.start()
    assert box.program("Catch")["phase"] == "DONE"


def test_an_impossible_game_setting_is_fatal_at_once_and_not_retried(box: Box) -> None:
    box.config(CATCH.replace("steps = 100000000", "steps = 2000\nreplay_size = 8_000_000_000"))
    box.start()
    program = box.wait_phase("Catch", "FATAL", 50)
    assert "replay" in program["why"].lower()
    assert program["restarts"] == 0
