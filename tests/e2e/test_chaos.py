"""Random faults under two real games, none of which may break an invariant (bench/chaos.py, docs/testing.md)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from box import ROOT
from chaos import report, table
from chaos.run import plan

SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


def chaos(found: Path, *more: str, timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "bench/chaos.py", "--seed", str(SEED), "--json", str(found), *more]
    env = {"CHAOS_STEP_PAUSE_S": "0.12", **os.environ}  # the faults are the test, and the games leave the cores to others
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(found.read_text())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_some_random_faults_break_nothing(tmp_path: Path) -> None:
    # Four take 40 seconds. A busy machine gets three minutes: there a worker alone may take half a minute until it trains again.
    limits = ("--faults", "4", "--minutes", "3")
    found = chaos(tmp_path / "found.json", "--kinds", "smoke", *limits, timeout_s=560)
    assert found["injected"] >= 3
    assert found["looks"] > 30
    assert found["status"]["asked"] > 5


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_minutes_of_random_faults_break_nothing(tmp_path: Path) -> None:
    found = chaos(tmp_path / "found.json", "--minutes", "10", timeout_s=1400)
    assert found["injected"] >= 20


def test_a_seed_gives_the_same_plan_again() -> None:
    def first(seed: int) -> list[Any]:
        drawn = plan(seed, list(table.FAULTS), ("Pong", "Breakout"))
        return [next(drawn) for _ in range(200)]

    assert first(7) == first(7)
    assert first(7) != first(8)
    assert {each.fault for each in first(7)} == set(table.FAULTS), "every kind has its turn"


def test_a_broken_invariant_or_a_wrong_report_fails_the_run() -> None:
    whole = {"broken": [], "right_share": 1.0}
    assert report.passed(whole)
    assert report.passed({**whole, "right_share": None}), "nothing was due"
    assert not report.passed({**whole, "right_share": 0.97})
    assert not report.passed({**whole, "broken": [{"invariant": "once"}]})
