"""Names the program that asks this box's provider for notices, by the firmware (DMI). Sends no request.

`EXTRALIFE_BOOT_FILES` names a directory with `sys_vendor`, `product_name` and `chassis_asset_tag`. These files are then read
instead of /sys/class/dmi/id.

    python -m supervisor.features.notices.adapters.detect      prints the program; deploy/install.sh configures it
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from supervisor.adapters.host.boot import BootFiles
from supervisor.files import text

_DMI: Final = Path("/sys/class/dmi/id")
_AZURE_TAG: Final = "7783-7084-3265-9085-8269-3286-77"  # the same on every virtual machine of Azure, on no other Hyper-V
_ROOT: Final = Path(__file__).parents[4]


def provider(files: BootFiles) -> str:
    """`aws`, `google` or `azure`; empty: none of them, or unknown."""
    folder = files.folder or _DMI
    vendor = text(folder / "sys_vendor")
    if vendor == "Amazon EC2":
        return "aws"
    if vendor == "Google" and text(folder / "product_name") == "Google Compute Engine":
        return "google"
    return "azure" if text(folder / "chassis_asset_tag") == _AZURE_TAG else ""


def command(files: BootFiles) -> str:
    """The program for this box's provider, by a path that stays after an upgrade; empty: there is none."""
    name, current = provider(files), _ROOT.parent.parent / "current"
    root = current if current.exists() and current.samefile(_ROOT) else _ROOT
    found = root / "deploy" / "notices" / name
    return str(found) if name and found.exists() else ""


if __name__ == "__main__":
    sys.stdout.write(command(BootFiles.of(os.environ)))
