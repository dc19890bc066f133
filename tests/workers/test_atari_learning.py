"""It learns a real game: Breakout, 42x42 pixels, where random play scores 1.2. A broken learner does not.

Bounds are steps, never seconds. Minutes of one core each, so they belong to `tests/run slow`; what CI runs at each change
is Catch (`test_catch_learning.py`). The curves of all algorithms, and of broken ones: bench/learning.py.
"""

import sys
from pathlib import Path

import pytest
import torch
from learners import games, learner, settings

from workers.algorithms import train
from workers.learner import GAMES_AVERAGED

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from learning import BROKEN, SETTINGS, Told

GOAL = 3.0  # of 100 games; a network that learns nothing has reached 2.2, with the habits that it was born with
MOST_STEPS = {"pqn": 200_000, "ppo": 300_000}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def steps_to_goal(algo: str, seed: int, broken: str) -> int | None:
    """Environment steps until the mean of 100 games was at the goal; None if it never was."""
    changes = SETTINGS[algo] | ({"lr": 0.0} if broken == "lr" else {})
    made = learner(settings("Breakout", algo=algo, seed=seed, resolution=42, num_envs=32, **changes))
    told = Told(games(made), BROKEN[broken])
    most = MOST_STEPS[algo]

    def boundary() -> bool:
        solved = len(made.recent) == GAMES_AVERAGED and made.mean_return >= GOAL
        return not solved and made.env_steps < most

    train(made, told, boundary, lambda: None)
    print(f"{algo} seed {seed} broken: {broken}: mean return {made.mean_return:.2f} after {made.env_steps:,} steps")
    return made.env_steps if made.mean_return >= GOAL else None


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("algo", ["pqn", "ppo"])
def test_it_learns_breakout(algo, seed):
    assert steps_to_goal(algo, seed, "none") is not None


@pytest.mark.parametrize("broken", ["lr", "shuffled"])
@pytest.mark.parametrize("algo", ["pqn", "ppo"])
def test_a_broken_learner_does_not(algo, broken):
    assert steps_to_goal(algo, 1, broken) is None
