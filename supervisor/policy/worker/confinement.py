"""The limits of one worker that has a cgroup of its own: memory, tasks, and its share of the processors.

The rule:

* **Memory** is limited where the level says how much one program may use (`memory_mb`), and nowhere else: a guessed limit
  would kill a healthy training. When a worker needs more, the kernel ends it with its whole tree (memory.max,
  memory.oom.group). With a `memory_slack`, a worker is slowed down from `memory_mb` on (memory.high), and ended when it
  exceeds `memory_mb` by that share.
* **Tasks**, threads included, always have a limit (`pids_max`): endless forks do not affect other programs.
* **Processors** are shared by weight, worker against worker, whatever number of threads each one starts. The weight is the
  program's `cpu_weight`, else that of [cgroups].

Worked example: level heavy with memory_mb = 6000: ended at 6,000 MiB. A program with cpu_weight = 200 gets two thirds of
the cores beside one with 100, when both want all of them.

Why is there no slack by default: a worker that grows beyond memory.high is not ended, but crawls. That looks like a stall,
so it is killed as one and started with the same batch. An attempt keeps the limits that it was started with: the limits of
a smaller level would kill it while it saves to make room.
"""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record

_MB: Final = 2**20


class CgroupSettings(Record):
    """`[cgroups]` in the config. `use` and `parent` are read when the daemon starts, the rest when a program starts."""

    use: bool = key(
        True, "whether each worker gets a cgroup of its own, if cgroups are delegated to the daemon (docs/box.md)"
    )
    parent: str = key("", "directory of cgroup v2 that only extralife uses; empty: that of its service (Delegate=yes)")
    memory_slack: float = key(
        0.0, "a worker may exceed its level's memory_mb by this share, slowed down; beyond that it is killed", low=0, high=10
    )
    pids_max: int = key(8192, "largest number of processes and threads of one worker", low=16, high=4_194_304)
    cpu_weight: int = key(100, "weight of a program's share of the processors, unless it has its own", high=10_000)


class Limits(Record):
    """The limits of one attempt. None: not limited."""

    memory_high_bytes: int | None
    memory_max_bytes: int | None
    pids_max: int
    cpu_weight: int


def limits(settings: CgroupSettings, *, memory_mb: int | None, cpu_weight: int | None) -> Limits:
    """The limits of an attempt. `memory_mb` is the level's, `cpu_weight` the program's own; None: not configured."""
    high = None if memory_mb is None else memory_mb * _MB
    return Limits(
        memory_high_bytes=high, memory_max_bytes=None if high is None else int(high * (1 + settings.memory_slack)),
        pids_max=settings.pids_max, cpu_weight=settings.cpu_weight if cpu_weight is None else cpu_weight,
    )  # fmt: skip
