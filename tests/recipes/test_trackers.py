"""The lines of docs/client.md for W&B and MLflow, with the real packages: a killed attempt and the next one are one run.

Slow, and skipped unless EXTRALIFE_TRACKERS names a Python that has both: pip install wandb mlflow.
"""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

DOCS = (Path(__file__).resolve().parents[2] / "docs/client.md").read_text()
PYTHON = os.environ.get("EXTRALIFE_TRACKERS", "")
LOOP = "for step in range({begin}, {begin} + 100, 10):\n    {log}\n"
KILLED = "os.kill(os.getpid(), 9)\n"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="EXTRALIFE_TRACKERS names no Python with wandb and mlflow"),
]


def run(script: str, directory: Path, **env: str) -> str:
    done = subprocess.run(
        [PYTHON, "-c", script], env={**os.environ, **env}, cwd=directory, capture_output=True, text=True, timeout=250,
        check=False,
    )  # fmt: skip
    assert done.returncode == (-9 if script.endswith(KILLED) else 0), done.stderr
    return done.stdout


def test_mlflow_goes_on_with_the_run_of_a_killed_attempt(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(  name = .*?)  ```", DOCS, re.DOTALL)
    begin = "import os, mlflow\n" + textwrap.dedent(block)
    env = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "EXTRALIFE_PROGRAM": "Pong"}
    log = "mlflow.log_metric('ret', step / 10, step=step)"
    run(begin + LOOP.format(begin=0, log=log) + KILLED, tmp_path, **env)
    run(begin + LOOP.format(begin=50, log=log), tmp_path, **env)
    look = """
import mlflow
(run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
points = mlflow.MlflowClient().get_metric_history(run.info.run_id, "ret")
print(run.info.status, run.info.run_name, *[point.step for point in points])
"""
    assert run(look, tmp_path, **env).split() == ["FINISHED", "Pong", *map(str, [*range(0, 100, 10), *range(50, 150, 10)])]


def test_wandb_has_one_run_id_for_both_attempts_offline(tmp_path: Path) -> None:
    (line,) = re.findall(r"env = \{ (WANDB_RUN_ID = .*?) \}", DOCS)
    env = dict(re.findall(r'(\w+) = "([^"]*)"', line.replace("{name}", "Pong")))
    assert env == {"WANDB_RUN_ID": "Pong-1", "WANDB_RESUME": "allow"}
    env |= {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    begin, log = (
        "import os, wandb\nrun = wandb.init(project='p')\nprint(run.id)\n",
        "run.log({'steps': step, 'ret': step / 10})",
    )
    told = run(begin + LOOP.format(begin=0, log=log) + KILLED, tmp_path, **env)
    told += run(begin + LOOP.format(begin=50, log=log) + "run.finish()\n", tmp_path, **env)
    assert told.split() == ["Pong-1"] * 2
    kept = [*(tmp_path / "wandb").glob("offline-run-*-Pong-1/run-Pong-1.wandb")]
    assert len(kept) == 2
    assert all(file.stat().st_size > 0 for file in kept)
