"""Every recipe of docs/recipes, run against the real framework under a real daemon: each has five faults.

They have an environment of their own (conftest.py): this interpreter's packages (torch) and the frameworks. CleanRL's script
comes from a checkout that EXTRALIFE_CLEANRL names.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from box import Box, until
from tools import ROOT

RECIPES = ROOT / "docs" / "recipes"
PATCH = RECIPES / "cleanrl_ppo.patch"

pytestmark = pytest.mark.timeout(900)


def patched(ppo: Path, directory: Path) -> Path:
    """CleanRL's ppo.py with our patch."""
    (directory / "cleanrl").mkdir()
    shutil.copy(ppo, directory / "cleanrl")
    subprocess.run(["patch", "-p1", "-i", str(PATCH)], cwd=directory, check=True, capture_output=True)
    return directory / "cleanrl" / "ppo.py"


def command(recipe: str, place: Path, directory: Path, request: pytest.FixtureRequest) -> list[str]:
    python = str(place / "python")
    commands = {
        "cleanrl": lambda: [python, str(patched(request.getfixturevalue("cleanrl"), directory)), "--total-timesteps", "10000000"],
        "torchrun": lambda: [
            python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(RECIPES / "torchrun_ddp.py"),
        ],
        "seeds": lambda: ["sh", str(RECIPES / "seeds.sh")],
    }  # fmt: skip
    return commands[recipe]() if recipe in commands else [python, str(RECIPES / f"{recipe}.py")]


def started(box: Box, recipe: str, place: Path, request: pytest.FixtureRequest) -> None:
    argv = command(recipe, place, box.directory, request)
    env = {
        "PYTHONPATH": f"{ROOT / 'client'}:{Path(__file__).parent / 'faulty'}",
        "FAULT_FILE": str(box.directory / "fault"),
        "PATH": f"{place}:/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
        "SDL_VIDEODRIVER": "dummy",
    }
    table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
    box.config(
        f'[program.it]\ncommand = {json.dumps(argv)}\nprogress = "beat"\nstop_grace_s = 60.0\nstart_timeout_s = 300.0\nstall_timeout_s = 20.0\n'
        f"env = {{ {table} }}\ndirectory = {json.dumps(str(box.directory))}\n",
        extra="[checkpoint]\nfirst_s = 2.0\nmin_s = 2.0\nmax_s = 2.0\n",
    )
    box.start()


def saved(box: Box, beyond: int = 0) -> dict:
    def look():
        shown = box.program("it")
        step = shown.get("ckpt_step")
        assert shown.get("phase") not in {"FATAL", "DONE"}, (shown, box.ctl("tail", "it", "stderr").stdout[-3000:])
        return shown if step is not None and step > beyond and (shown.get("steps") or 0) > step else None

    return until(look, 240, "a checkpoint")


def resumed_in(box: Box, attempt: int) -> dict:
    """The first report of this attempt: a loop over seeds makes one in each of its processes."""

    def look():
        attempts = list(dict.fromkeys(fact["token"] for fact in box.facts("Resumed", "it")))
        if len(attempts) < attempt:
            return None
        return next(fact for fact in box.facts("Resumed", "it") if fact["token"] == attempts[attempt - 1])

    return until(look, 120, f"attempt {attempt} to resume")


def test_cleanrl_needs_at_most_fifteen_lines_that_are_new_or_changed() -> None:
    lines = PATCH.read_text().splitlines()
    assert sum(line.startswith("+") and not line.startswith("+++") for line in lines) <= 15


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe", ["loop", "cleanrl", "sb3", "sb3_own_env", "lightning_fit", "hf_trainer", "torchrun_ddp", "seeds"]
)
def test_it_is_killed_stopped_hung_out_of_memory_and_rebooted_and_goes_on_where_it_was(
    box: Box, place: Path, recipe: str, request: pytest.FixtureRequest
) -> None:
    name = "torchrun" if recipe == "torchrun_ddp" else recipe
    started(box, name, place, request)

    # kill -9 of all of it
    before = saved(box)
    os.kill(before["pid"], signal.SIGKILL)
    resumed = resumed_in(box, 2)
    ended = box.facts("Exited", "it")[-1]
    assert before["ckpt_step"] <= resumed["step"] <= ended["steps"]
    # Ranks that outlive their launcher save when they are asked to leave: their loss is unknown, not 0, if no beat came after.
    assert (resumed["lost_steps"] or 0) == ended["steps"] - resumed["step"]

    # a stop and a start: nothing is lost
    before = saved(box, resumed["step"])
    box.ctl("restart", "it", timeout_s=120)
    resumed = resumed_in(box, 3)
    ended = box.facts("Exited", "it")[-1]
    assert not ended["leftovers"]
    assert resumed["lost_steps"] == 0, ended
    assert resumed["step"] == ended["steps"] >= before["ckpt_step"]

    # a hang, and then too little memory
    for attempt, (fault, cause) in enumerate((("hang", "stalled"), ("memory", "out_of_memory")), 4):
        before = saved(box, resumed["step"])
        (box.directory / "fault").write_text(fault)
        resumed = resumed_in(box, attempt)
        ended = box.facts("Exited", "it")[-1]
        assert ended["cause"] == cause
        assert before["ckpt_step"] <= resumed["step"]
        assert resumed["lost_steps"] == ended["steps"] - resumed["step"]

    # a power cut
    before = saved(box, resumed["step"])
    box.power_cut()
    box.start()
    resumed = resumed_in(box, 6)
    assert resumed["step"] >= before["ckpt_step"]
    saved(box, resumed["step"])
    lost = [fact["lost_steps"] for fact in box.facts("Resumed", "it") if fact["token"] == resumed["token"]]
    assert lost[1:] == [0] * len(lost[1:]), "the next seed loses nothing"


@pytest.mark.slow
def test_a_loop_over_seeds_goes_through_all_of_them_and_does_none_twice(tmp_path: Path, place: Path) -> None:
    env = {"PYTHONPATH": str(ROOT / "client"), "PATH": f"{place}:/usr/bin:/bin", "STEPS": "30"}
    for _ in range(2):
        subprocess.run(["sh", str(RECIPES / "seeds.sh")], cwd=tmp_path, env=env, check=True)
        steps = sorted(int(path.name[5:].split(".")[0]) for path in (tmp_path / "extralife-run" / "checkpoints").iterdir())
        assert steps == [30, 60, 90]
