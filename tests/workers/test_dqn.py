"""The update is the one of the papers, and the counters say what was done."""

import math

import numpy as np
import pytest
import torch
from learners import games, learner, settings

from workers.envs import Step
from workers.learner import LOST_UPDATES, Diverged
from workers.replay import Batch


def batch_of(made, size=16, seed=0):
    make = torch.Generator().manual_seed(seed)
    shape = (size, made.spec.stack, *made.spec.frame_shape)
    return Batch(
        obs=torch.randint(0, 256, shape, dtype=torch.uint8, generator=make),
        actions=torch.randint(0, made.spec.actions, (size,), generator=make), returns=torch.randn(size, generator=make),
        next_obs=torch.randint(0, 256, shape, dtype=torch.uint8, generator=make),
        discounts=torch.where(torch.arange(size) % 4 == 0, 0.0, 0.97),
    )  # fmt: skip


def step_of(made, *, over=(), scores=0.0):
    count = made.args.num_envs
    no = np.zeros(count, bool)
    game_over = no.copy()
    game_over[list(over)] = True
    obs = np.zeros((count, made.spec.stack, *made.spec.frame_shape), np.uint8)
    points = np.full(count, scores, np.float32)
    return Step(obs, no, points, points, game_over, no, game_over)


@pytest.mark.parametrize("double", [True, False])
def test_the_loss_is_the_one_of_the_paper(double):
    made = learner(settings(use_double_dqn=double, batch_size=16))
    torch.nn.init.normal_(made.target.out.weight)  # so that the two networks disagree on the best action
    batch, rows = batch_of(made), torch.arange(16)
    with torch.no_grad():
        q, online, target = made.online(batch.obs), made.online(batch.next_obs), made.target(batch.next_obs)
    best = (online if double else target)[:, :3].argmax(1)
    assert (online.argmax(1) != target.argmax(1)).any()
    error = batch.returns + batch.discounts * target[rows, best] - q[rows, batch.actions]
    huber = torch.where(error.abs() < 1, error**2 / 2, error.abs() - 0.5).mean()
    made.update(**batch._asdict())
    assert made.look() == (pytest.approx(huber.item(), rel=1e-5), 0)


def test_only_the_online_network_learns_until_the_target_is_copied():
    made = learner(settings(target_period=320))
    before = {name: value.clone() for name, value in made.target.state_dict().items()}
    made.update(**batch_of(made)._asdict())
    for _ in range(9):
        made.count(step_of(made))
    assert made.env_steps == 288
    assert all(torch.equal(value, before[name]) for name, value in made.target.state_dict().items())
    assert not torch.equal(made.online.out.weight, made.target.out.weight)
    made.count(step_of(made))
    assert all(torch.equal(value, made.target.state_dict()[name]) for name, value in made.online.state_dict().items())


def test_the_gradient_is_clipped_and_the_rate_scheduled():
    def moved(**changes):
        made = learner(settings(lr_scheduler="step", step_lr_step_size=1, learning_starts=0, **changes))
        made.optimizer = torch.optim.SGD(made.online.parameters(), 1.0)  # its step is the gradient itself
        before = torch.cat([p.detach().flatten() for p in made.online.parameters()])
        made.update(**batch_of(made)._replace(returns=torch.full((16,), 1e3))._asdict())
        return (torch.cat([p.detach().flatten() for p in made.online.parameters()]) - before).norm().item()

    free = moved(max_grad_norm=0.0)
    assert free > 0.01
    assert moved(max_grad_norm=0.01) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_it_learns_in_every_number_format(dtype):
    """A fixed target is approached: the loss falls, and nothing overflows."""
    made = learner(settings(batch_size=64, gamma=0.0), dtype=dtype)
    batch = batch_of(made, 64)._replace(discounts=torch.zeros(64), returns=torch.linspace(-1, 1, 64))
    losses = []
    for _ in range(60):
        made.update(**batch._asdict())
        losses.append(made.look()[0])
    assert losses[-1] < 0.1 * losses[0]
    assert made.look()[1] == 0
    assert made.online.out.weight.dtype is torch.float32


def test_an_overflow_in_fp16_skips_the_step_and_lowers_the_scale():
    made = learner(settings(), dtype="fp16")
    batch = batch_of(made)
    made.update(**batch._asdict())
    before, scale = made.online.out.weight.clone(), made.scaler.get_scale()
    made.update(**batch._replace(returns=torch.full((16,), math.nan))._asdict())
    assert torch.equal(made.online.out.weight, before)
    assert made.scaler.get_scale() < scale
    assert made.look()[1] == 1, "it is counted"
    made.update(**batch._asdict())
    assert made.look()[0] < math.inf


@pytest.mark.fault("nan")
@pytest.mark.parametrize(("bad", "max_grad_norm"), [(math.nan, 10.0), (math.inf, 0.0)])
def test_an_update_that_is_not_finite_changes_nothing_and_a_hundred_in_a_row_end_the_training(bad, max_grad_norm):
    made = learner(settings(max_grad_norm=max_grad_norm))
    batch = batch_of(made)
    made.update(**batch._asdict())
    before = {name: tensor.clone() for name, tensor in made.snapshot()[0].items() if not name.startswith("rng")}
    worse = batch._replace(returns=torch.full((16,), bad))
    for _ in range(LOST_UPDATES - 1):
        made.update(**worse._asdict())
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.snapshot()[0].items() if name in before)
    assert made.last_update_not_finite()
    assert made.look()[1] == LOST_UPDATES - 1
    made.update(**batch._asdict())
    assert not made.last_update_not_finite(), "one good one, and it goes on"
    made.env_steps += 50
    made.look()
    for _ in range(LOST_UPDATES):
        made.update(**worse._asdict())
    made.env_steps += 100
    with pytest.raises(Diverged, match="diverged at step 150: the last 100 updates were not finite") as raised:
        made.look()
    assert raised.value.last_finite_step == 50, "the last look before which nothing was bad"


def test_weights_that_are_not_finite_end_the_training():
    made = learner(settings())
    with torch.no_grad():
        made.online.out.weight.fill_(math.nan)
    made.update(**batch_of(made)._asdict())
    with pytest.raises(Diverged, match="diverged at step 0: after 1 updates the weights are not finite"):
        made.look()


@pytest.mark.fault("nan")
def test_another_seed_at_a_resume_brings_other_chance_and_the_same_seed_the_same():
    """What a rollback relies on: from the same checkpoint, with another seed, training takes another course."""
    made = learner(settings())
    tensors, state = made.snapshot()
    same, other = (learner(settings(seed=seed)) for seed in (1, 2))
    for one in (same, other):
        one.restore({name: tensor.clone() for name, tensor in tensors.items()}, state)
    drawn = [one._draw.integers(2**30, size=8).tolist() for one in (made, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(made.online.out.weight, other.online.out.weight)


def test_nothing_is_learned_before_enough_is_stored_and_there_is_no_burst_then():
    made = learner(settings(num_envs=8, batch_size=32, learning_starts=400, replay_ratio=4.0))
    updates = []

    def boundary():
        updates.append((made.env_steps, made.updates))
        return made.env_steps < 800

    made.train(games(made), boundary, lambda: None)
    assert {count for stored, count in updates if stored <= 400} == {0}
    gained = np.diff([count for _, count in updates])
    assert gained.max() == 1, "one update for each vector step at 4 * 8 / 32"
    assert made.updates == 50


def test_each_update_shows_as_progress():
    made = learner(settings(num_envs=8, batch_size=8, learning_starts=100, replay_ratio=4.0))
    seen = []
    made.train(games(made), lambda: made.env_steps < 200, lambda: seen.append(made.updates))
    assert seen == list(range(1, made.updates + 1))
    assert len(seen) > 40


def test_whole_games_are_counted_with_their_own_scores():
    made = learner(settings(num_envs=4, batch_size=8))
    assert made.mean_return is None
    made.count(step_of(made, scores=2.0))
    made.count(step_of(made, scores=1.0, over=[0, 2]))
    made.count(step_of(made, scores=5.0, over=[0]))
    assert (made.episodes, list(made.recent), made.env_steps, made.frames) == (3, [3.0, 3.0, 5.0], 12, 12)
    made.new_games()
    made.count(step_of(made, scores=1.0, over=[1]))
    assert made.recent[-1] == 1.0, "what was running in the old environments is not counted"
    assert made.best_mean_return is None, "not before 100 games"
