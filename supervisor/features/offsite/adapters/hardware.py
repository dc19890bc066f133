"""The hardware that a box has for its trainings. Each copy records it, and a restore compares it before anything starts."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervisor.config.cores import usable_cores, usable_memory_mb

_GIB = 2**30
_INSTANCES = ("EXTRALIFE_BOX_ID", "RUNPOD_POD_ID", "CONTAINER_ID")  # vast.ai has the last one
_SHARE = 0.9  # tolerance: each kernel update may reserve a few MB more or less


def here() -> dict[str, Any]:
    """This box's {"cores", "memory_gib", "gpus"}. The names of GPUs come from the driver's files, because NVML may hang."""
    gpus = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = path.read_text(errors="replace", encoding="utf-8").splitlines()
        gpus += [line.partition(":")[2].strip() for line in lines if line.startswith("Model")]
    memory_mb = usable_memory_mb()
    memory_gib = None if memory_mb is None else round(memory_mb * 10**6 / _GIB, 1)
    return {"cores": usable_cores(), "memory_gib": memory_gib, "gpus": gpus}


def instance_tags() -> tuple[str, ...]:
    """A tag with a hash of the provider's id of this box; none if it gives none. Never two boxes live with one id."""
    found = next((f"{name}={value}" for name in _INSTANCES if (value := os.environ.get(name))), "")
    return (f"on={hashlib.blake2b(found.encode(), digest_size=8).hexdigest()}",) if found else ()


def missing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The hardware of the earlier box that this box lacks, one clause each. Unknown values are not compared.

    Example: 8 cores and an A100 before, 2 cores and none now: `2 cores instead of 8`, `no GPU instead of A100`.
    """
    out = []
    cores, memory_gib, gpus = (before.get(key) for key in ("cores", "memory_gib", "gpus"))
    if isinstance(cores, int) and now["cores"] < cores:
        out.append(f"{now['cores']} cores instead of {cores}")
    if isinstance(memory_gib, int | float) and now["memory_gib"] is not None and now["memory_gib"] < memory_gib * _SHARE:
        out.append(f"{now['memory_gib']:g} GiB of memory instead of {memory_gib:g}")
    if isinstance(gpus, list) and Counter(map(str, gpus)) - Counter(now["gpus"]):
        out.append(f"{', '.join(now['gpus']) or 'no GPU'} instead of {', '.join(map(str, gpus))}")
    return out
