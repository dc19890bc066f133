"""The fast network is Nature's network; its head masks what is no action."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from workers.envs import Spec
from workers.networks import DUELING, POLICY, Q, as_one_image, build
from workers.options import OPTIONS
from workers.precision import choose

STACK = 4


def frames(size, batch=3, seed=0):
    make = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (batch, STACK, size, size), dtype=torch.uint8, generator=make)


def network(kind, size=84, actions=6):
    return build(Spec("Pong", actions, STACK, (size, size), 4), kind)


def values(net, x):
    """Q values, masked ones included."""
    return net.head.values(net, net.features(x))


def reference(net, x):
    """As in the paper: 8x8/4, 4x4/2, 3x3/1 on pixels from 0 to 1."""
    # The channel of a block is (frame, row, column), so its 2x2 neighbours give the 8x8 kernel.
    channels = net.channels[0]
    kernel = net.conv1.weight.view(channels, STACK, 4, 4, 2, 2).permute(0, 1, 4, 2, 5, 3).reshape(channels, STACK, 8, 8)
    x = F.relu(F.conv2d(x.float() / 255.0, kernel, net.conv1.bias, stride=4))
    x = F.relu(F.conv2d(x, net.conv2.weight, net.conv2.bias, stride=2))
    x = F.relu(F.conv2d(x, net.conv3.weight, net.conv3.bias))
    return net.out(F.relu(net.fc(x.flatten(1))))


@pytest.mark.parametrize("kind", ["nature", "small"])
@pytest.mark.parametrize("size", [32, 42, 84, 90])
def test_it_is_the_network_of_the_paper(size, kind):
    """The small one is of the same shape; 32 pixels leave the third convolution 2x2."""
    torch.manual_seed(1)
    net, x = network(kind, size), frames(size)
    wanted = reference(net, x)
    torch.testing.assert_close(values(net, x), wanted, rtol=1e-4, atol=1e-5)
    # Only now a reason to believe in the gradients too.
    theirs = torch.autograd.grad(wanted.square().sum(), list(net.parameters()))
    as_on_a_gpu = as_one_image(net.to_blocks(x)).float()
    torch.testing.assert_close(values(net, as_on_a_gpu), wanted, rtol=1e-4, atol=1e-5)
    for given in (x, net.to_blocks(x), as_on_a_gpu):
        ours = torch.autograd.grad(values(net, given).square().sum(), list(net.parameters()))
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("actions", "heads"), [(3, 8), (6, 8), (8, 8), (9, 16), (18, 24)])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_what_is_no_action_is_never_the_best(actions, heads, dtype):
    torch.manual_seed(0)
    net = build(Spec("Catch", actions, 1, (10, 5), 1), "auto")
    torch.nn.init.constant_(net.out.bias, 100.0)
    net.out.bias.data[:actions] = -1000.0
    x = torch.randint(0, 256, (16, 1, 10, 5), dtype=torch.uint8)
    with torch.no_grad(), choose("cpu", dtype).autocast():
        q = net(x)
        assert values(net, x).argmax(1).min() >= actions or heads == actions
    assert q.shape == (16, heads)
    assert q.isfinite().all()
    assert q.argmax(1).max() < actions


@pytest.mark.parametrize("kind", ["auto", "nature", "small"])
def test_every_resolution_that_may_be_asked_for_builds_and_answers(kind):
    """32 to 128 pixels; 84 has Nature's network unless another one is asked for."""
    option = OPTIONS["resolution"]
    for size in range(int(option.low), int(option.high) + 1):
        spec = Spec("Pong", 6, STACK, (size, size), 4)
        with torch.device("meta"):  # shapes without the arithmetic
            net = build(spec, kind, DUELING if size % 2 else Q, normed=size % 3 == 0)
            policy = build(spec, kind, POLICY)
            left = net.conv3(net.conv2(net.conv1(torch.empty(1, STACK * 16, size // 4, size // 4))))
        assert left.numel() == net.fc.in_features == policy.fc.in_features > 0
    assert network("auto").channels == (32, 64, 64)
    frame = frames(32)
    assert network(kind, 32)(frame).shape == (3, 8)
    assert build(Spec("Pong", 6, STACK, (32, 32), 4), kind, DUELING)(frame).shape == (3, 8)
