"""Trainings that really go wrong, under the real daemon: rates that nothing can learn with, on Catch."""

from __future__ import annotations

import json
import sys

import pytest
from box import ROOT, Box, until

FLAGS = """
[training]
game = "Catch"
num_envs = 16
threads = 1
n_steps = 32
batch_size = 256
max_grad_norm = 0.0
steps = 100000000
[checkpoint]
min_s = 0.5
first_s = 0.5
max_s = 1.0
"""
HEALTH = """[health]
q_factor = 2.0
exploding_for_s = 2.0
collapsed_for_s = 0.5
fall_games = 300
on_falling = "rollback"
"""


def aside(box: Box, name: str) -> list[int]:
    """Steps of the checkpoints that were set aside."""
    where = box.state / "programs" / name / "checkpoints"
    return sorted(int(path.name.split("-")[1].split(".")[0]) for path in where.glob("*.bad"))


@pytest.mark.fault("exploding-q")
def test_a_worker_whose_q_explodes_is_rolled_back_to_before_it_began(box: Box) -> None:
    """A small trainer of the contract: from step 150 on its Q is 500 times what can be, until it is given other chance."""
    command = json.dumps([sys.executable, str(ROOT / "tests" / "e2e" / "programs" / "ailing.py"), "explode"])
    box.config(HEALTH + f'[program.mine]\ncommand = {command}\nprogress = "beat"\n')
    box.start()
    until(lambda: (box.program("mine").get("steps") or 0) >= 100, 60, "the daemon to have seen it well")
    (box.state / "programs" / "mine" / "go-on").touch()
    sick = box.wait_fact("Sickened", "mine", timeout_s=180)
    assert (sick["illness"], sick["action"]) == ("exploding", "rollback")
    assert sick["fine_step"] < 150
    assert sick["evidence"]["largest |Q|"] == "50000"
    assert box.wait_fact("Exited", "mine")["cause"] == "sick"
    back = box.wait_fact("RolledBack", "mine")
    resumed = box.wait_fact("Resumed", "mine", count=2, timeout_s=180)
    assert 0 < resumed["step"] <= 100 < back["step"]
    assert min(aside(box, "mine")) >= back["from_step"]
    until(lambda: (box.program("mine").get("steps") or 0) > 200, 180, "it to get beyond where it was sick")
    assert len(box.facts("Sickened", "mine")) == 1
    assert "its Q exploded" in box.ctl("explain", "mine", check=True).stdout


@pytest.mark.fault("collapsed-entropy")
@pytest.mark.fault("falling-return")
@pytest.mark.slow
@pytest.mark.timeout(400)  # three starts of a worker and two trainings one after the other
def test_a_policy_that_collapses_and_a_return_that_falls_are_reported_and_the_fall_is_rolled_back(box: Box) -> None:
    """PPO with a rate of 1 is sure of nonsense at once; one that has learned Catch unlearns it when it is given that rate.

    At once: within 3,000 steps, as `clip` holds no update back; with the usual one it takes 90,000, on a core of its own.
    """
    sure = "[program.sure]\nalgo = 'ppo'\nlr = 1.0\nclip = 10.0\nent_coef = 0.0\non_sick = 'tell'\n"
    good = FLAGS + HEALTH + sure + "[program.quick]\nalgo = 'ppo'\nlr = 0.01\n"
    box.config(good)
    box.start()
    collapsed = box.wait_fact("Sickened", "sure", timeout_s=180)
    assert (collapsed["illness"], collapsed["action"]) == ("collapsed", "tell")
    assert float(collapsed["evidence"]["entropy share"]) < 0.01
    assert "its policy collapsed" in box.program("sure")["why"]
    box.ctl("stop", "sure", check=True)  # it would train on for nothing, on a core of its own

    until(lambda: (box.program("quick").get("best_return") or -1) > 0.5, 180, "it to learn")
    box.config(good.replace("lr = 0.01", "lr = 1.0\nent_coef = 0.0"))
    box.ctl("update", check=True)
    fallen = until(lambda: [f for f in box.facts("Sickened", "quick") if f["illness"] == "falling"], 180, "a fall")[0]
    assert fallen["action"] == "rollback"
    back = box.wait_fact("RolledBack", "quick")
    resumed = box.wait_fact("Resumed", "quick", count=3, timeout_s=180)
    assert 0 < resumed["step"] <= back["step"]
    assert not aside(box, "quick") or min(aside(box, "quick")) >= back["from_step"]
    assert "its return fell" in box.ctl("explain", "quick", "-n", "20", check=True).stdout
