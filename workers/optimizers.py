"""PyTorch's optimizers without their provisions for `torch.compile`.

Making one, and its first step, import `torch._dynamo`: 800 modules, nearly half of what the start of a worker computes. They
serve a step inside of a compiled function, and no step of ours is in one: networks are compiled, optimizers are not
(`compiling.py`). What computes is PyTorch's own code, so the bits are the same.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch

_Kind = TypeVar("_Kind", bound=torch.optim.Optimizer)


def _plain(kind: type[_Kind]) -> type[_Kind]:
    """The methods below their decorators; where a later PyTorch has none, the methods themselves."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


Adam = _plain(torch.optim.Adam)
RAdam = _plain(torch.optim.RAdam)
