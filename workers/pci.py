"""Detects an NVIDIA GPU in this box, with or without a driver. The trainers and doctor use it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_NVIDIA: Final = "0x10de"  # PCI vendor id
_DISPLAY: Final = "0x03"  # prefix of the PCI classes of display controllers


def has_nvidia_gpu(root: Path) -> bool:
    """Whether the system under `root` has one: by its device file or, without a loaded driver, by the PCI bus."""
    return any(root.glob("dev/nvidia[0-9]*")) or any(map(_is_nvidia, root.glob("sys/bus/pci/devices/*")))


def _is_nvidia(device: Path) -> bool:
    with contextlib.suppress(OSError):
        kind = (device / "class").read_text(encoding="utf-8")
        return (device / "vendor").read_text(encoding="utf-8").strip() == _NVIDIA and kind.startswith(_DISPLAY)
    return False
