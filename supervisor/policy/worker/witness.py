"""Whether a program that reports nothing still works: witnesses that need no report from the program.

The rule. For a program without beats or notifications, only its log or its files show progress. Many healthy scripts
print nothing for an hour. So its silence proves nothing. Every few seconds the daemon looks at its whole process tree.
The tree *works* if one of these witnesses shows it; the first one is named:

| witness | it shows work when, since the look before |
|---|---|
| cpu | the tree used 2 % of one core or more, children that have ended included |
| io | the tree read and wrote 16 KiB a second or more |
| files | a file below its own directory was written (by a writer outside of the tree) |
| gpu | the only GPU user of a GPU is this tree, and that GPU was used for 5 % of the newest minute or more |

Worked example: `python train.py` prints nothing and uses 0.98 cores: it works, by its CPU time. `python wait.py` sleeps
in a lock and wakes up ten times a second to look at the clock, which takes 0.1 % of a core: it does not work.

Why not any CPU time at all: a program that hangs often has a thread that wakes up now and then (a monitor, a progress bar,
a logger).

A count that could not be read, or that fell because a process exited, is no witness. Unknown is not work. It is not
silence either, because the other witnesses are asked.
"""

from __future__ import annotations

from typing import Final

from supervisor.records import Record

CPU: Final = "cpu"
IO: Final = "io"
FILES: Final = "files"
GPU: Final = "gpu"

WORDS: Final = {
    CPU: "it uses CPU time",
    IO: "it reads and writes",
    FILES: "files below its directory are written",
    GPU: "it uses its GPU",
}

_CPU_SHARE: Final = 0.02
_IO_BYTES_PER_S: Final = 16 * 1024.0
_GPU_PERCENT: Final = 5.0


class TreeUsage(Record):
    """The resources that a tree has used up to one moment. None: not known."""

    at_s: float
    cpu_s: float | None = None
    io_bytes: int | None = None
    written_ns: int | None = None  # the newest modification time below its directory


def works(before: TreeUsage, now: TreeUsage) -> str:
    """The witness that shows work between two looks; empty: none does."""
    for_s = now.at_s - before.at_s
    if for_s <= 0:
        return ""
    if _grew(before.cpu_s, now.cpu_s) >= _CPU_SHARE * for_s:
        return CPU
    if _grew(before.io_bytes, now.io_bytes) >= _IO_BYTES_PER_S * for_s:
        return IO
    return FILES if _grew(before.written_ns, now.written_ns) > 0 else ""


def _grew(before: float | None, now: float | None) -> float:
    return 0.0 if before is None or now is None else now - before


class GpuUse(Record):
    """One GPU: the processes that hold memory on it, and its utilisation in the newest minute. None: not known."""

    holders: frozenset[int]
    percent: float | None


def works_on_gpu(gpus: tuple[GpuUse, ...], pids: frozenset[int]) -> bool:
    """Whether a GPU on which only these processes hold memory was in use."""
    mine = [gpu.percent for gpu in gpus if gpu.holders and gpu.holders <= pids]
    return any(percent is not None and percent >= _GPU_PERCENT for percent in mine)
