"""Where programs run: `[launcher]` in the config.

`kind = "local"`, the default, is this machine. With `kind = "slurm"` each attempt of a program is a job of a Slurm cluster
(`adapters/slurm/`), and a level's slots say how many jobs there are at once, in the queue or running.

A job's time is limited. `signal_lead_s` before the limit Slurm signals the job, which saves and leaves, and the next job
goes on from there. So the lead must be longer than a save takes: with 120 s and a save of 20 s nothing is lost, with 10 s
the job is killed in the middle of its save and the work since the checkpoint before is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOCAL: Final = "local"
SLURM: Final = "slurm"
KINDS: Final = (LOCAL, SLURM)


@dataclass(frozen=True, slots=True)
class LauncherSettings:
    """`[launcher]` in the config. Empty and None: not asked for, so that the cluster's own default holds."""

    kind: str = LOCAL
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    gpus: int = 0
    cpus: int = 4
    memory_mb: int | None = None
    time_limit_s: float = 4 * 3600.0
    signal_lead_s: float = 120.0
    setup: str = ""  # lines of shell
    options: str = ""  # of sbatch, one a line
    poll_s: float = 10.0
    settle_s: float = 120.0
    node_faults: int = 3
    node_exclude_s: float = 86400.0

    @property
    def remote(self) -> bool:
        """Whether programs run on other hosts than the daemon."""
        return self.kind != LOCAL
