"""The accounts of a real night in small: a worker killed, one stopped, the daemon killed, the power cut. They add up."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from box import Box, until

from supervisor.adapters.host.boot import read_mark
from workers.daemon_side import read_beat

STEP_S = 0.04


def told(box: Box, *args: str) -> dict[str, Any]:
    """`accounts --json`, checked to add up to what was paid."""
    done = box.ctl("accounts", "--json", *args)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    for sheet in (found["total"], *found["programs"]):
        assert abs(sum(sheet["seconds"].values()) - sheet["wall_s"]) < 1e-6, sheet
        assert sheet["seconds"]["UNKNOWN"] == 0.0
        assert min(sheet["seconds"].values()) >= 0.0
    return found


def seconds(found: dict[str, Any], name: str) -> dict[str, float]:
    return next(sheet["seconds"] for sheet in found["programs"] if sheet["name"] == name)


def steps(box: Box, name: str, least: int) -> None:
    until(lambda: (box.program(name).get("steps") or 0) >= least, 30, f"{least} steps of {name}: {box.tail()}")


def between_checkpoints(box: Box, name: str) -> None:
    """Well after one (of each 50 steps) by the durable sign of life, which is late by its period; well before the next."""

    newest = max((box.runtime / "beats").glob(f"{name}.*.beat"), key=lambda path: path.stat().st_mtime_ns)

    def so() -> bool:
        # From the files: whoever asks the daemon of a busy box is told too late.
        mark, beat = read_mark(box.state / "alive"), read_beat(newest)
        told = 0 if mark is None else mark.steps.get(name, 0)
        return beat is not None and told > 50 and 5 <= told % 50 <= 20 and (beat.env_steps or 0) < told + 15

    until(so, 30, name)


def test_a_night_of_trouble_adds_up(box: Box) -> None:
    slowly = ("--period-s", str(STEP_S))  # two seconds between checkpoints: so much can be lost
    seldom = "[checkpoint]\nmin_s = 200.0\nfirst_s = 200.0"  # none but those that the worker makes of itself
    box.config(box.trainer("a", "none", *slowly) + box.trainer("b", "none", *slowly), slots=2, extra=seldom)
    box.start()
    for name in "ab":
        box.wait_phase(name, "RUNNING")
    pids = {name: box.program(name)["pid"] for name in "ab"}
    between_checkpoints(box, "a")
    os.kill(pids["a"], signal.SIGKILL)
    box.wait_fact("Resumed", "a", count=2)
    steps(box, "b", 60)
    os.kill(pids["b"], signal.SIGSTOP)
    box.wait_fact("Revived", "b")
    until(lambda: box.program("b")["phase"] == "RUNNING" and box.program("a")["phase"] == "RUNNING", 30, "all is well")

    before = told(box)
    assert seconds(before, "a")["LOST"] > 0, "what was trained since the last checkpoint"
    assert seconds(before, "b")["RESTARTING"] >= 0.5, "it stood still before anybody knew"
    assert seconds(before, "b")["LOST"] == 0.0
    assert before["total"]["failures"] == 2
    assert before["total"]["seconds"]["DOWN"] == 0.0

    # The daemon dies; its workers train on, which their steps prove.
    at = box.program("b")["steps"]
    box.kill_daemon()
    dead = told(box)
    assert dead["total"]["wall_s"] >= before["total"]["wall_s"]
    left = read_mark(box.state / "alive")
    box.start()
    found = read_mark(box.state / "alive")
    assert left is not None
    assert found is not None
    assert found.steps["b"] >= left.steps["b"], "a power cut now would be told from here"
    assert found.ckpt_steps["b"] >= left.ckpt_steps["b"], (
        "else all since the newest checkpoint on record would count as lost"
    )
    gap = box.facts("DaemonStarted")[-1]
    adopted = until(
        lambda: [f for f in box.facts("Tallied", "b") if f["from_s"] <= gap["last_sign_s"] + 1e-6 and f["seq"] > gap["seq"]],
        30,
        "the time without a daemon to be booked",
    )[0]
    steps(box, "b", at + 20)
    proven_s = (adopted["steps"] - left.steps["b"]) * STEP_S  # on a busy box it may have stood still for half of the time
    assert proven_s > 0
    assert adopted["seconds"]["training"] >= min(proven_s, adopted["until_s"] - adopted["from_s"]) - 0.001

    # The power goes; the box comes back.
    between_checkpoints(box, "b")
    os.kill(pids["b"], signal.SIGSTOP)  # it ends at this moment: it must not save while the others are being killed
    box.power_cut()
    box.start()
    for name in "ab":
        box.wait_fact("Resumed", name, count=3 if name == "a" else 2)
        box.wait_phase(name, "RUNNING")
    after = told(box)
    down_s = box.facts("HostRebooted")[-1]["down_s"]
    assert after["total"]["seconds"]["DOWN"] > 2 * down_s, "both slots, while it was off; then until the daemon's start"
    assert after["total"]["seconds"]["TRAINING"] > 0.0
    assert seconds(after, "b")["LOST"] > 0.0
    assert [sheet["reboots"] for sheet in after["programs"]] == [1, 1]
    resumed = box.facts("Resumed", "b")[-1]
    assert resumed["lost_steps"] > 0
    assert resumed["lost_s"] > 0, "although the daemon that knew the rate is gone"
    assert 0 < resumed["lost_share"] <= 1
    log = box.state / "reboot_alerts.log"
    line = until(lambda: log.exists() and log.read_text(), 30, "the reboot's line, which a thread of its own writes")
    assert f"b:~{resumed['lost_steps']}/" in line

    # Windows add up, people can read it.
    recent = told(box, "--since", "boot")
    assert recent["total"]["seconds"]["DOWN"] <= after["total"]["seconds"]["DOWN"] - 2 * down_s + 0.005, "after the boot"
    page = box.ctl("accounts").stdout
    assert "slot-hours paid (2 slots now)" in page
    assert "DOWN" in page
    assert box.ctl("accounts", "nobody").returncode == 1
    assert box.ctl("accounts", "--since", "yesterday").returncode == 2
