"""Slurm's data about jobs, nodes and partitions. None is "not known", never zero."""

from __future__ import annotations

from typing import Final

from supervisor.records import Record

ENDED: Final = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
        "TIMEOUT",
    }
)  # fmt: skip
"""States in which no process of a job runs any more, and none will start unless somebody requeues the job."""

WAITING: Final = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
"""States in which a job waits in the queue."""

SUSPENDED: Final = frozenset({"SUSPENDED", "STOPPED"})
"""States in which a job has a node, but none of its processes runs: another job has its turn, or somebody suspended it."""


class Job(Record):
    """One job.

    `state` is the single word that `squeue` prints, `COMPLETING` while its processes exit. `nodes` are single names.
    `exit_code` and `signal` are known once the job has ended. `restarts` counts how often Slurm requeued it.
    """

    id: int
    name: str = ""
    comment: str = ""
    state: str = "UNKNOWN"
    reason: str = ""
    nodes: tuple[str, ...] = ()
    partition: str = ""
    account: str = ""
    qos: str = ""
    start_expected_at_wall_s: float | None = None  # Slurm's own estimate, for a job that waits
    exit_code: int | None = None
    signal: int | None = None
    restarts: int | None = None
    gpus: int | None = None
    time_limit_s: float | None = None  # None: not known, or none is set

    @property
    def target(self) -> str:
        """Its name for scancel and scontrol."""
        return str(self.id)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def waiting(self) -> bool:
        return self.state in WAITING

    @property
    def suspended(self) -> bool:
        return self.state in SUSPENDED


class Node(Record):
    """One node. `states` are Slurm's words without their marks: `("down", "not_responding")` for `down*`."""

    name: str
    states: tuple[str, ...] = ()
    reason: str = ""
    partitions: tuple[str, ...] = ()
    cpus: int | None = None
    gpus: int | None = None


class Partition(Record):
    """One partition. `time_limit_s` None: no limit, or not known."""

    name: str
    default: bool = False
    up: bool | None = None
    time_limit_s: float | None = None
    nodes: int | None = None
