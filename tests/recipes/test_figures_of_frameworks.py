"""The settings of docs/recipes/frameworks.toml for scripts without a change, against what the real frameworks write."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from box import Box, until
from tools import ROOT

UNCHANGED = Path(__file__).parent / "unchanged"

pytestmark = pytest.mark.timeout(900)

TEXT = (ROOT / "docs" / "recipes" / "frameworks.toml").read_text()
SETTINGS = tomllib.loads(TEXT)["program"]
RUNS = {  # the script, its arguments, and the figures that its settings must find
    "cleanrl": ("cleanrl", [], {"mean_return"}),
    "cleanrl-board": ("cleanrl", [], {"mean_return"}),
    "sb3": ("sb3.py", [], {"mean_return", "loss"}),
    "sb3-board": ("sb3.py", [], {"mean_return", "loss"}),
    "sb3-json": ("sb3.py", ["json"], {"mean_return", "loss"}),
    "sb3-csv": ("sb3.py", ["csv"], {"mean_return", "loss"}),
    "lightning": ("lightning_fit.py", [], {"loss"}),
    "lightning-csv": ("lightning_fit.py", ["csv"], {"loss"}),
    "hf": ("hf.py", [], {"loss"}),
    "hf-board": ("hf.py", ["tensorboard"], {"loss"}),
}
MORE = {"lightning": {"ckpt_step": 1000}, "hf": {"ckpt_step": 100, "target": 100_000}, "cleanrl": {"target": 500_000}}


# Without `slow`: they read documents alone.
def test_every_setting_is_run() -> None:
    assert SETTINGS.keys() == RUNS.keys()


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {as_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_steps_returns_and_losses_are_those_that_the_framework_writes(
    box: Box, name: str, request: pytest.FixtureRequest
) -> None:
    script, arguments, wanted = RUNS[name]
    work = box.directory / "work"
    work.mkdir()
    if script == "cleanrl":
        python = request.getfixturevalue("place_of_cleanrl") / "python"
        shutil.copy(request.getfixturevalue("cleanrl"), work / "script.py")
        arguments = ["--total-timesteps", "500000"]
    else:
        python = request.getfixturevalue("place") / "python"
        shutil.copy(UNCHANGED / script, work / "script.py")
    keys = {**SETTINGS[name], "command": [str(python), "script.py", *arguments], "directory": str(work)}
    keys["env"] = {"OMP_NUM_THREADS": "1"}
    lines = "".join(f"{key} = {as_toml(value)}\n" for key, value in keys.items())
    box.config(f"[program.it]\n{lines}", slots=1)
    box.start()

    def look() -> dict | None:
        shown = box.program("it")
        assert shown.get("phase") not in {"FATAL", "DONE", "BACKOFF"}, box.ctl("tail", "it", "stderr").stdout[-3000:]
        found = {"steps", "steps_per_s", *wanted} | MORE.get(name, {}).keys()
        return shown if all(shown.get(key) is not None for key in found) else None

    shown = until(look, 240, "every figure")
    assert shown["progress_source"] == "figures"
    assert shown["steps"] > 0
    assert shown["steps_per_s"] > 0
    for key, least in MORE.get(name, {}).items():
        assert shown[key] >= least
    assert not box.facts("FiguresUnread")
    table = [re.split(r"\s{2,}", line) for line in box.ctl("status").stdout.splitlines()]
    row = next(dict(zip(names, table[at + 1], strict=True)) for at, names in enumerate(table) if names[0] == "NAME")
    assert all(row[title] != "-" for title in ("STEPS", "STEPS/S", *(["RETURN"] if "mean_return" in wanted else [])))
