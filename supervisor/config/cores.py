"""How many CPU cores this process may use, and how much memory: the limits of its cgroup and of those above it.

os.cpu_count() counts the cores of the host: a rented container with a quota of four cores on a host of 128 would get 128
threads. So the affinity mask (sched_setaffinity(2)) and the quota of our cgroup (version 1 or 2) are used instead.

A container often does not see the path that /proc/self/cgroup names: then the top of the mount is its own cgroup.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
_LIMITS: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))  # of versions 2, 1


def usable_cores(root: Path = _ROOT) -> int:
    """The smaller of the affinity mask and the quota."""
    return min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in _quotas(root))])


def usable_memory_mb(root: Path = _ROOT) -> int | None:
    """The smaller of the host's memory and the limit of our cgroup, in MB; None: unknown."""
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if host_bytes <= 0:
        return None
    return min([host_bytes, *(limit for limit, _, _ in memory_limits(root))]) // 10**6


def memory_limits(root: Path = _ROOT) -> Iterator[tuple[int, int | None, Path]]:
    """(limit, used) in bytes and the directory, of each cgroup that has a limit. `used` None: unknown."""
    for folder in _folders("memory", root):
        for limit, used in _LIMITS:
            most, now = _text(folder / limit), _text(folder / used)
            if most.isdigit():
                yield int(most), int(now) if now.isdigit() else None, folder


def _quotas(root: Path) -> Iterator[float]:
    for folder in _folders("cpu", root):
        words = _text(folder / "cpu.max").split() or [
            _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        ]  # fmt: skip
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):  # else "max" or -1: no quota
            yield int(words[0]) / int(words[1])


def _folders(controller: str, root: Path) -> list[Path]:
    """The directories that have this controller's files: that of our cgroup first, then those above it."""
    mount = root / "sys/fs/cgroup"
    bases, path = [mount], ""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, place = rest.partition(":")
        if controller in names.split(","):
            bases, path = [mount / controller, mount / names, mount], place
            break
        if number == "0":
            path = place
    base = next((base for base in bases if base.is_dir()), mount)
    own = base / path.strip("/")
    if ".." in own.parts or not own.is_dir():
        own = base
    return [own, *(above for above in own.parents if above.is_relative_to(base))]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
