"""A real worker trains, is backed up, trains on, and goes back: its steps are the backup's, what was there is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from box import Box, until

CATCH = """
[training]
num_envs = 8
batch_size = 32
learning_starts = 200
replay_size = 100000
threads = 1
replay_ratio = 1.0
[checkpoint]
min_s = 1.0
max_s = 2.0
first_s = 1.0
[cost]
usd_per_hour = 3.6
[program.Catch]
steps = 100000000
"""


def backups(box: Box) -> list[dict]:
    return json.loads(box.ctl("backups", "--json").stdout)["backups"]


def checkpoints(box: Box) -> list[int]:
    names = (item.name for item in (box.state / "programs" / "Catch" / "checkpoints").iterdir())
    return sorted(int(name.split("-")[1].split(".")[0]) for name in names if name.count(".") == 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.timeout(400)  # six starts of a real worker, each of which imports torch
@pytest.mark.long
def test_train_back_up_train_on_go_back(box: Box) -> None:
    box.config(CATCH)
    box.calm(0.01)
    box.start()
    box.wait_fact("Checkpointed", "Catch", timeout_s=90)
    made = box.ctl("backup", "--label", "good so far")
    assert made.returncode == 0, made.stdout
    assert "is complete: 1 program" in made.stdout
    (backup,) = backups(box)
    at = backup["programs"][0]["steps"]
    assert (backup["label"], backup["cause"], backup["error"]) == ("good so far", "operator", "")
    until(lambda: checkpoints(box)[-1] > at + 500, 60, "a later checkpoint")

    refused = box.ctl("rollback", backup["name"] + "x")
    assert refused.returncode == 1
    assert f"mean {backup['name']}" in refused.stdout
    assert len(box.facts("Spawned", "Catch")) == 1, "nothing was touched"

    gone_back = box.ctl("rollback", backup["name"], "Catch", timeout_s=60)
    assert gone_back.returncode == 0, gone_back.stdout
    assert f"back to {backup['name']}: Catch at step {at:,}" in gone_back.stdout
    resumed = box.wait_fact("Resumed", "Catch", count=2, timeout_s=90)
    assert resumed["step"] == at
    assert resumed["lost_steps"] > 500
    kept, _ = backups(box)
    assert kept["cause"] == "rollback"
    assert kept["programs"][0]["steps"] > at + 500
    box.wait_phase("Catch", "RUNNING", 90)
    assert box.program("Catch")["restarts"] == 0
    assert box.ctl("backups", "--check").returncode == 0

    # Forth again to what was kept, and the daemon is killed on the way: the next one finishes it.
    assert box.ctl("rollback", kept["name"], "--no-wait").returncode == 0
    box.kill_daemon()
    box.start()
    done = box.wait_fact("RolledBackTo", count=2, timeout_s=90)
    assert (done["backup"], done["steps"]) == (kept["name"], {"Catch": kept["programs"][0]["steps"]})
    assert box.wait_fact("Resumed", "Catch", count=3, timeout_s=90)["step"] == done["steps"]["Catch"]
    attempts = len(box.facts("Spawned", "Catch"))

    inside = box.state / "backups" / kept["name"] / "programs" / "Catch"
    flip(next(path for path in inside.rglob("tensors.safetensors")))
    damaged = box.ctl("rollback", kept["name"])
    assert damaged.returncode == 1
    assert "does not match its digest; nothing was changed" in damaged.stdout
    assert len(box.facts("Spawned", "Catch")) == attempts
    assert box.ctl("backups", "--check").returncode == 1
    costs_what_it_takes(box)


def costs_what_it_takes(box: Box) -> None:
    """The bill of all that, by the real daemon and by the journal of the dead one."""
    told = json.loads(box.ctl("cost", "--json").stdout)
    assert told["usd"] > 0
    assert abs(sum(each["usd"] for each in told["causes"]) - told["usd"]) < 1e-9
    assert {"useful", "lost work", "starts and restarts"} <= {each["name"] for each in told["causes"]}
    assert told["useful_frames"] > 0
    assert told["levels"][0]["why"].startswith("only ")
    assert "cost $" in box.ctl("status").stdout
    page = box.ctl("cost").stdout
    assert "lost work" in page
    assert "TO FINISH" in page
    assert box.stop_daemon() == 0
    dead = json.loads(box.ctl("cost", "--json").stdout)
    assert dead["usd"] >= told["usd"]
