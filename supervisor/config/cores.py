"""How many CPU cores this process may use, and how much memory: the limits of its cgroup and of those above it.

os.cpu_count() counts the cores of the host: a rented container with a quota of four cores on a host of 128 would get 128
threads. So the affinity mask (sched_setaffinity(2)) and the quota of our cgroup (version 1 or 2) are used instead.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from workers.memory_limits import ROOT, folders, memory_limits, text


def usable_cores(root: Path = ROOT) -> int:
    """The smaller of the affinity mask and the quota."""
    return min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in _quotas(root))])


def usable_memory_mb(root: Path = ROOT) -> int | None:
    """The smaller of the host's memory and the limit of our cgroup, in MB; None: unknown."""
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if host_bytes <= 0:
        return None
    return min([host_bytes, *(each.limit_bytes for each in memory_limits(root))]) // 10**6


def _quotas(root: Path) -> Iterator[float]:
    for folder in folders("cpu", root):
        words = text(folder / "cpu.max").split() or [text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):  # else "max" or -1: no quota
            yield int(words[0]) / int(words[1])
