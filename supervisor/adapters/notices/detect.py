"""Detects this box's provider from the identification in its firmware (DMI). Sends no request.

`EXTRALIFE_BOOT_FILES` names a directory with `sys_vendor`, `product_name` and `chassis_asset_tag`. These files are then read
instead of /sys/class/dmi/id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from supervisor.adapters.host.boot import BootFiles
from supervisor.policy.upkeep.notices import AWS, AZURE, GOOGLE

_DMI: Final = Path("/sys/class/dmi/id")
_AZURE_TAG: Final = "7783-7084-3265-9085-8269-3286-77"  # the same on every virtual machine of Azure, on no other Hyper-V


def provider(files: BootFiles) -> str:
    """`aws`, `google` or `azure`; empty: none of them, or unknown."""
    folder = files.folder or _DMI
    vendor = _text(folder / "sys_vendor")
    if vendor == "Amazon EC2":
        return AWS
    if vendor == "Google" and _text(folder / "product_name") == "Google Compute Engine":
        return GOOGLE
    return AZURE if _text(folder / "chassis_asset_tag") == _AZURE_TAG else ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(256).decode("utf-8", "replace").strip()
    except OSError:
        return ""
