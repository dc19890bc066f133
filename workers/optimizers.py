"""PyTorch's optimizers without their support for `torch.compile`.

Creating an optimizer, and its first step, import `torch._dynamo`: 800 modules, nearly half of a worker's CPU time at its
start. We compile nothing. PyTorch's own code does the computing, so the results are bit-identical.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch

_Kind = TypeVar("_Kind", bound=torch.optim.Optimizer)


def _plain(kind: type[_Kind]) -> type[_Kind]:
    """The class with undecorated methods; if a later PyTorch has no decorators, the methods stay as they are."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


Adam = _plain(torch.optim.Adam)
RAdam = _plain(torch.optim.RAdam)
