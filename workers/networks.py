"""The networks: Mnih et al.'s body (Nature 2015) for Atari frames, a smaller one, one for toys; each has one of three heads.

All accept uint8 frames [B, stack, H, W], or the output of `to_blocks` or `to_input`. A Q network returns values [B, heads],
a policy network logits [B, heads] and state values [B]; entries beyond the actions are masked. The head's width is a
multiple of 8, the tile size of tensor cores and AMX.

The layers of body and head lie side by side in the network: `conv1`, ..., `out` are their names in checkpoints.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import nn

from workers.precision import mask_invalid

if TYPE_CHECKING:
    from workers.envs import Spec

_BLOCK: Final = 4  # the first convolution's stride
_HEAD_MULTIPLE: Final = 8
_PIXEL: Final = 1.0 / 255.0
_IMAGE_DIM: Final = 4  # [B, C, H, W]
_BLOCKS_DIM: Final = 5  # [B, S, rows, columns, pixels], and as numbers [B, pixels, S, rows, columns]
_LAST_IMAGE: Final = 2  # index of the last convolution: later layers have features, not images
_LEAST_SIDE: Final = 32  # pixels that three convolutions need at least
SMALL_BELOW: Final = 60  # pixels: for smaller frames Nature's network is too large


class Head:
    """The output part of a network, on features [B, width]. It has no state: the network holds its layers."""

    streams = 1  # the factor by which it widens the features

    @abstractmethod
    def layers(self, width: int, heads: int) -> dict[str, nn.Module]:
        """The layers, by their names in the network."""

    @abstractmethod
    def answer(self, net: Any, features: torch.Tensor) -> Any: ...

    def begin(self, net: nn.Module) -> None:
        """Set the initial weights, if they differ from torch's defaults."""


class Network(nn.Module):
    """A body, which turns frames into features, and a head."""

    valid: torch.Tensor  # bool [heads]: which entries are actions

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    @abstractmethod
    def to_blocks(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 [B, S, H, W] -> uint8 [B, S, ...], frame by frame: a store of frames does this once, when it gets them."""

    @abstractmethod
    def to_input(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 frames as input of the first layer. All networks of a kind can share the result, so it is computed once."""

    @abstractmethod
    def features(self, frames: torch.Tensor) -> torch.Tensor:
        """Features [B, width] of frames, or of the output of `to_blocks` or `to_input`."""

    def forward(self, frames: torch.Tensor) -> Any:
        return self.head.answer(self, self.features(frames))

    def _end_with(self, head: Head, actions: int) -> None:
        self.head, self.actions, self.heads = head, actions, padded(actions)
        for name, layer in head.layers(self.width, self.heads).items():
            self.add_module(name, layer)
        self.register_buffer("valid", torch.arange(self.heads) < actions, persistent=False)
        head.begin(self)

    def _numbers(self, frames: torch.Tensor) -> torch.Tensor:
        """0 ... 255 as floats of the autocast format: exact in every format, and half the memory in bf16 and fp16."""
        kind = frames.device.type
        return frames.to(torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32)


class ConvNetwork(Network):
    """Three convolutions, 8x8/4, 4x4/2, 3x3/1, and a linear layer; with `normed` each followed by a LayerNorm over channels.

    The first convolution is computed over blocks of 4x4 pixels (space to depth), channels last. It is the same function with
    the same number of weights (a test compares it with the 8x8/4 one), and makes the whole update 1.2 times as fast on CPUs
    and tensor cores. On a CPU its kernel is 4x2x2 over frames, rows and columns, with 16 channels: the frames of a stack
    need not be moved. On a GPU, whose libraries are made for two dimensions, it is 2x2 with the 64 channels of all frames.
    The division by 255 is folded into its weights.
    """

    pixel_scale = _PIXEL  # 1: the weights already include it (`acting.py`)

    def __init__(self, spec: Spec, head: Head, channels: tuple[int, int, int], width: int, *, normed: bool = False) -> None:
        super().__init__(width * head.streams)
        stack, (height, width) = spec.stack, spec.frame_shape
        one, two, three = self.channels = channels
        rows, columns = height // _BLOCK, width // _BLOCK
        self.crop = (rows * _BLOCK, columns * _BLOCK)  # an 8x8/4 convolution ignores the rest as well
        self.conv1 = nn.Conv2d(stack * _BLOCK * _BLOCK, one, 2)
        self.conv2 = nn.Conv2d(one, two, 4, 2)
        left = [((size - 1) - 4) // 2 + 1 for size in (rows, columns)]
        kernel = (min(3, left[0]), min(3, left[1]))  # frames of 32 to 35 pixels leave 2 by 2
        self.conv3 = nn.Conv2d(two, three, kernel)
        rows, columns = (size - side + 1 for size, side in zip(left, kernel, strict=True))
        self.fc = nn.Linear(three * rows * columns, self.width)
        self.norms = nn.ModuleList([nn.LayerNorm(size) for size in (*channels, self.width)] if normed else [])
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._end_with(head, spec.actions)

    def to_blocks(self, frames: torch.Tensor) -> torch.Tensor:
        return blocks(frames, self.crop)

    def to_input(self, frames: torch.Tensor) -> torch.Tensor:
        parts = frames if frames.dim() == _BLOCKS_DIM else self.to_blocks(frames)
        return self._numbers(as_one_image(parts) if frames.is_cuda else parts.permute(0, 4, 1, 2, 3))

    def features(self, frames: torch.Tensor) -> torch.Tensor:
        x = self.to_input(frames) if frames.dtype is torch.uint8 else frames
        x = self._activated(self._first(x), 0)
        x = self._activated(self._second(x.squeeze(2) if x.dim() == _BLOCKS_DIM else x), 1)
        x = self._activated(self.conv3(x), 2)
        return self._activated(self.fc(x), 3)

    def _first(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.conv1.weight if self.pixel_scale == 1.0 else self.conv1.weight * self.pixel_scale
        if x.dim() == _IMAGE_DIM:
            return F.conv2d(x, weight, self.conv1.bias)
        weight = weight.view(len(weight), -1, x.shape[1], 2, 2).transpose(1, 2)  # its channel is (frame, pixel of the block)
        return F.conv3d(x, weight, self.conv1.bias)

    def _second(self, x: torch.Tensor) -> torch.Tensor:
        """The 4x4/2 convolution, computed as 4x2 with twice the channels over pairs of columns: the same function.

        On a CPU the gradients of a convolution with strides in both directions take a third more time.
        """
        weight, bias = self.conv2.weight, self.conv2.bias
        batch, channels, rows, columns = x.shape
        if x.is_cuda or columns % 2:
            return F.conv2d(x, weight, bias, 2)
        pairs = x.permute(0, 2, 3, 1).reshape(batch, rows, columns // 2, 2 * channels).permute(0, 3, 1, 2)
        weight = weight.view(len(weight), channels, 4, 2, 2).permute(0, 4, 1, 2, 3).reshape(len(weight), 2 * channels, 4, 2)
        return F.conv2d(pairs, weight, bias, (2, 1))

    def _activated(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        """Apply the norm (if the network has norms), flatten after the last convolution, and apply ReLU.

        In channels-last memory the channels of a pixel are adjacent, so the norm needs no copy. `x` is flattened before
        ReLU because its gradient arrives flat, and ReLU's backward is twenty times slower if the two layouts differ. ReLU
        works in place: neither a convolution nor a norm needs its own result for its gradient, and the first layer's result
        is the largest tensor after the frames. But never in place on a view: autograd would copy the whole tensor.
        """
        last_image = layer == _LAST_IMAGE
        if not self.norms:
            return F.relu(x.flatten(1) if last_image else x, inplace=True)
        x = self.norms[layer](x.movedim(1, -1))
        if last_image:
            return F.relu(x.movedim(-1, 1).flatten(1), inplace=True)
        return F.relu(x, inplace=True).movedim(-1, 1)


class ToyNetwork(Network):
    """Two layers of 128: enough for Catch's 10x5 pixels. With two streams each has 64."""

    def __init__(self, spec: Spec, head: Head, *, normed: bool = False) -> None:
        super().__init__(128)
        self.fc1 = nn.Linear(spec.stack * math.prod(spec.frame_shape), 128)
        self.fc2 = nn.Linear(128, 128)
        self.norms = nn.ModuleList([nn.LayerNorm(128) for _ in range(2)] if normed else [])
        self._end_with(head, spec.actions)

    def to_blocks(self, frames: torch.Tensor) -> torch.Tensor:
        return frames

    def to_input(self, frames: torch.Tensor) -> torch.Tensor:
        return self._numbers(frames.flatten(1)) * _PIXEL

    def features(self, frames: torch.Tensor) -> torch.Tensor:
        x = self.to_input(frames) if frames.dtype is torch.uint8 else frames
        for place, layer in enumerate((self.fc1, self.fc2)):
            x = layer(x)
            x = F.relu(self.norms[place](x) if self.norms else x)
        return x


class _QHead(Head):
    """Q values [B, heads]."""

    def layers(self, width: int, heads: int) -> dict[str, nn.Module]:
        return {"out": nn.Linear(width, heads)}

    def answer(self, net: Any, features: torch.Tensor) -> torch.Tensor:
        return mask_invalid(self.values(net, features), net.valid)

    def values(self, net: Any, features: torch.Tensor) -> torch.Tensor:
        """Q values, masked ones included."""
        return net.out(features)  # type: ignore[no-any-return]


class _DuelingHead(_QHead):
    """Wang et al. 2016: Q(s, a) = V(s) + A(s, a) - mean_a A(s, a). V and A each use one half of the features.

    The mean is over real actions only: padded entries would shift it. The halves are the two hidden layers of the paper,
    computed as one layer of twice the width. The paper's gradient rescaling by 1/sqrt(2) is left out, as in Rainbow.
    """

    streams = 2

    def layers(self, width: int, heads: int) -> dict[str, nn.Module]:
        return {"out": nn.Linear(width // 2, heads), "worth": nn.Linear(width // 2, 1)}  # A and V

    def values(self, net: Any, features: torch.Tensor) -> torch.Tensor:
        for_worth, for_advantages = features.chunk(2, 1)
        advantages = net.out(for_advantages).float()
        mean = (advantages * net.valid).sum(1, keepdim=True) / net.actions
        return net.worth(for_worth).float() + advantages - mean  # type: ignore[no-any-return]


class _PolicyHead(Head):
    """Logits [B, heads] and state values [B], from one linear layer each; initial weights as PPO's authors choose them."""

    def layers(self, width: int, heads: int) -> dict[str, nn.Module]:
        return {"actor": nn.Linear(width, heads), "critic": nn.Linear(width, 1)}

    def answer(self, net: Any, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return mask_invalid(net.actor(features), net.valid), net.critic(features).squeeze(1)

    def begin(self, net: nn.Module) -> None:
        gains = {"actor": 0.01, "critic": 1.0}
        for name, module in net.named_modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                # In a temporary tensor: torch's orthogonal_ can't fill a weight in channels-last memory.
                weight = nn.init.orthogonal_(torch.empty(module.weight.shape), gains.get(name, math.sqrt(2.0)))
                module.weight.data.copy_(weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


Q: Final = _QHead()
DUELING: Final = _DuelingHead()
POLICY: Final = _PolicyHead()
# Channels of the convolutions, and width. The small one needs a tenth of the arithmetic and is as good on small frames.
_SIZES: Final = {"nature": ((32, 64, 64), 512), "small": ((16, 32, 32), 128)}


def padded(actions: int) -> int:
    """The width of the head: the next multiple of 8. 6 actions need 8."""
    return -(-actions // _HEAD_MULTIPLE) * _HEAD_MULTIPLE


def blocks(frames: torch.Tensor, crop: tuple[int, int]) -> torch.Tensor:
    """uint8 [B, S, H, W] -> [B, S, H/4, W/4, 16]: the pixels of a block are adjacent, row by row.

    The four pixels of a block's row move as one 32-bit word: a quarter of the moves.
    """
    rows, columns = crop[0] // _BLOCK, crop[1] // _BLOCK
    words = frames[:, :, : crop[0], : crop[1]].contiguous().view(torch.int32)
    words = words.view(*frames.shape[:2], rows, _BLOCK, columns).transpose(3, 4).contiguous()
    return words.view(torch.uint8)


def as_one_image(parts: torch.Tensor) -> torch.Tensor:
    """Blocks [B, S, rows, columns, 16] -> [B, S*16, rows, columns] in channels-last memory; channel = (frame, pixel)."""
    return parts.permute(0, 2, 3, 1, 4).flatten(3).permute(0, 3, 1, 2)


def build(spec: Spec, network: str, head: Head = Q, *, normed: bool = False) -> Network:
    """The network for this game; `network` is the setting."""
    kind = kind_of(spec, network)
    if kind == "toy":
        return ToyNetwork(spec, head, normed=normed)
    return ConvNetwork(spec, head, *_SIZES[kind], normed=normed)


def kind_of(spec: Spec, network: str) -> str:
    """The kind of network: "toy" for frames too small for convolutions, else the setting; "auto" depends on the frame size.

    Example: auto at 84x84 is "nature", at 42x42 "small"; Catch's 10x5 is always "toy".
    """
    if min(spec.frame_shape) < _LEAST_SIDE:
        return "toy"
    if network != "auto":
        return network
    return "small" if min(spec.frame_shape) < SMALL_BELOW else "nature"
