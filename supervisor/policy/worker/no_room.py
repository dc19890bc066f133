"""Which file system had no room, where a program died of that: SIGBUS, ENOSPC or EDQUOT.

SIGBUS names nothing: the kernel sends it for a store into a mapped page that the file system cannot provide. Most often that
is /dev/shm, of which a container has 64 MiB, and through which the processes of a data loader pass their batches.

The rule, for an end by SIGBUS, or whose last lines say that there was no room; the first match wins:

1. a file system whose path is in those lines;
2. one without a free inode, or with less than a hundredth of its size or 1 MiB left;
3. /dev/shm, if it has less than 1 GiB in all and the end was SIGBUS or the lines speak of shared memory.

Worked example: "DataLoader worker (pid 61) is killed by signal: Bus error", no file system is full now, since the files in
/dev/shm are gone with the processes, and /dev/shm has 64 MiB: "/dev/shm has only 64 MiB in all: start the container with
--shm-size". Each clause has its remedy, because it is a part of every sentence about that end.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable
from typing import Final

from supervisor.records import Record

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  its name, nothing is written there
_NO_ROOM: Final = r"No space left on device|Disk quota exceeded|\[?Errno (?:28|122)\b"
_LINES: Final = re.compile(rf"{_NO_ROOM}|Bus error|shared memory", re.IGNORECASE)
_REMEDY: Final = "make room (df -h, df -i)"
_SHARED: Final = re.compile(r"Bus error|shared memory|</torch_", re.IGNORECASE)
_MIB: Final = 1 << 20
_SMALL_BYTES: Final = 1 << 30


class Disk(Record):
    """A file system, by the directory that leads to it."""

    place: str
    size_bytes: int
    free_bytes: int
    has_inodes: bool = True


def suspected(signal: int | None, last_lines: Iterable[str]) -> bool:
    """Whether the end may be one for lack of room."""
    return signal == signals.SIGBUS or any(_LINES.search(line) for line in last_lines)


def with_remedy(error: str) -> str:
    """A failed write's error, with the remedy if there was no room."""
    return f"{error}: {_REMEDY}" if re.search(_NO_ROOM, error, re.IGNORECASE) and _REMEDY not in error else error


def clause(signal: int | None, last_lines: tuple[str, ...], disks: tuple[Disk, ...]) -> str:
    """The file system that had no room, as a clause; empty if that is not known."""
    if not suspected(signal, last_lines):
        return ""
    said = "\n".join(line for line in last_lines if _LINES.search(line))
    full = [disk for disk in disks if not disk.has_inodes or disk.free_bytes < max(_MIB, disk.size_bytes // 100)]
    for disk in [disk for disk in disks if disk.place in said] + full:
        if not disk.has_inodes:
            return f"{disk.place} has no free inode: remove files there"
        now = "is full: make room there" if disk in full else f"had no room, {disk.free_bytes / _MIB:,.0f} MiB are free now"
        return f"{disk.place} ({disk.size_bytes / _MIB:,.0f} MiB) {now}"
    if signal == signals.SIGBUS or _SHARED.search(said):
        for disk in disks:
            if disk.place == SHARED_MEMORY and disk.size_bytes < _SMALL_BYTES:
                return f"{disk.place} has only {disk.size_bytes / _MIB:,.0f} MiB in all: start the container with --shm-size"
    return ""
