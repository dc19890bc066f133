"""The numbers by which a training's health is judged: what the newest update saw, and nothing made up."""

import math

import pytest
import torch
from learners import games, learner, settings

ALGOS = ["dqn", "pqn", "ppo"]


def trained(algo, steps=2_048, **changes):
    made = learner(settings(algo=algo, **changes))
    made.train(games(made), lambda: made.env_steps < steps, lambda: None)
    return made


@pytest.mark.parametrize("algo", ALGOS)
def test_they_are_those_of_the_newest_update(algo):
    """So weights far too large, which `[health]` calls exploding, show as a Q that cannot be, and what is not finite is unknown."""
    made = trained(algo)
    weights = list(made.networks()[0][1].parameters())

    def later():
        steps = made.env_steps
        made.train(games(made), lambda: made.env_steps < steps + 1_024, lambda: None)
        return made.figures()

    found = made.figures()
    assert found["loss"] == pytest.approx(made.look()[0])
    assert 0 < abs(found["q_mean"]) <= found["q_max_abs"] < made.value_bound == pytest.approx(100.0)
    assert 0 < found["grad_norm"] < 100
    if algo == "ppo":
        assert 0 < found["entropy"] < math.log(3)
        assert found["entropy_share"] == pytest.approx(found["entropy"] / math.log(3))
    else:
        assert math.isnan(found["entropy"])
        assert math.isnan(found["entropy_share"])
        with torch.no_grad():
            weights[-1].add_(1e4)
        assert later()["q_max_abs"] > 10 * made.value_bound
    with torch.no_grad():
        weights[0].fill_(math.inf)
    found = later()
    assert math.isnan(found["loss"])
    assert math.isnan(found["q_mean"])
