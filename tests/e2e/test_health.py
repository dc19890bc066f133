"""Trainings that really go wrong, under the real daemon: rates that nothing can learn with, on Catch."""

from __future__ import annotations

from box import Box, until

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
collapsed_for_s = 1.0
fall_games = 300
on_falling = "rollback"
"""


def aside(box: Box, name: str) -> list[int]:
    """Steps of the checkpoints that were set aside."""
    where = box.state / "programs" / name / "checkpoints"
    return sorted(int(path.name.split("-")[1].split(".")[0]) for path in where.glob("*.bad"))


def test_a_q_that_really_explodes_is_rolled_back(box: Box) -> None:
    """PQN with a rate of 1: Q is in the hundreds where 2 is the most that it can be."""
    box.config(FLAGS + HEALTH.replace("[daemon]", "[program.quick]\nalgo = 'pqn'\nlr = 1.0\ngamma = 0.5\n[daemon]"))
    box.start()
    sick = box.wait_fact("Sickened", "quick", timeout_s=90)
    assert (sick["illness"], sick["action"]) == ("exploding", "rollback")
    assert float(sick["evidence"]["largest |Q|"]) > 2 * float(sick["evidence"]["possible |Q|"]) == 4.0
    assert box.wait_fact("Exited", "quick")["cause"] == "sick"
    back = box.wait_fact("RolledBack", "quick")
    box.wait_fact("Resumed", "quick", count=2, timeout_s=60)
    log = (box.state / "programs" / "quick" / "stdout.log").read_text()
    seeds = [line.rpartition("seed ")[2] for line in log.splitlines() if "seed " in line]
    assert len(set(seeds)) == len(seeds) >= 2, "other chance"
    assert "its Q exploded" in back["why"]
    assert "its Q exploded" in box.ctl("explain", "quick", check=True).stdout
    assert "left as asked" not in log.partition("resumed")[0], "nothing was saved on the way out"


def test_a_policy_that_collapses_and_a_return_that_falls_are_told_and_the_fall_is_rolled_back(box: Box) -> None:
    """PPO learns Catch; then its config gets a rate of 1, at which it unlearns it at once."""
    good = FLAGS + HEALTH + "[program.quick]\nalgo = 'ppo'\nlr = 0.001\n"
    box.config(good)
    box.start()
    until(lambda: (box.program("quick").get("best_return") or -1) > 0.5, 90, "it to learn")
    box.config(good.replace("lr = 0.001", "lr = 1.0\nent_coef = 0.0"))
    assert box.ctl("update", check=True)
    collapsed = until(lambda: [f for f in box.facts("Sickened", "quick") if f["illness"] == "collapsed"], 90, "a collapse")[
        0
    ]
    assert collapsed["action"] == "tell"
    assert "entropy share" in collapsed["evidence"]
    fallen = until(lambda: [f for f in box.facts("Sickened", "quick") if f["illness"] == "falling"], 90, "a fall")[0]
    assert fallen["action"] == "rollback"
    back = box.wait_fact("RolledBack", "quick")
    resumed = box.wait_fact("Resumed", "quick", count=3, timeout_s=60)
    assert 0 < resumed["step"] < back["from_step"] <= back["step"]
    assert min(aside(box, "quick")) >= back["from_step"]
    told = box.ctl("explain", "quick", "-n", "20", check=True).stdout
    assert "its return fell" in told
    assert "its policy collapsed" in told
