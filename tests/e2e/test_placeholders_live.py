"""A script that knows nothing of extralife moves with the level by the placeholders of its command, and loses nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

from box import Box, until

SCRIPT = Path(__file__).parent / "programs" / "unaware.py"
SAID = re.compile(r"(begins|leaves) at (\d+)(?: with (\d+) of (\w+), seed (\d+), (\d+))?")


def config(box: Box) -> str:
    words = [sys.executable, str(SCRIPT), "--num-envs", "{num_envs}", "--preset", "{level}", "--seed", "{seed}"]
    return f"""
[daemon]
state_dir = "{box.state}"
runtime_dir = "{box.runtime}"
sample_period_s = 0.2
[stall]
settle_s = 0.0
[levels.light]
slots = 2
num_envs = 4
[levels.heavy]
num_envs = 8
[load]
mode = "fixed"
[program.mine]
command = {json.dumps([*words, ["--resume", "{resume}"]])}
seeds = [7]
directory = "{{run_dir}}"
checkpoint_glob = "step=*.json"
checkpoint_step = 'step=(\\d+)'
checkpoint_check = ["test", "-s"]
[program.other]
command = ["sh", "-c", "echo here; exec sleep 1000"]
"""


def test_a_script_moves_with_the_level_and_resumes_where_it_saved(box: Box) -> None:
    box.config_file.write_text(config(box))
    box.start()
    log = box.state / "programs" / "mine-s7" / "stdout.log"

    def said() -> list[tuple[str, ...]]:
        return SAID.findall(log.read_text()) if log.exists() else []

    until(lambda: list(log.parent.glob("step=*.json")), 30, "a checkpoint")
    box.wait_phase("other", "RUNNING")
    other = box.program("other")["pid"]
    assert box.ctl("level", "pin", "heavy").returncode == 0
    first, left, second = until(lambda: len(said()) >= 3 and said()[:3], 60, "the other level")
    assert first == ("begins", "0", "4", "light", "7", "4"), "without --resume, which has nothing to name"
    assert left[0] == "leaves"
    assert second == ("begins", left[1], "8", "heavy", "7", "8"), "at the very step at which it was asked to leave"
    ended = box.facts("Exited", "mine-s7")[0]
    assert (ended["cause"], box.program("mine-s7")["restarts"]) == ("stopped", 0)
    assert box.program("other")["pid"] == other, "it takes nothing of the level and is left alone"

    at = int(second[1])
    newest = lambda: max(int(path.stem[5:]) for path in log.parent.glob("step=*.json"))  # noqa: E731
    until(lambda: newest() > at, 30, "another checkpoint")
    os.kill(box.wait_phase("mine-s7", "RUNNING")["pid"], signal.SIGKILL)
    third = until(lambda: len(said()) >= 4 and said()[3], 60, "it to begin again")
    assert third[0] == "begins"
    assert int(third[1]) > at
    assert third[2:] == ("8", "heavy", "7", "8")
    assert box.facts("StartsFrom", "mine-s7")[-1]["step"] == int(third[1])
