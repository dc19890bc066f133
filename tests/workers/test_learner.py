"""What all algorithms share: the network that is set, the counters that a resume brings back, the first printed line."""

import json

import pytest
from learners import learner, settings

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
