"""What all algorithms share: the network that is set, the counters that a resume brings back, the first printed line."""

import json
import math

import pytest
import torch
from learners import games, learner, settings

from workers import algorithms
from workers.networks import POLICY, Q

COUNTERS = {
    "env_steps": 640, "updates": 7, "episodes": 3, "best_mean_return": 2.5, "first_mean_return": 1.5, "best_spread": 0.5,
    "trained_s": 12.25,
}  # fmt: skip
SMALL = {"num_envs": 2, "batch_size": 8, "replay_size": 400, "learning_starts": 100}
ALGORITHMS = {
    "dqn": (Q, "epsilon 1.000"),
    "pqn": (Q, "epsilon 1.000  Q 0.000"),
    "ppo": (POLICY, "entropy nan  kl nan  clipped nan"),
}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_network_is_the_one_that_is_set(algo):
    for network, channels in (("auto", 32), ("nature", 32), ("small", 16)):
        for _, net in learner(settings("Pong", algo=algo, network=network, **SMALL)).networks():
            assert (net.head, net.channels[0]) == (ALGORITHMS[algo][0], channels), network


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_is_shown_before_the_first_update(algo):
    made = learner(settings(algo=algo))
    loss, not_finite = made.look()
    assert math.isnan(loss)
    assert not_finite == 0
    assert all(math.isnan(figure) for figure in made.figures().values())
    assert made.describe() == ALGORITHMS[algo][1]


@pytest.mark.parametrize(
    ("settings_", "printed"),
    [
        ({"algo": "dqn", "use_double_dqn": False}, "replay ratio 8, 3-step returns"),
        ({"algo": "dqn", "use_double_dqn": True, "n_step": 1}, "double Q, replay ratio 8, 1-step returns"),
        ({"algo": "dqn", "use_double_dqn": True, "dueling": True, "replay_ratio": 0.5},
         "double Q, dueling, replay ratio 0.5, 3-step returns"),
        ({"algo": "ppo", "n_steps": 128, "epochs": 4}, "rollouts of 128 steps, 4 epochs"),
        ({"algo": "pqn", "n_steps": 32, "epochs": 2}, "rollouts of 32 steps, 2 epochs"),
    ],
)  # fmt: skip
def test_the_first_line_names_the_settings_that_matter(settings_, printed):
    args = settings(**{"replay_ratio": 8.0, "n_step": 3, **settings_})
    assert algorithms.kind(args.algo).settings_that_matter(args) == printed


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_counter_comes_back(algo):
    made, resumed = (learner(settings(algo=algo, seed=5, batch_size=64)) for _ in range(2))
    for name, value in COUNTERS.items():
        setattr(made, name, value)
    made.recent.extend([1.0, 3.0])
    made._not_finite.fill_(4)
    tensors, state = made.snapshot()
    state = json.loads(json.dumps(state))
    assert (state["batch_size"], state["seed"]) == (64, 5)
    resumed.restore(tensors, state)
    assert {name: getattr(resumed, name) for name in COUNTERS} == COUNTERS
    assert list(resumed.recent) == [1.0, 3.0]
    assert resumed.look()[1] == 4
    again = json.loads(json.dumps(resumed.snapshot()[1]))
    assert again == state


def test_a_checkpoint_from_before_some_counters_were_kept():
    made = learner(settings())
    tensors, state = made.snapshot()
    for name in ("first_mean_return", "best_spread", "trained_s", "seed"):
        del state[name]
    made.first_mean_return, made.best_spread, made.trained_s = 1.0, 2.0, 3.0
    made.restore(tensors, state)
    assert (made.first_mean_return, made.best_spread, made.trained_s) == (None, None, 0.0)


def test_the_spread_is_that_of_the_games_of_the_best_mean():
    made = learner(settings(num_envs=1))
    step = games(made).reset()
    step.game_over[:] = True
    for number in range(150):
        step.scores[:] = 1.0 + number % 2 if number < 100 else 0.0
        made.count(step)
    assert (made.first_mean_return, made.best_mean_return, made.best_spread) == (1.5, 1.5, 0.5)
    assert (made.episodes, made.env_steps) == (150, 150)


class Event:
    """A CUDA event as far as it is used: it notes when it was recorded and waited for."""

    def __init__(self, name, noted):
        self.name, self.noted = name, noted

    def record(self):
        self.noted.append(f"{self.name} recorded")

    def synchronize(self):
        self.noted.append(f"{self.name} awaited")


def test_a_batch_for_a_gpu_is_copied_whole_and_its_buffer_not_written_before(monkeypatch):
    """The replay has two pinned buffers and uses them in turn."""
    made, noted = learner(settings(num_envs=4, batch_size=8, learning_starts=8)), []
    environments = games(made)
    now = environments.reset()
    for _ in range(20):
        actions = made.act(now)
        environments.send(actions)
        after = environments.recv()
        made.replay.append(now.obs[:, -1], actions, after.rewards, after.terminated, after.truncated, now.starts)
        now = after
    there = made.replay.sample
    drawn = []
    monkeypatch.setattr(made.replay, "sample", lambda *args: drawn.append(there(*args)) or drawn[-1])
    made._copied = [Event("first", noted), Event("second", noted)]
    for _ in range(2):
        moved = made._sample()
        for name in ("obs", "actions", "returns", "next_obs", "discounts"):
            assert torch.equal(getattr(moved, name), getattr(drawn[-1], name)), name
        assert len(moved.obs) == 8
    assert noted == ["second recorded", "first awaited", "first recorded", "second awaited"]
