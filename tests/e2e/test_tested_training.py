"""Test games under the real daemon: seen, booked, interrupted without being lost, and compared over runs."""

from __future__ import annotations

import csv
import json
import time

import pytest
from box import PATIENCE, Box, until

from workers import results

GAMES = 6000
CATCH = f"""
[training]
game = "Catch"
num_envs = 8
batch_size = 32
learning_starts = 200
replay_size = 5000
replay_ratio = 1.0
threads = 1
num_test_episodes = {GAMES}
test_period = 2000
[program.Catch]
steps = 3000
"""


def recorded(box: Box) -> list[results.Evaluation]:
    return results.evaluations(results.read(box.state / "programs" / "Catch" / results.RESULTS_FILE))


@pytest.mark.slow  # half a minute; test_evaluate.py has every part of it within one process
def test_a_test_is_seen_makes_room_at_once_and_is_finished_after_the_resume(box: Box) -> None:
    box.config(CATCH)
    box.start()
    until(lambda: box.program("Catch")["worker_phase"] == "evaluating", 90, "test games")
    until(lambda: box.program("Catch")["worker_phase"] == "evaluating", 1, "them to last")
    begun_s = time.monotonic()
    assert box.ctl("stop", "Catch").returncode == 0
    assert time.monotonic() - begun_s < 20 * PATIENCE, "it did not wait for the last game"
    (found,) = recorded(box)
    assert not found.whole
    assert found.first.env_steps == 2000
    assert box.ctl("start", "Catch").returncode == 0
    box.wait_phase("Catch", "DONE", 120)
    first, last = recorded(box)
    assert (first.first.env_steps, last.first.env_steps, len(first.rows), len(last.rows)) == (2000, 3000, GAMES, GAMES)
    assert first.rows[: len(found.rows)] == found.rows, "what was finished was not played again"

    file = box.state / "e1_results.csv"
    assert box.ctl("results", "--csv", str(file), check=True).stdout.endswith("1 rows of games, 0 over all games\n")
    with file.open(newline="") as opened:
        (row,) = csv.DictReader(opened)
    assert (row["game"], row["algo"], row["seeds"], row["test_games"]) == ("Catch", "dqn", "1", str(GAMES))
    box.kill_daemon()
    offline = json.loads(box.ctl("results", "--json").stdout)
    assert [run["program"] for run in offline["runs"]] == ["Catch"]
