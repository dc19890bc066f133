"""A copy of a network for acting: its weights are cast to the compute format once per update, not for each action.

Autocast casts every weight at each call of a network. For the few rows of a vector step this takes a quarter of the time
(measured, bf16). The copy gives bit-identical results, because the casts are the same. `plain`: without a copy, for a
network whose launches are recorded (`graphs.py`).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from workers.precision import Precision


class Actor:
    """Call it like the network, under the same autocast. It detects changed weights by itself."""

    def __init__(
        self, net: nn.Module, precision: Precision, optimizer: torch.optim.Optimizer, *, plain: bool = False
    ) -> None:
        self._net = net
        self._copy = None if plain or precision.dtype is torch.float32 else _cast(net, precision.dtype)
        self._versions: tuple[int, ...] = ()
        if self._copy is not None:
            optimizer.register_step_post_hook(self._updated)

    @torch.no_grad()
    def __call__(self, frames: torch.Tensor) -> Any:
        if self._copy is None:
            return self._net(frames)
        # torch counts the writes into a tensor, except those of a fused optimizer.
        versions = tuple(parameter._version for parameter in self._net.parameters())
        if versions != self._versions:
            self._refresh(self._copy)
            self._versions = versions
        return self._copy(frames)

    def _updated(self, *_: object) -> None:
        self._versions = ()

    def _refresh(self, copied: nn.Module) -> None:
        net: Any = self._net
        for name, parameter in net.named_parameters():
            copied.get_parameter(name).copy_(parameter * net.pixel_scale if name == "conv1.weight" else parameter)


def _cast(net: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy with every layer cast that autocast casts. `_refresh` scales its first weights, so `forward` does not."""
    copied: Any = copy.deepcopy(net).requires_grad_(requires_grad=False)
    for module in copied.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.to(dtype)
    if hasattr(copied, "pixel_scale"):
        copied.pixel_scale = 1.0
    return copied  # type: ignore[no-any-return]
