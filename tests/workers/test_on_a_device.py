"""Nothing of acting, keeping and learning mixes devices, and the branches for CUDA fit together.

Where no GPU is, torch's "meta" device stands for one: it knows shapes, formats and places of tensors, and no numbers. Of
what is read from it the tests make zeros. Every operation is looked at as torch dispatches it, those of the gradients as
well: on CUDA two places in one of them are an error, which meta itself would let pass for many.
"""

import pytest
import torch
from learners import games, settings
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from workers import algorithms, envs, optimizers
from workers.precision import Precision

META = torch.device("meta")
COPIES = {"copy_", "_to_copy", "_copy_from"}  # they are there to go from one device to another
READS = (torch.Tensor.cpu, torch.Tensor.item, torch.Tensor.tolist)


class OneDevice(TorchDispatchMode):
    """Raises where tensors of two devices meet; a number of the host (no dimension) may be read by any operation."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ not in COPIES:
            tensors = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)]
            written = func._schema.arguments[0].alias_info if func._schema.arguments else None
            first_counts = written is not None and written.is_write
            places = {
                tensor.device.type
                for number, tensor in enumerate(tensors)
                if tensor.dim() or tensor.is_meta or (first_counts and number == 0)
            }
            if len(places) > 1:
                raise AssertionError(f"{func} of tensors on {sorted(places)}")
        return func(*args, **(kwargs or {}))


class ReadAsZeros(TorchFunctionMode):
    """What is read from the device is 0, and the first action the best; a network takes the device for CUDA."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if args and isinstance(args[0], torch.Tensor) and args[0].device == META:
            if getattr(func, "__self__", None) is torch.Tensor.is_cuda:
                return True
            if func in READS:
                zeros = torch.zeros(args[0].shape, dtype=args[0].dtype)
                if zeros.dim() > 1 and zeros.is_floating_point():
                    zeros -= 1e3 * torch.arange(zeros.shape[-1])
                return zeros if func is torch.Tensor.cpu else getattr(zeros, func.__name__)()
        return func(*args, **(kwargs or {}))


def no_autocast_there(monkeypatch):
    """Of what meta does not have: autocast, and the fused form of Adam, whose counts would be on the device."""
    asked = torch.is_autocast_enabled
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind != "meta" and asked(kind))

    def unfused(parameters, lr, *, eps, fused):
        assert fused
        return torch.optim.Adam(parameters, lr, eps=eps, foreach=True)

    monkeypatch.setattr(optimizers, "Adam", unfused)


def trained(algo, game, device, steps):
    more = {"learning_starts": 100, "replay_size": 2_000} if algo == "dqn" else {"n_steps": 16}
    args = settings(game, algo=algo, num_envs=4, batch_size=32, **more)
    one = algorithms.kind(args.algo).make(
        args, envs.spec_of(args.game, args.resolution), Precision(device, torch.float32), None
    )
    if algo == "dqn" and device == META:  # as for CUDA, but for the events: that the batch is copied there, and which of it

        class Event:
            def record(self): ...
            def synchronize(self): ...

        one._copied = [Event(), Event()]
    train_more(one, steps)
    return one


def train_more(one, steps):
    environments, left = games(one), iter(range(steps))
    one.train(environments, lambda: next(left, None) is not None, lambda: None)
    environments.close()


@pytest.mark.parametrize(("algo", "game"), [("dqn", "Breakout"), ("ppo", "Breakout"), ("pqn", "Breakout")])
def test_a_whole_loop_on_a_device_never_mixes_it_with_the_host(algo, game, monkeypatch):
    no_autocast_there(monkeypatch)
    with OneDevice(), ReadAsZeros():
        one = trained(algo, game, META, 60)
        one.look()
        one.figures()
        assert not one.last_update_not_finite()
        tensors, state = one.snapshot()
    assert one.updates > 20
    assert state["updates"] == one.updates
    assert {name for name, tensor in tensors.items() if not tensor.is_meta} <= {
        "rng.torch",
        *(name for name in tensors if name.startswith("adam.step.")),
    }
    assert all(p.grad is not None and p.grad.device == META for p in one.networks()[0][1].parameters())
