"""The updates of PPO and PQN are those of their papers; what did nothing teaches nothing."""

import numpy as np
import pytest
import torch
from learners import games, learner, settings


def made(algo, **changes):
    return learner(settings(algo=algo, **{"num_envs": 4, "n_steps": 16, "batch_size": 64, "epochs": 1, **changes}))


def filled(algo, **changes):
    """A learner whose rollout is full, and the observation after it; nothing is learned yet."""
    one = made(algo, **changes)
    environments = games(one)
    now = environments.reset()
    one.new_games()
    one.rollout.begin(now)
    while not one.rollout.full:
        actions = one.act(now)
        environments.send(actions)
        now = environments.recv()
        one.rollout.put(actions, now)
        one.count(now)
    return one, now


def weights(one):
    return torch.cat([p.detach().flatten() for p in one.networks()[0][1].parameters()])


def gradient(one, last):
    """What one pass over the rollout would change, by plain gradient descent with rate 1."""
    one.optimizer = torch.optim.SGD(one.networks()[0][1].parameters(), 1.0)
    one.args = settings(algo=one.args.algo, num_envs=4, n_steps=16, batch_size=64, epochs=1, lr=1.0, max_grad_norm=0.0)
    before = weights(one)
    one.improve(last, lambda: None)
    return weights(one) - before


def test_the_loss_of_ppo_is_the_one_of_the_paper():
    one, _ = filled("ppo")
    rollout = one.rollout
    seen = rollout.observations(rollout.stacks()[:64])
    actions, real = rollout.moved(rollout.actions), rollout.moved(rollout.real[:-1])
    old = {"log_probs": rollout.moved(one._log_probs), "values": rollout.moved(one._values[:-1])}
    advantages = torch.linspace(-2.0, 3.0, 64)
    with torch.no_grad():  # the policy has moved since, so that some ratios are clipped
        one.policy.actor.weight.add_(torch.randn_like(one.policy.actor.weight) * 0.2)
        one.policy.critic.weight.mul_(3.0)
        logits, values = one.policy(seen)
        found = torch.distributions.Categorical(logits=logits[:, : one.spec.actions])
        ratio = (found.log_prob(actions) - old["log_probs"]).exp()
        assert ((ratio - 1.0).abs() > 0.1).any()
        assert (~real).any()
        normal = (advantages - advantages[real].mean()) / advantages[real].std(correction=0)
        gain = torch.minimum(ratio * normal, ratio.clamp(0.9, 1.1) * normal)
        wanted_value = old["values"] + advantages
        near = old["values"] + (values - old["values"]).clamp(-0.1, 0.1)
        error = torch.maximum((values - wanted_value) ** 2, (near - wanted_value) ** 2) / 2
        expected = (-gain + 0.5 * error - 0.01 * found.entropy())[real].mean()
    batch = {"stacks": rollout.stacks()[:64], "actions": actions, "real": real.float(), "advantages": advantages, **old}
    one.update(**batch)
    told = one._statistics
    assert one.look()[0] == pytest.approx(expected.item(), rel=1e-4)
    assert told[0].item() == pytest.approx(found.entropy()[real].mean().item(), rel=1e-4)
    assert told[1].item() >= 0.0
    assert told[2].item() == pytest.approx(((ratio - 1.0).abs() > 0.1)[real].float().mean().item(), abs=1e-6)


def test_the_loss_of_pqn_is_the_one_of_the_paper():
    one, _ = filled("pqn")
    rollout = one.rollout
    actions, real = rollout.moved(rollout.actions), rollout.moved(rollout.real[:-1])
    returns = torch.linspace(-1.0, 1.0, 64)
    with torch.no_grad():
        q = one.online(rollout.observations(rollout.stacks()[:64]))[torch.arange(64), actions]
    one.update(stacks=rollout.stacks()[:64], actions=actions, returns=returns, real=real.float())
    assert one.look()[0] == pytest.approx(((q - returns)[real] ** 2 / 2).mean().item(), rel=1e-5)


@pytest.mark.parametrize("algo", ["ppo", "pqn"])
def test_a_fake_step_teaches_nothing(algo):
    """Whatever was done and thought on the rows after a done: the same step of the learner, to the bit."""
    (plain, last), (other, _) = filled(algo), filled(algo)
    fake = ~other.rollout.real[:-1]
    assert 3 < fake.sum() < 32
    other.rollout.actions[fake] = (other.rollout.actions[fake] + 1) % 3
    if algo == "ppo":
        other._log_probs[fake] -= 0.05
    assert torch.equal(gradient(plain, last), gradient(other, last))
    # While a real one does, or this test could not fail.
    third, _ = filled(algo)
    row = tuple(np.argwhere(third.rollout.real[:-1])[0])
    third.rollout.actions[row] = (third.rollout.actions[row] + 1) % 3
    assert not torch.equal(weights(plain), weights(third) + gradient(third, last))


def test_a_policy_that_moved_too_far_ends_the_epochs():
    def updates(target_kl):
        one, last = filled("ppo", epochs=10, lr=0.1, target_kl=target_kl, batch_size=32)
        one.improve(last, lambda: None)
        return one.updates

    assert updates(0.0) == 20
    assert updates(1e-4) < 20


def test_actions_are_drawn_as_the_policy_says():
    one = made("ppo", num_envs=64)
    now = games(one).reset()
    with torch.no_grad():
        one.policy.actor.weight.zero_()
        one.policy.actor.bias[:3] = torch.log(torch.tensor([0.6, 0.3, 0.1]))
    drawn = []
    for _ in range(100):
        one.rollout.filled = 0
        drawn.append(one.act(now))
    share = np.bincount(np.concatenate(drawn), minlength=3) / 6400
    np.testing.assert_allclose(share, [0.6, 0.3, 0.1], atol=0.03)  # five standard errors
    assert set(one.greedy(now)) == {0}


def test_a_save_waits_for_the_end_of_the_rollout():
    one, rest = made("ppo"), []

    def boundary():
        rest.append(one.can_save_all())
        return one.env_steps < 4 * 16 * 3

    one.train(games(one), boundary, lambda: None)
    assert [place for place, calm in enumerate(rest) if calm] == [0, 16, 32, 48]


@pytest.mark.parametrize("algo", ["pqn", "ppo"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_they_learn_in_half_precision(algo, dtype):
    one = learner(settings(algo=algo, num_envs=8, n_steps=16, batch_size=64), dtype=dtype)
    one.train(games(one), lambda: one.env_steps < 8 * 16 * 4, lambda: None)
    assert one.updates == 4 * 4 * 2
    assert one.look()[1] == 0
    assert one.networks()[0][1].fc1.weight.dtype is torch.float32


@pytest.mark.fault("nan")
@pytest.mark.parametrize("algo", ["pqn", "ppo"])
def test_an_update_that_is_not_finite_changes_nothing(algo):
    one, last = filled(algo)
    before = weights(one).clone()
    one.rollout.rewards[3, 1] = np.nan
    one.improve(last, lambda: None)
    assert torch.equal(weights(one), before)
    assert one.last_update_not_finite()
    assert one.look()[1] == one.updates == 1
