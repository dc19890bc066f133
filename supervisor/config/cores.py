"""How many CPU cores this process may use, and how much memory.

os.cpu_count() counts the cores of the host: a rented container with a quota of four cores on a host of 128 would get 128
threads. So the affinity mask (sched_setaffinity(2)) and the quota of our cgroup (cpu.max, cgroup v2) are used instead.
"""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The smaller of the affinity mask and the cgroup's quota."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return min(allowed, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no cgroup v2, or "max": no quota
        return allowed


def usable_memory_mb(memory_max: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    """The smaller of the host's memory and our cgroup's limit (memory.max), in MB; None: unknown."""
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if host_bytes <= 0:
        return None
    try:
        return min(host_bytes, int(memory_max.read_text())) // 10**6
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return host_bytes // 10**6
