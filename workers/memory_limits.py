"""The limits of this process's cgroup and of those above it, version 1 or 2: read by workers and by the daemon.

A container often does not see the path that /proc/self/cgroup names: then the top of the mount is its own cgroup.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path("/")
_FILES: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))  # of versions 2, 1


class MemoryLimit(NamedTuple):
    """One cgroup with a limit. `used_bytes` None: unknown. The kernel can drop the cached files, first the inactive ones."""

    limit_bytes: int
    used_bytes: int | None
    inactive_bytes: int
    active_bytes: int


def memory_limits(root: Path = ROOT) -> Iterator[MemoryLimit]:
    for folder in folders("memory", root):
        for limit, used in _FILES:
            most, now = text(folder / limit), text(folder / used)
            if most.isdigit():
                rows = [line.split() for line in text(folder / "memory.stat").splitlines()]
                stat = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
                inactive, active = (
                    stat.get(f"total_{each}", stat.get(each, 0)) for each in ("inactive_file", "active_file")
                )
                yield MemoryLimit(int(most), int(now) if now.isdigit() else None, inactive, active)


def folders(controller: str, root: Path = ROOT) -> list[Path]:
    """The directories that have this controller's files: that of our cgroup first, then those above it."""
    mount = root / "sys/fs/cgroup"
    bases, path = [mount], ""
    for line in text(root / "proc/self/cgroup").splitlines():
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


def text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
