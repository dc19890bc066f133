"""The value networks: Mnih et al.'s (Nature 2015) for Atari frames, a small one for Catch.

Both take uint8 frames [B, stack, H, W] and give Q values [B, heads] in which the entries that are no actions are
masked. The head is as wide as the next multiple of 8: that is the tile of tensor cores and AMX.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import nn

from workers.precision import mask_invalid

if TYPE_CHECKING:
    from workers.envs import Spec

_BLOCK: Final = 4  # the first convolution's stride
_HEAD_MULTIPLE: Final = 8
_PIXEL: Final = 1.0 / 255.0


class _QNetwork(nn.Module):
    """What both have in common: the masked head, and frames in the format of the computation."""

    valid: torch.Tensor

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.heads = -(-actions // _HEAD_MULTIPLE) * _HEAD_MULTIPLE
        self.register_buffer("valid", torch.arange(self.heads) < actions, persistent=False)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return mask_invalid(self.values(frames), self.valid)

    @abstractmethod
    def values(self, frames: torch.Tensor) -> torch.Tensor:
        """Q values, masked ones included."""

    def _numbers(self, frames: torch.Tensor) -> torch.Tensor:
        """0 ... 255 as floats of the autocast format: exact in all of them, and half the memory in two."""
        kind = frames.device.type
        return frames.to(torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32)


class NatureNetwork(_QNetwork):
    """Convolutions 32 8x8/4, 64 4x4/2, 64 3x3/1, then 512 and the actions.

    The first convolution is computed as a 2x2/1 one over blocks of 4x4 pixels (space to depth), channels last: the same
    function of the same number of weights (a test holds it against the 8x8/4 one), with 64 channels instead of 4, which
    CPUs and tensor cores do 1.2 times as fast over the whole update. The division by 255 is folded into its weights.
    """

    def __init__(self, actions: int, stack: int, height: int, width: int) -> None:
        super().__init__(actions)
        rows, columns = height // _BLOCK, width // _BLOCK
        self.crop = (rows * _BLOCK, columns * _BLOCK)  # an 8x8/4 convolution ignores the rest as well
        self.conv1 = nn.Conv2d(stack * _BLOCK * _BLOCK, 32, 2)
        self.conv2 = nn.Conv2d(32, 64, 4, 2)
        self.conv3 = nn.Conv2d(64, 64, 3)
        rows, columns = (((size - 1) - 4) // 2 + 1 - 2 for size in (rows, columns))
        self.fc = nn.Linear(64 * rows * columns, 512)
        self.out = nn.Linear(512, self.heads)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def values(self, frames: torch.Tensor) -> torch.Tensor:
        x = self._numbers(blocks(frames, self.crop))
        x = F.relu(F.conv2d(x, self.conv1.weight * _PIXEL, self.conv1.bias))
        x = F.relu(self.conv2(x))
        x = F.relu(self.conv3(x))
        x = F.relu(self.fc(x.flatten(1)))
        return self.out(x)  # type: ignore[no-any-return]


def blocks(frames: torch.Tensor, crop: tuple[int, int]) -> torch.Tensor:
    """uint8 [B, S, H, W] -> [B, S*16, H/4, W/4] in channels-last memory; channel = (frame, row in block, column in block).

    The four pixels of a block's row are moved as one 32-bit word: four times fewer, wider moves.
    """
    batch, stack = frames.shape[:2]
    rows, columns = crop[0] // _BLOCK, crop[1] // _BLOCK
    words = frames[:, :, : crop[0], : crop[1]].contiguous().view(torch.int32)
    words = words.view(batch, stack, rows, _BLOCK, columns).permute(0, 2, 4, 1, 3).contiguous()
    return words.view(torch.uint8).view(batch, rows, columns, stack * _BLOCK * _BLOCK).permute(0, 3, 1, 2)


class SmallNetwork(_QNetwork):
    """Two layers of 128: enough for Catch's 10x5 pixels."""

    def __init__(self, actions: int, stack: int, height: int, width: int) -> None:
        super().__init__(actions)
        self.fc1 = nn.Linear(stack * height * width, 128)
        self.fc2 = nn.Linear(128, 128)
        self.out = nn.Linear(128, self.heads)

    def values(self, frames: torch.Tensor) -> torch.Tensor:
        x = self._numbers(frames.flatten(1)) * _PIXEL
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.out(x)  # type: ignore[no-any-return]


def build(spec: Spec) -> _QNetwork:
    """The network for this game: Nature's for frames that it can take, the small one for toys."""
    small = min(spec.frame_shape) < 36  # what three convolutions need at least
    kind = SmallNetwork if small else NatureNetwork
    return kind(spec.actions, spec.stack, *spec.frame_shape)
