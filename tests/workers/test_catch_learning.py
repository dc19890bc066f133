"""It learns: Catch to a mean return of 0.8 within 60,000 steps, on several seeds (`tests/run slow`). A broken learner does not.

Bounds are steps, never seconds: a busy machine must not fail this. Random play scores -0.6.
"""

from dataclasses import replace

import numpy as np
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


class Worthless:
    """Environments whose rewards never reach the learner."""

    def __init__(self, inner):
        self._inner, self.send, self.reset = inner, inner.send, inner.reset

    def recv(self):
        step = self._inner.recv()
        return replace(step, rewards=np.zeros_like(step.rewards))


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["no step of the optimiser", "no rewards", "wrong actions stored"])
def test_a_broken_learner_does_not(broken, monkeypatch):
    """So the test above can fail. 12,000 steps are a quarter more than what the sound one needs on any of the seeds."""
    made = learner(settings(seed=1, lr=0.0 if broken == "no step of the optimiser" else 1e-3))
    environments = games(made)
    if broken == "no rewards":
        environments = Worthless(environments)
    if broken == "wrong actions stored":
        append, wrong = made.replay.append, np.random.default_rng(1)
        monkeypatch.setattr(
            made.replay, "append",
            lambda frames, actions, *rest: append(frames, wrong.integers(3, size=len(actions)), *rest),
        )  # fmt: skip
    assert steps_to_goal(made, environments, 12_000) is None


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["no step of the optimiser", "no rewards", "wrong actions stored"])
@pytest.mark.parametrize("algo", ["pqn", "ppo"])
def test_a_broken_learner_from_rollouts_does_not(algo, broken, monkeypatch):
    """30,000 steps are half more than what the sound ones need on any of the seeds."""
    made = learner(settings(seed=1, algo=algo, lr=0.0 if broken == "no step of the optimiser" else 1e-3))
    environments = games(made)
    if broken == "no rewards":
        environments = Worthless(environments)
    if broken == "wrong actions stored":
        put, wrong = made.rollout.put, np.random.default_rng(1)
        monkeypatch.setattr(made.rollout, "put", lambda actions, after: put(wrong.integers(3, size=len(actions)), after))
    assert steps_to_goal(made, environments, 30_000) is None
