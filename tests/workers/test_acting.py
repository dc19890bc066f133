"""The network that acts says, to the bit, what the network that learns says, also after each update."""

import numpy as np
import pytest
import torch
from learners import games, learner, settings

from workers.acting import Actor
from workers.envs import Spec
from workers.networks import POLICY, build
from workers.precision import choose

SIDES = {"nature": 84, "small": 42, "toy": 10}


def network(kind, head):
    spec = Spec("Pong", 6, 4, (SIDES[kind],) * 2, 4)
    return build(spec, kind, POLICY) if head == "policy" else build(spec, kind, normed=True)


def acting(net, precision, **more):
    return Actor(net, precision, torch.optim.Adam(net.parameters()), **more)


def said(net, frames, precision):
    with torch.no_grad(), precision.autocast():
        out = net(frames)
    return out if isinstance(out, tuple) else (out,)


def same(actor, net, precision, rows=3):
    frames = net.to_blocks(torch.randint(0, 256, (rows, 4, *([net.side] * 2)), dtype=torch.uint8))
    pairs = list(zip(said(actor, frames, precision), said(net, frames, precision), strict=True))
    assert all(mine.dtype is theirs.dtype for mine, theirs in pairs)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("nature", "bf16"), *((kind, dtype) for kind in ("small", "toy") for dtype in ("bf16", "fp16", "fp32"))],
)
@pytest.mark.parametrize("head", ["policy", "q"])
def test_it_says_what_the_network_says(kind, head, dtype):
    torch.manual_seed(1)
    net, precision = network(kind, head), choose("cpu", dtype)
    net.side = SIDES[kind]
    actor = acting(net, precision)
    names = {name: (p.dtype, p.requires_grad) for name, p in net.named_parameters()}
    assert same(actor, net, precision)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    assert same(actor, net, precision), "it has noticed"
    net.load_state_dict({name: tensor * 1.5 for name, tensor in net.state_dict().items()})
    assert same(actor, net, precision), "also what comes from a checkpoint"
    assert {name: (p.dtype, p.requires_grad) for name, p in net.named_parameters()} == names, "it has left it alone"


@pytest.mark.parametrize("algo", ["ppo", "pqn"])
def test_it_notices_what_the_optimizers_do(algo):
    """Fused and many-tensor steps write in ways of their own: each must be seen, or a rollout would follow an old policy."""
    one = learner(settings(algo=algo, num_envs=8, n_steps=16, batch_size=64, epochs=1), dtype="bf16")
    _, net = one.networks()[0]
    step, checked, update = games(one).reset(), [], one.update

    def watched(**batch):
        before = one._look_at(step)
        update(**batch)
        after = one._look_at(step)
        fresh = acting(net, one.precision)
        kept, one._actor = one._actor, fresh
        assert len(after) > 0
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(after, one._look_at(step), strict=True))
        one._actor = kept
        checked.append(any(not np.array_equal(mine, theirs) for mine, theirs in zip(before, after, strict=True)))

    one.update = watched
    one.train(games(one), lambda: one.env_steps < 8 * 16 * 3, lambda: None)
    assert len(checked) == 3 * 2
    assert all(checked), "each update changed what it says"
