"""A foreign script with the client under a real daemon: its checkpoints, its figures and its losses count like a worker's."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from box import FLOOR_S, LONG_S, Box, until

COUNTS = Path(__file__).parent / "programs" / "counts.py"
STEP_S = 0.002  # no step of it is shorter


def counting(name: str, total: int, save_every_s: float, fault: str = "none", grace_s: float = 5.0) -> str:
    command = json.dumps([sys.executable, str(COUNTS), str(total), str(save_every_s), fault])
    return f'[program.{name}]\ncommand = {command}\nprogress = "beat"\nstop_grace_s = {grace_s}\n'


@pytest.fixture
def box(box: Box) -> Box:
    """All of them at once, in one daemon."""
    box.config(
        counting("killed", 10**6, 1.0)
        + counting("stopped", 10**6, 100.0, grace_s=LONG_S)
        + counting("hung", 10**6, 0.3, "hangs")
        + counting("diverged", 10**6, 0.2, "nan")
        + counting("done", 200, 100.0, "forks"),
        slots=5,
        extra="[checkpoint]\nmin_s = 50.0\nfirst_s = 50.0\n",
        floor_s=FLOOR_S,
    )
    box.start()
    return box


def test_a_script_with_the_client_loses_at_most_one_save_interval_booked_to_the_step(box: Box) -> None:
    shown = until(lambda: (p := box.program("killed")).get("ckpt_step") and p.get("steps_per_s") and p, 30, "a checkpoint")
    assert shown["worker_phase"] == "training"
    assert shown["mean_return"] > 1
    assert shown["target"] == 10**6
    assert shown["figures"] == {"accuracy": 0.5}

    # A kill in the middle of everything: exact to the step, because the last beat outlives the process.
    os.kill(shown["pid"], signal.SIGKILL)
    resumed = box.wait_fact("Resumed", "killed", count=2)
    ended = box.wait_fact("Exited", "killed")
    assert ended["signal"] == signal.SIGKILL
    assert resumed["lost_steps"] == ended["steps"] - resumed["step"]
    assert 0 <= resumed["lost_steps"] <= 1.0 / STEP_S + 1, "no more than fit into one interval of a second"
    assert not resumed["at_least"]

    # A stop: it saves first, and loses nothing.
    until(lambda: box.program("stopped").get("steps"), 30, "it to train")
    box.ctl("restart", "stopped")
    resumed = box.wait_fact("Resumed", "stopped", count=2)
    assert resumed["lost_steps"] == 0
    assert resumed["step"] > 0
    ended = box.facts("Exited", "stopped")[0]
    assert ended["code"] == 75, ended

    # A hang: its stacks are kept, and it resumes.
    box.wait_fact("Stalled", "hung")
    resumed = box.wait_fact("Resumed", "hung", count=2)
    assert resumed["lost_steps"] == 400 - resumed["step"]
    assert resumed["step"] > 0
    (stacks,) = (box.state / "programs" / "hung" / "attempts").glob("1-*/stacks.txt")
    assert "counts.py" in stacks.read_text()

    # A divergence: back to before it, with another seed. It begins once the daemon has seen it well, with a checkpoint.
    until(lambda: (p := box.program("diverged")).get("ckpt_step") and p["steps"] == 300, 30, "it to wait at step 300")
    (box.state / "programs" / "diverged" / "go-on").touch()
    box.wait_fact("RolledBack", "diverged")
    resumed = box.wait_fact("Resumed", "diverged", count=2)
    assert 0 < resumed["step"] <= 300

    # One that is done, and whose forked child had counted to a billion.
    until(lambda: box.program("done").get("phase") == "DONE", 30, "it to be done")
    done = box.program("done")
    assert (done["steps"], done["ckpt_step"]) == (200, 200)

    # A backup holds them, and a rollback brings one back.
    box.ctl("backup", check=True)
    backup = box.wait_fact("BackedUp")
    assert backup["steps"]["done"] == 200
    assert backup["steps"]["killed"] > 0
    box.ctl("rollback", backup["name"], "killed", check=True)
    box.wait_fact("RolledBackTo")
    resumed = box.wait_fact("Resumed", "killed", count=3)
    assert resumed["step"] == backup["steps"]["killed"]
