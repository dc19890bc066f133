"""A real DQN worker under the real daemon moves to another level and back by `update`, and nothing is lost."""

from __future__ import annotations

import re

from box import Box, until

CATCH = """
[training]
num_envs = {envs}
batch_size = {batch}
learning_starts = 200
replay_size = 200000
threads = 1
replay_ratio = 1.0
[program.Catch]
steps = 100000000
"""
RESUMED = re.compile(r"resumed at step ([\d,]+) from \S+; replay: (\d+) environment steps of this boot")


def test_a_level_that_is_changed_by_update_loses_no_step_and_no_experience(box: Box) -> None:
    box.config(CATCH.format(envs=8, batch=32))
    box.start()
    box.wait_phase("Catch", "RUNNING", 90)
    for count, (envs, batch) in enumerate(((16, 64), (8, 32)), 2):
        at = box.program("Catch")["steps"] or 0
        until(lambda at=at: (box.program("Catch")["steps"] or 0) > at + 500, 30, "some training")
        box.config(CATCH.format(envs=envs, batch=batch))
        assert box.ctl("update").returncode == 0
        resumed = box.wait_fact("Resumed", "Catch", count=count, timeout_s=90)
        assert resumed["step"] > at + 500
        assert resumed["lost_steps"] == 0
        log = (box.state / "programs" / "Catch" / "stdout.log").read_text()
        step, kept = RESUMED.findall(log)[-1]
        assert int(step.replace(",", "")) == int(kept) == resumed["step"], "every step that was made is there to learn from"
        # Both: while it builds its environments it has told their number, and not yet its batch.
        running = until(
            lambda level=(envs, batch): ((p := box.program("Catch"))["num_envs"], p["batch_size"]) == level and p, 60,
            "the other level",
        )  # fmt: skip
        assert running["restarts"] == 0
