"""Recorded launches compute, to the bit, what the plain calls compute. On a GPU `bench/gpu.py` runs the same with real graphs."""

import pytest
import torch
from learners import games, learner, settings
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from workers.acting import Actor
from workers.graphs import Graphed


class Operations(TorchDispatchMode):
    """Repeats a CPU's operations on the same memory while Python does nothing, as a CUDA graph does with a GPU's."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, before in self.calls:
                after = func(*args, **kwargs)
                for kept, new in zip(tree_leaves(before), tree_leaves(after), strict=True):
                    if isinstance(new, torch.Tensor) and kept.data_ptr() != new.data_ptr():
                        kept.copy_(new)


class Recorder:
    recorded = 0

    def plain(self, function):
        return function()

    def __call__(self, function):
        self.recorded += 1
        with Operations() as operations:
            result = function()
        return operations.replay, result


def trained(algo, recorder=None):
    one = learner(settings(algo=algo, num_envs=8, batch_size=32, n_steps=8, learning_starts=64, epochs=2), dtype="bf16")
    if recorder is not None:
        one._graded, one._looked = (Graphed(one.precision, wanted=True, record=recorder) for _ in range(2))
        if hasattr(one, "_actor"):
            one._actor = Actor(one.networks()[0][1], one.precision, one.optimizer, plain=True)
    one.train(games(one), lambda: one.env_steps < 512, lambda: None)
    return one


def bits(one):
    tensors, state = one.snapshot()
    return {name: t.contiguous().view(torch.uint8).tolist() if t.dim() else t.item() for name, t in tensors.items()} | state


@pytest.mark.parametrize("algo", ["dqn", "ppo", "pqn"])
def test_a_recorded_learner_equals_a_plain_one(algo):
    recorder = Recorder()
    plain, recorded = trained(algo), trained(algo, recorder)
    assert recorder.recorded == 2, "the update and the action"
    assert plain.updates > 10
    assert bits(recorded) == bits(plain)
    assert recorded.figures() == pytest.approx(plain.figures(), nan_ok=True, rel=0)


def test_if_nothing_can_be_recorded_it_trains_all_the_same(capsys):
    class Fails(Recorder):
        def __call__(self, function):
            function()
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    assert bits(trained("dqn", Fails())) == bits(trained("dqn"))
    expected = "workers: launches are not recorded here (operation not permitted when stream is capturing): training goes on"
    assert capsys.readouterr().err.count(expected) == 2


def test_too_little_memory_for_a_recording_is_told_as_that():
    class NoMemory(Recorder):
        def __call__(self, function):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        trained("dqn", NoMemory())
