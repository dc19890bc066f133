"""Test games once the target is reached: greedy, whole games, the game's own score, environments of their own.

The outcome is `results.csv` in the run directory, one row a game. Each environment plays a fixed number of games:
taking whichever games end first would prefer the short ones, which are the bad ones in most games.
"""

from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, Final

import numpy as np

from workers import envs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workers.learner import Learner

RESULTS_FILE: Final = "results.csv"
_COLUMNS: Final = ("program", "game", "env_steps", "episode", "return", "length")


def is_done(run_dir: Path, learner: Learner) -> bool:
    """Whether the results of this very learner are there already."""
    try:
        rows = list(csv.DictReader((run_dir / RESULTS_FILE).read_text().splitlines()))
    except FileNotFoundError:
        return False
    mine = [row for row in rows if row.get("env_steps") == str(learner.env_steps)]
    return len(mine) == len(rows) == learner.args.num_test_episodes


def evaluate(learner: Learner, seeds: list[int], go_on: Callable[[], bool]) -> list[tuple[float, int]] | None:
    """(return, length in steps) of `num_test_episodes` games; None when `go_on`, asked at each step, says no."""
    count = len(seeds)
    games = learner.args.num_test_episodes
    left = np.array([games // count + (env < games % count) for env in range(count)])
    tests = envs.make(learner.spec, seeds, learner.args.threads, learning=False)
    step = tests.reset()
    scores, lengths = np.zeros(count), np.zeros(count, int)
    results: list[tuple[float, int]] = []
    while left.any():
        if not go_on():
            return None
        tests.send(learner.greedy(step))
        step = tests.recv()
        scores += step.scores
        lengths += ~step.starts  # the step that only resets is none of the game
        for env in np.flatnonzero(step.game_over & (left > 0)):
            results.append((float(scores[env]), int(lengths[env])))
            left[env] -= 1
        scores[step.game_over], lengths[step.game_over] = 0.0, 0
    tests.close()
    return results


def write(run_dir: Path, learner: Learner, results: list[tuple[float, int]]) -> Path:
    """All rows or none: written aside, synced, renamed."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    for number, (score, length) in enumerate(results, start=1):
        rows.writerow((learner.args.program, learner.args.game, learner.env_steps, number, score, length))
    path = run_dir / RESULTS_FILE
    aside = path.with_suffix(".tmp")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    fd = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return path
