"""Out of memory: how this cause is recognized, and what changes in the next attempt.

The first match wins:

| observation | cause |
|---|---|
| a SIGKILL that extralife did not send, and the kernel's log names this pid | `oom_killed` |
| a SIGKILL that extralife did not send, and the OOM killer acted in its cgroup (or a shared one) meanwhile | `oom_killed` |
| exit code 71 of a program of the contract | `out_of_memory`, or `cuda_out_of_memory` by its last lines |
| another failure whose last error is MemoryError, numpy's, torch's allocator, `bad_alloc` or ENOMEM | `out_of_memory` |
| another failure whose last error is torch's OutOfMemoryError or CUDA's | `cuda_out_of_memory` |

Only the last error decides: a program may catch a MemoryError and then die of another error. A worker with a cgroup of
its own (`confinement.py`) has a kill counter of its own. Other workers share a counter, so each kill is attributed to one
attempt only: kills that explain earlier deaths do not count again.

The answer is the same to all three causes: the next attempt gets a smaller batch. The level remembers it until the
program's own settings or the settings of this level change, or until an operator starts the program. The first smaller
batch is the program's `fallback_batch`, if it has one. After that, and without one, it is the next smaller batch that
divides the failed one. If the failed batch is a multiple of 8, so is the next one. Worked example: Pong at level heavy with
batch 2048 runs out of memory: 1024, the same for every later start at this level, also after a while at level light, which
keeps its 512. Out of memory again: 512. 24 -> 8, and 8 -> none: then the program is restarted unchanged, after a growing
wait. A fallback_batch that is not smaller than the failed batch is skipped.

Why not the same start again: it needs the same memory. Why not fewer environments: the learner's peak memory depends on the
batch, and a divisor keeps every other setting valid.
"""

from __future__ import annotations

import re
from typing import Final

OUT_OF_MEMORY: Final = "out_of_memory"
CUDA_OUT_OF_MEMORY: Final = "cuda_out_of_memory"
OOM_KILLED: Final = "oom_killed"
CAUSES: Final = frozenset({OUT_OF_MEMORY, CUDA_OUT_OF_MEMORY, OOM_KILLED})
MULTIPLE: Final = 8

# The form of the last line of a traceback, or of C++'s terminate(): "package.module.SomeError: text".
_ERROR: Final = re.compile(
    r"(?:workers: out of memory|terminate called|[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b)"
)
_GPU: Final = re.compile(
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|out of memory \(gpu\)"
)
_HOST: Final = re.compile(
    r"^(?:\w+\.)*(?:MemoryError|_ArrayMemoryError)\b|can't allocate memory|bad_alloc|\[Errno 12\]|out of memory \(host\)"
)


def of_last_lines(lines: tuple[str, ...]) -> str | None:
    """The cause, when the last error in these lines is an out-of-memory error; None: it is not."""
    last = next((line.strip() for line in reversed(lines) if _ERROR.match(line.strip())), "")
    if _GPU.search(last):
        return CUDA_OUT_OF_MEMORY
    return OUT_OF_MEMORY if _HOST.search(last) else None


def kills(oom_kills: tuple[int, int] | None, accounted: int | None) -> int | None:
    """The number of kills in the cgroup during the attempt that no earlier death explains; None: not known.

    `accounted` is the kill count up to which earlier deaths explain the kills. Example: the count was 3 before and is 5 now,
    and another death since then explains the fourth kill: 1. A count lower than `accounted` is from another cgroup.
    """
    if oom_kills is None:
        return None
    before, after = oom_kills
    return after - (before if accounted is None or accounted > after else max(before, accounted))


def oom_kill(
    *, line: str, oom_kills: tuple[int, int] | None, accounted: int | None, own: bool = False, limit_bytes: int | None = None
) -> str:
    """The evidence after a SIGKILL that the kernel's OOM killer sent it; empty: none.

    `own`: the count is of a cgroup that only this worker uses, with `limit_bytes` of memory (None: without a limit).
    """
    if line:
        return line
    if own:
        told = "the box had no memory left" if limit_bytes is None else f"its limit is {limit_bytes >> 20:,} MiB"
        return f"it acted in the worker's own cgroup ({told})" if (kills(oom_kills, None) or 0) > 0 else ""
    if (kills(oom_kills, accounted) or 0) > 0:
        return "it acted in a cgroup that the worker shares, while it ran"
    return ""


def accounted_after(oom_kills: tuple[int, int] | None, accounted: int | None, *, killed: bool) -> int | None:
    """The kill count explained by ended attempts, after this end: one kill more if `killed`, else all kills so far."""
    left = kills(oom_kills, accounted)
    if oom_kills is None or left is None:
        return accounted
    return oom_kills[1] - max(0, left - 1) if killed else oom_kills[1]


def next_batch(batch_size: int) -> int | None:
    """The next smaller batch that divides this one; None when there is none. 2048 -> 1024, 96 -> 48, 24 -> 8, 100 -> 50."""
    unit = MULTIPLE if batch_size % MULTIPLE == 0 else 1
    return next((size for size in range(batch_size // 2 // unit * unit, 0, -unit) if batch_size % size == 0), None)


def smaller_batch(ran_with: int, *, fallback: int | None, lowered: bool) -> int | None:
    """The batch after `ran_with`; `lowered`: it was lowered at this level before. None: there is no smaller one."""
    if fallback is not None and not lowered and fallback < ran_with:
        return fallback
    return next_batch(ran_with)
