"""It learns a real Atari game: Up'n Down, small frames, one seed of each algorithm in the ordinary run, more in the slow one.

What is measured is rewards, clipped to their sign, a thousand environment steps, over the last third of 30,000: games of
Up'n Down last too long for their returns to count in so short a time. Bounds are steps, never seconds.
"""

from dataclasses import replace

import numpy as np
import pytest
from learners import games, learner, settings

from workers.algorithms import train

pytestmark = pytest.mark.timeout(600)

STEPS, COUNTED = 30_000, 10_000
GOAL = 32.0  # random play: 21 to 25
SETTINGS = {
    "dqn": {"batch_size": 64, "replay_ratio": 2.0, "learning_starts": 2_000, "lr": 5e-4, "target_period": 1_000,
            "epsilon_steps": 12_000, "replay_size": 40_000},
    "pqn": {"n_steps": 16, "batch_size": 128, "epochs": 2, "lr": 1e-3, "epsilon_steps": 12_000},
    "ppo": {"n_steps": 64, "batch_size": 512, "epochs": 3, "lr": 1e-3},
}  # fmt: skip


class Watched:
    """Environments whose rewards are added up, and pass through `broken` on their way to the learner."""

    def __init__(self, inner, made, broken=lambda step: step):
        self._inner, self._made, self._broken, self.total = inner, made, broken, 0.0
        self.send, self.reset = inner.send, inner.reset

    def recv(self):
        step = self._inner.recv()
        if self._made.env_steps >= STEPS - COUNTED:
            self.total += float(step.rewards.sum())
        return self._broken(step)


def rewards_per_thousand(algo, seed, broken=lambda step: step, **changes):
    made = learner(settings("UpNDown", algo=algo, seed=seed, resolution=42, **{**SETTINGS[algo], **changes}))
    watched = Watched(games(made), made, broken)
    train(made, watched, lambda: made.env_steps < STEPS, lambda: None)
    assert made.updates > 100
    return 1_000.0 * watched.total / COUNTED


@pytest.mark.parametrize("algo", ["dqn", "pqn", "ppo"])
def test_it_learns_a_real_game(algo):
    assert rewards_per_thousand(algo, seed=1) > GOAL


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("algo", ["dqn", "pqn", "ppo"])
def test_it_learns_a_real_game_on_other_seeds_too(algo, seed):
    assert rewards_per_thousand(algo, seed=seed) > GOAL


def shuffled(seed=1):
    """Rewards go to other environments than those that earned them: as many, and no help."""
    order = np.random.default_rng(seed)
    return lambda step: replace(step, rewards=order.permutation(step.rewards))


def inverted(step):
    """The wrong sign: what it should do is punished."""
    return replace(step, rewards=-step.rewards)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["no step of the optimiser", "shuffled rewards", "the wrong sign"])
@pytest.mark.parametrize("algo", ["dqn", "pqn", "ppo"])
def test_a_broken_learner_does_not(algo, broken):
    """So the tests above can fail."""
    if broken == "no step of the optimiser":
        found = rewards_per_thousand(algo, seed=1, lr=0.0, epsilon_final=1.0)
    else:
        found = rewards_per_thousand(algo, seed=1, broken=shuffled() if broken == "shuffled rewards" else inverted)
    assert found < GOAL
