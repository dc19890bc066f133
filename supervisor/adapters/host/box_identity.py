"""Reads the witnesses that identify this box (`policy/box/box_identity.py`). Omits witnesses that cannot be read.

The name of a container says nothing: each new container of an image has another one.

Ids are stored as digests: people see the journal and copy it into reports, and machine-id(5) asks not to expose the
machine-id. `EXTRALIFE_BOOT_FILES` names a directory with `machine_id`, `hostname`, `product_uuid`, `cards`, `gpus` and
`hardware`, which are read instead of the system's files. It is for tests, and for containers whose runtime has better
information.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from supervisor.adapters.host.boot import BootFiles, is_container
from supervisor.files import text
from supervisor.policy.box import box_identity as rule

_PRODUCT: Final = Path("/sys/class/dmi/id/product_uuid")
_GIB: Final = 1 << 30
# Some boards report these instead of a unique UUID: thousands of boards share them.
_NO_UUID: Final = {"03000200040005000006000700080009", "12345678123412341234123456789012"}


def witnesses(files: BootFiles) -> dict[str, str]:
    given = files.folder
    product = text(_PRODUCT if given is None else given / "product_uuid").replace("-", "").lower()
    # Network cards with a device. A container's own cards have no device and change at each start.
    cards = [path.parent / "address" for path in sorted(Path("/sys/class/net").glob("*/device"))]
    found = {
        rule.PRODUCT: _digest("" if len(set(product)) <= 1 or product in _NO_UUID else product),
        rule.MACHINE: _digest(_machine_id() if given is None else text(given / "machine_id")),
        rule.HOSTNAME: ("" if is_container() else os.uname().nodename) if given is None else text(given / "hostname"),
        rule.CARDS: _digests([text(path) for path in cards] if given is None else text(given / "cards").split()),
        rule.GPUS: _digests(_gpus() if given is None else text(given / "gpus").split()),
        rule.HARDWARE: _hardware() if given is None else text(given / "hardware"),
    }
    return {key: value for key, value in found.items() if value}


def _digest(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=8, person=b"extralife-box").hexdigest() if value else ""


def _digests(values: list[str]) -> str:
    return ",".join(sorted({_digest(value.lower()) for value in values if value}))


def _machine_id() -> str:
    """The machine-id. Empty if systemd made it for this boot only: such an id lies on /run, mounted over the real file."""
    path = Path("/etc/machine-id")
    try:
        if path.stat().st_dev == Path("/run").stat().st_dev != Path("/").stat().st_dev:
            return ""
    except OSError:
        return ""
    found = text(path)
    return found if found != "uninitialized" else ""


def _gpus() -> list[str]:
    """UUIDs from the driver's files: NVML is not loaded yet at this point, and may hang."""
    found = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        words = [line.partition(":")[2].strip() for line in text(path).splitlines() if line.startswith("GPU UUID")]
        found += [word for word in words if word.startswith("GPU-") and "?" not in word]
    return found


def _hardware() -> str:
    """`Intel(R) Xeon(R) ..., 8 CPUs, 24 GiB`. Rounded to GiB, because each kernel update takes some MB more for itself."""
    lines = text(Path("/proc/cpuinfo")).splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    try:
        size_gib = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB)
    except (OSError, ValueError):
        return model
    return f"{model or 'unknown CPU'}, {os.cpu_count()} CPUs, {size_gib} GiB"
