"""It learns: Catch to a mean return of 0.8 within 60,000 steps, on several seeds (`tests/run slow`). `test_atari_learning.py`
has what a broken learner does.

Bounds are steps, never seconds: a busy machine must not fail this. Random play scores -0.6.
"""

import pytest
from learners import games, learner, settings

from workers.learner import GAMES_AVERAGED

GOAL = 0.8
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]


def steps_to_goal(made, environments, most):
    """Environment steps until the mean of 100 games was at the goal; None if that took more than `most`."""

    def boundary():
        solved = len(made.recent) == GAMES_AVERAGED and made.mean_return >= GOAL
        return not solved and made.env_steps < most

    made.train(environments, boundary, lambda: None)
    return made.env_steps if made.env_steps < most else None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", ["pqn", "ppo"])
def test_it_learns_from_rollouts(algo, seed):
    made = learner(settings(seed=seed, algo=algo))
    steps = steps_to_goal(made, games(made), 60_000)
    assert steps is not None, f"mean return {made.mean_return} after {made.env_steps} steps"
    rollout = made.args.n_steps * made.args.num_envs
    assert made.updates == made.env_steps // rollout * made.args.epochs * (rollout // made.args.batch_size)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_learns(seed):
    made = learner(settings(seed=seed))
    steps = steps_to_goal(made, games(made), 60_000)
    assert steps is not None, f"mean return {made.mean_return} after {made.env_steps} steps"
    ratio = made.updates * made.args.batch_size / (made.env_steps - made.args.learning_starts)
    assert ratio == pytest.approx(made.args.replay_ratio, rel=0.05)
