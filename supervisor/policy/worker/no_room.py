"""Which file system had no room, where a program died of that: SIGBUS, ENOSPC or EDQUOT.

SIGBUS names nothing: the kernel sends it for a store into a mapped page that the file system cannot provide. Most often that
is /dev/shm, of which a container has 64 MiB, and through which the processes of a data loader pass their batches.

The rule, for an end by SIGBUS, or whose last lines say that there was no room; the first match wins:

1. a file system whose path is in those lines;
2. one with less than a hundredth of its size or 1 MiB left;
3. /dev/shm, if it has less than 1 GiB in all and the end was SIGBUS or the lines speak of shared memory.

Worked example: "DataLoader worker (pid 61) is killed by signal: Bus error", no file system is full now, since the files in
/dev/shm are gone with the processes, and /dev/shm has 64 MiB: "/dev/shm has only 64 MiB in all".
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable
from typing import Final

from supervisor.records import dataclass

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  its name, nothing is written there
_LINES: Final = re.compile(
    r"No space left on device|Disk quota exceeded|\[?Errno (?:28|122)\b|Bus error|shared memory", re.IGNORECASE
)
_SHARED: Final = re.compile(r"Bus error|shared memory|</torch_", re.IGNORECASE)
_MIB: Final = 1 << 20
_SMALL_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system, by the directory that leads to it."""

    place: str
    size_bytes: int
    free_bytes: int

    @property
    def is_full(self) -> bool:
        return self.free_bytes < max(_MIB, self.size_bytes // 100)


def suspected(signal: int | None, last_lines: Iterable[str]) -> bool:
    """Whether the end may be one for lack of room."""
    return signal == signals.SIGBUS or any(_LINES.search(line) for line in last_lines)


def clause(signal: int | None, last_lines: tuple[str, ...], disks: Iterable[Disk]) -> str:
    """The file system that had no room, as a clause; empty if that is not known."""
    if not suspected(signal, last_lines):
        return ""
    said = "\n".join(line for line in last_lines if _LINES.search(line))
    of = {disk.place: disk for disk in disks}
    named = [disk for disk in of.values() if re.search(re.escape(disk.place) + r"(?:/|\b)", said)]
    found = max(named, key=lambda disk: len(disk.place), default=None)
    found = found or next((disk for disk in of.values() if disk.is_full), None)
    if found is not None:
        now = "is full" if found.is_full else f"had no room, {_size(found.free_bytes)} are free now"
        return f"{found.place} ({_size(found.size_bytes)}) {now}"
    shared = of.get(SHARED_MEMORY)
    if shared is None or shared.size_bytes >= _SMALL_BYTES or not (signal == signals.SIGBUS or _SHARED.search(said)):
        return ""
    return f"{SHARED_MEMORY} has only {_size(shared.size_bytes)} in all: start the container with more (--shm-size)"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:,.0f} MiB"
