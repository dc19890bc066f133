"""What one worker may take of the box, where it has a cgroup of its own: memory, tasks, and its share of the processors.

The rule:

* **Memory** is limited where the level says what one program is given (`memory_mb`), and nowhere else: a limit that was
  guessed kills a training that was well. From `memory_mb` on the kernel takes pages back and slows the worker down
  (memory.high); beyond it by `memory_slack` the kernel ends its whole tree (memory.max, memory.oom.group): that is the
  worker's own fault then, told as `oom_killed` with its limit, and not another program's misfortune.
* **Tasks**, threads included, have a limit always (`pids_max`): what forks without end takes nobody else's.
* **Processors** are shared out by weight, worker against worker, whatever number of threads each one starts: a program's
  `cpu_weight`, else that of [cgroups].

Worked example: level heavy with memory_mb = 6000 and the usual slack of a tenth: slowed from 6,000 MiB on, ended at
6,600 MiB. A program with cpu_weight = 200 gets two thirds of the cores beside one with 100, when both want all of them.

Why not memory.max alone: it takes a worker in the middle of a step for one page too many, without a sign before; between
the two its pressure (PSI) tells. Why not memory.high alone: a worker that leaks then crawls for hours, looks like a stall,
and is killed as one. Why the whole tree: a training whose environment process is gone waits for it for ever.
An attempt keeps the limits that it was started with: those of a smaller level would kill it while it saves to make room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MB: Final = 2**20


@dataclass(frozen=True, slots=True)
class CgroupSettings:
    """`[cgroups]` in the config. `use` and `parent` are read at the daemon's start, the rest at a program's."""

    use: bool = True
    parent: str = ""  # a directory of cgroup v2 that is ours alone; empty: the service's own, where it was delegated
    memory_slack: float = 0.1
    pids_max: int = 8192
    cpu_weight: int = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one attempt. None: not limited."""

    memory_high_bytes: int | None
    memory_max_bytes: int | None
    pids_max: int
    cpu_weight: int


def limits(settings: CgroupSettings, *, memory_mb: int | None, cpu_weight: int | None) -> Limits:
    """`memory_mb` is the level's, `cpu_weight` the program's own; None: it says nothing."""
    high = None if memory_mb is None else memory_mb * _MB
    return Limits(
        memory_high_bytes=high,
        memory_max_bytes=None if high is None else int(high * (1 + settings.memory_slack)),
        pids_max=settings.pids_max,
        cpu_weight=settings.cpu_weight if cpu_weight is None else cpu_weight,
    )
