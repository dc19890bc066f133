"""What one worker may take of the box, where it has a cgroup of its own: memory, tasks, and its share of the processors.

The rule:

* **Memory** is limited where the level says what one program is given (`memory_mb`), and nowhere else: a limit that was
  guessed kills a training that was well. A worker that wants more is ended by the kernel with its whole tree (memory.max,
  memory.oom.group): it is recorded as `oom_killed` with its limit, and no other program suffers.
  With a `memory_slack` it is slowed down at `memory_mb` already (memory.high) and ended beyond it by that share.
* **Tasks**, threads included, always have a limit (`pids_max`): endless forks do not affect other programs.
* **Processors** are shared out by weight, worker against worker, whatever number of threads each one starts: a program's
  `cpu_weight`, else that of [cgroups].

Worked example: level heavy with memory_mb = 6000: ended at 6,000 MiB. With memory_slack = 0.1: slowed from 6,000 MiB on,
ended at 6,600. A program with cpu_weight = 200 gets two thirds of the cores beside one with 100, when both want all of them.

Why no slack unless it is asked for: what grows beyond memory.high is not ended, it crawls (measured without swap: 95 % of
the time waiting, for minutes, 1 % below its limit), looks like a stall, is killed as one and started with the same batch.
Why the whole tree: a training whose environment process is gone waits for it for ever.
An attempt keeps the limits that it was started with: those of a smaller level would kill it while it saves to make room.
"""

from __future__ import annotations

from typing import Final

from supervisor.records import dataclass

_MB: Final = 2**20


@dataclass(frozen=True, slots=True)
class CgroupSettings:
    """`[cgroups]` in the config. `use` and `parent` are read at the daemon's start, the rest at a program's."""

    use: bool = True
    parent: str = ""  # a directory of cgroup v2 that is ours alone; empty: the service's own, where it was delegated
    memory_slack: float = 0.0
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
