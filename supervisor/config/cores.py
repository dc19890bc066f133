"""How many CPU cores this process may use.

os.cpu_count() counts the host's: a rented container with a quota of four cores on a host of 128 would be given 128
threads. So the smaller of the affinity mask (sched_setaffinity(2)) and the quota of our cgroup (cpu.max, cgroup v2).
"""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The smaller of the two."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return min(allowed, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no cgroup v2, or "max": no quota
        return allowed
