"""Is there an NVIDIA GPU in this box, whether or not a driver has it? Asked by the trainers and by doctor."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_NVIDIA: Final = "0x10de"  # its number on the PCI bus, and the class of what can show a picture or compute one
_DISPLAY: Final = "0x03"


def has_nvidia_gpu(root: Path) -> bool:
    """By its device file or, where a driver that is not loaded has made none, by the PCI bus, of the system under `root`."""
    return any(root.glob("dev/nvidia[0-9]*")) or any(map(_is_nvidia, root.glob("sys/bus/pci/devices/*")))


def _is_nvidia(device: Path) -> bool:
    with contextlib.suppress(OSError):
        kind = (device / "class").read_text()
        return (device / "vendor").read_text().strip() == _NVIDIA and kind.startswith(_DISPLAY)
    return False
