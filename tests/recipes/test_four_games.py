"""docs/recipes/four_games.toml as it is: two scripts that know nothing of extralife, with envpool and torch, as four programs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from box import Box, until

from supervisor import config

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"

pytestmark = pytest.mark.timeout(900)
GAMES = ("Pong", "Breakout", "boxing-1", "boxing-2")
BEGINS = re.compile(r"\w+: from step (\d+) with (\d+) environments, batch (\d+), seed \d+")


def started(box: Box) -> None:
    """The file of the recipe; only its directory is another one, and Pong has faults on demand."""
    place = box.directory / "atari"
    place.mkdir()
    for script in ("train_envpool.py", "train_ppo.py"):
        shutil.copy(RECIPES / script, place)
    text = (RECIPES / "four_games.toml").read_text()
    fault = (
        f'FAULT_FILE = "{box.directory}/fault", FAULT_WITHOUT_CLIENT = "1", PYTHONPATH = "{Path(__file__).parent}/faulty"'
    )
    assert text.count('directory = "/home/me/atari"') == len(GAMES)
    assert text.count('"/home/me/venv/bin/python"') == len(GAMES)
    text = (
        text.replace("/home/me/atari", str(place))
        .replace("/home/me/venv/bin/python", sys.executable)
        .replace("env = {", f"env = {{ {fault},", 1)
    )
    box.config_file.write_text(
        f'[daemon]\nstate_dir = "{box.state}"\nruntime_dir = "{box.runtime}"\nsample_period_s = 0.2\n{text}'
    )
    box.start()


@pytest.mark.parametrize(
    "source", ["recipes/four_games.toml", "recipes/frameworks.toml", "recipes/projects.toml", "client.md"]
)
def test_what_the_recipes_show_passes_the_check(tmp_path: Path, source: str) -> None:
    text = (RECIPES.parent / source).read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL) or [text]
    assert len(blocks) in {1, text.count("```toml")}
    file = tmp_path / "extralife.toml"
    for block in blocks:
        file.write_text(block)
        assert config.load(str(file), {}, {"state_dir": f"{tmp_path}/state"}, look=False).settings.programs


def begins(box: Box, name: str, attempt: int) -> tuple[int, int, int]:
    """(step, environments, batch) with which an attempt says that it begins."""
    log = box.state / "programs" / name / "stdout.log"
    said = until(
        lambda: (f := BEGINS.findall(log.read_text())) and len(f) >= attempt and f, 120, f"attempt {attempt} of {name}"
    )
    step, num_envs, batch = map(int, said[attempt - 1])
    return step, num_envs, batch


def trained(box: Box, name: str, beyond: int) -> dict:
    def look():
        shown = box.program(name)
        assert shown.get("phase") not in {"FATAL", "DONE"}, (shown, box.ctl("tail", name, "stderr").stdout[-3000:])
        return shown if (shown.get("ckpt_step") or 0) > beyond and shown.get("steps_per_s") else None

    return until(look, 120, f"{name} to save beyond {beyond}")


@pytest.mark.slow
def test_they_move_with_the_level_and_resume_and_their_figures_arrive(box: Box) -> None:
    started(box)
    for name in GAMES:
        shown = trained(box, name, 0)
        assert shown["progress_source"] == "figures"
        assert (shown["target"], shown["restarts"]) == (10_000_000, 0)
        assert begins(box, name, 1) == (0, 8 if "-" not in name else 4, 128 if "-" not in name else 64)
    shown = until(lambda: (p := box.program("Breakout")).get("mean_return") is not None and p, 120, "a return of Breakout")
    assert shown["loss"] is not None
    row = next(line for line in box.ctl("status").stdout.splitlines() if line.startswith("Breakout"))
    assert re.match(r"Breakout +RUNNING +pid \d+, uptime \S+ +[\d.]+k? +[\d.]+k?/10M +", row), "its pace and its steps"

    # another level: train_envpool.py saves at SIGTERM and loses nothing, train_ppo.py dies of it and loses what it has not saved
    box.ctl("level", "pin", "heavy", check=True, timeout_s=90)
    for name in GAMES:
        step, num_envs, batch = begins(box, name, 2)
        ended = box.facts("Exited", name)[0]
        assert ended["cause"] == "stopped"
        assert (num_envs, batch) == ((32, 512) if "-" not in name else (16, 256))
        assert step == box.facts("StartsFrom", name)[1]["step"] > 0
        resumed = box.wait_fact("Resumed", name, timeout_s=120)
        if "-" not in name:
            assert step == ended["steps"], "it saved when it was asked to leave"
            assert (resumed["lost_steps"], resumed["at_least"]) == (0, False)
        else:
            assert resumed["at_least"] or resumed["lost_steps"] is None, "only what it had printed is known"
            assert resumed["lost_steps"] in {ended["steps"] - step, None}
    assert all(box.program(name)["restarts"] == 0 for name in GAMES)

    # kill -9, and a power cut
    for attempt, harm in ((3, "kill"), (4, "power")):
        before = trained(box, "Pong", begins(box, "Pong", attempt - 1)[0])
        if harm == "kill":
            os.kill(before["pid"], signal.SIGKILL)
        else:
            box.power_cut()
            box.start()
        step, num_envs, batch = begins(box, "Pong", attempt)
        assert (num_envs, batch) == (32, 512)
        assert step >= before["ckpt_step"]
        assert step == box.facts("StartsFrom", "Pong")[-1]["step"]

    # too little memory: the fallback batch
    trained(box, "Pong", begins(box, "Pong", 4)[0])
    (box.directory / "fault").write_text("memory")
    step, num_envs, batch = begins(box, "Pong", 5)
    assert box.facts("Exited", "Pong")[-1]["cause"] == "out_of_memory"
    assert (num_envs, batch) == (32, 64)
    assert step > 0
