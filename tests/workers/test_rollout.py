"""Rollouts hold what the environments showed, and what is learned from them equals the papers' sums, a game at a time."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers import envs, networks, on_policy
from workers.algorithms.ppo import gae
from workers.algorithms.pqn import lambda_returns
from workers.on_policy import Rollout

CPU = torch.device("cpu")


@pytest.mark.parametrize("game", ["Breakout", pytest.param("Pong", marks=pytest.mark.slow)])
def test_the_observations_are_those_that_were_acted_on(game):
    """Rebuilt from single frames, over lost lives, ends of games and borders of rollouts, to the pixel."""
    spec, count, steps = envs.spec_of(game, 44), 6, 97
    games = envs.make(spec, envs.env_seeds(3, 1, 0, count), threads=1)
    arrange = networks.build(spec, "small", networks.POLICY).to_blocks
    rng, rollout = np.random.default_rng(0), Rollout(steps, count, spec, CPU, arrange)
    now, ends, fakes = games.reset(), 0, 0
    for _ in range(5):
        rollout.begin(now)
        seen = []
        while not rollout.full:
            seen.append(now.obs.copy())
            actions = rng.integers(spec.actions, size=count)
            games.send(actions)
            now = games.recv()
            rollout.put(actions, now)
            ends += now.game_over.sum()
        seen.append(now.obs.copy())
        found = rollout.observations(rollout.stacks())
        assert torch.equal(found, arrange(torch.from_numpy(np.concatenate(seen))))
        fakes += (~rollout.real).sum()
        # After every done, and nowhere else, comes an action that did nothing.
        assert np.array_equal(~rollout.real[1:], rollout.done)
        assert not rollout.rewards[~rollout.real[:-1]].any()
    games.close()
    assert fakes > 3
    assert ends > 0


def games_of(draw_done, length):
    """Rows as envpool gives them: after each done a fake one, whose end counts for nothing."""
    terminated, done, real = np.zeros(length, bool), np.zeros(length, bool), np.ones(length, bool)
    for row in range(length):
        if row and done[row - 1]:
            real[row] = False
            continue
        done[row] = draw_done[row] != "goes on"
        terminated[row] = draw_done[row] == "terminated"
    return terminated, done, real


ROWS = st.lists(st.sampled_from(["goes on"] * 4 + ["terminated", "truncated"]), min_size=1, max_size=30)


def by_hand(draw_done, rewards, values, step_back, start):
    """The recursion of one environment, a game at a time, forwards sums written as in the papers."""
    terminated, done, real = games_of(draw_done, len(draw_done))
    out = np.full(len(draw_done), np.nan)
    for row in np.flatnonzero(real):
        out[row] = step_back(row, terminated, done, rewards, values, start)
    return out, real


def advantage(row, terminated, done, rewards, values, parts):
    """Equation 16 of Schulman et al. 2016: the sum of (gamma lambda)^l delta_{t+l} until the game or the rollout ends."""
    gamma, lambda_ = parts
    total, weight = 0.0, 1.0
    for at in range(row, len(rewards)):
        total += weight * (rewards[at] + (0.0 if terminated[at] else gamma * values[at + 1]) - values[at])
        if done[at]:
            break
        weight *= gamma * lambda_
    return total


def lambda_return(row, terminated, done, rewards, values, parts):
    """The mean of all n-step returns, weighted (1 - lambda) lambda^(n-1), the longest with what is left."""
    gamma, lambda_ = parts
    last = next((at for at in range(row, len(rewards)) if done[at]), len(rewards) - 1)
    total, collected = 0.0, 0.0
    for at in range(row, last + 1):
        collected += gamma ** (at - row) * rewards[at]
        ahead = 0.0 if terminated[at] else gamma ** (at - row + 1) * values[at + 1]
        weight = lambda_ ** (at - row) * (1.0 if at == last else 1.0 - lambda_)
        total += weight * (collected + ahead)
    return total


@pytest.mark.parametrize(("rule", "reference"), [(gae, advantage), (lambda_returns, lambda_return)])
@settings(max_examples=150, deadline=None)
@given(ends=ROWS, seed=st.integers(0, 2**32 - 1), gamma=st.sampled_from([0.0, 0.9, 0.99, 1.0]),
       lambda_=st.sampled_from([0.0, 0.65, 0.95, 1.0]))  # fmt: skip
def test_the_recursion_is_the_sum_of_the_paper(rule, reference, ends, seed, gamma, lambda_):
    rng = np.random.default_rng(seed)
    terminated, done, real = games_of(ends, len(ends))
    rewards = rng.choice([-1.0, 0.0, 1.0], len(ends)) * real
    values = rng.normal(size=len(ends) + 1)
    wanted, real = by_hand(ends, rewards, values, reference, (gamma, lambda_))
    found = rule(rewards[:, None], values[:, None], terminated[:, None], done[:, None], gamma=gamma, lambda_=lambda_)
    np.testing.assert_allclose(found[real, 0], wanted[real], atol=1e-9)


def test_worked_examples():
    """Those of the docstrings."""
    rewards, none = np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1), bool)
    end = np.array([[False], [False], [True]])
    half = np.full((4, 1), 0.5)
    assert gae(rewards, half, end, end, gamma=1.0, lambda_=1.0).tolist() == [[0.5], [0.5], [0.5]]
    assert gae(rewards, half, none, end, gamma=1.0, lambda_=1.0).tolist() == [[1.0], [1.0], [1.0]]
    best = np.array([[0.2], [0.4], [0.6]])
    found = lambda_returns(np.array([[0.0], [1.0]]), best, none[:2], none[:2], gamma=1.0, lambda_=0.5)
    np.testing.assert_allclose(found, [[1.0], [1.6]])


def test_minibatches_are_every_row_once():
    learner = SimpleNamespace(
        args=SimpleNamespace(n_steps=12, num_envs=8, batch_size=32), _draw=np.random.default_rng(1),
        precision=SimpleNamespace(device="cpu"),
    )  # fmt: skip
    found = [part["rows"] for part in on_policy.Learner.minibatches(learner, {"rows": torch.arange(96)})]
    assert [len(part) for part in found] == [32] * 3
    assert sorted(torch.cat(found).tolist()) == list(range(96))
