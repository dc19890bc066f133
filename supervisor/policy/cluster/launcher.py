"""Where programs run: `[launcher]` in the config.

`kind = "local"`, the default, is this machine. With `kind = "slurm"` each attempt of a program is a job of a Slurm
cluster (`adapters/slurm/`), and a level's slots are the number of jobs at once, in the queue or running.

A job's time is limited. `signal_lead_s` before the limit Slurm signals the job, which saves and leaves, and the next job
resumes there. So the lead must be longer than a save takes: with 120 s and a save of 20 s no work is lost. With 10 s the
job is killed in the middle of its save, and the work since the previous checkpoint is lost.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

from supervisor.records import dataclass

LOCAL: Final = "local"
SLURM: Final = "slurm"
KINDS: Final = (LOCAL, SLURM)
LEAST_PATIENCE_S: Final = 10.0
"""The lowest stall limit of a job. A node writes its report every 2 s, the daemon samples every second, and a shared file
system may delay both by some seconds: with a limit of 2 s each healthy job would be killed."""


@dataclass(frozen=True, slots=True)
class LauncherSettings:
    """`[launcher]` in the config. Empty and None: not requested, so the cluster's own default applies."""

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
    options: str = ""  # options of sbatch, one a line
    arrays: bool = True  # programs of a group that start together are one array
    poll_s: float = 10.0
    settle_s: float = 120.0
    node_faults: int = 3
    node_exclude_s: float = 86400.0

    @property
    def remote(self) -> bool:
        """Whether programs run on other hosts than the daemon."""
        return self.kind != LOCAL


@dataclass(frozen=True, slots=True)
class JobResources:
    """`[levels.NAME.launcher]`: the resources that the jobs of a level request in place of `[launcher]`. None: as there.

    A level sets the number of jobs at once (`slots`), their size (`num_envs`, `batch_size`), and here their resources.
    Worked example: `[launcher]` has one GPU on partition a100, and heavy has `gpus = 2` and `cpus = 32`: its jobs request
    two GPUs and 32 processors on a100. GPUs are requested in one way only: `gres` of a level replaces `gpus` of [launcher],
    and the other way round.

    A program keeps the resources that it was started with. So a change of level that changes them asks the program to save
    and leave, and submits it anew. A job that waits in the queue is deleted and submitted anew at once.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    time_limit_s: float | None = None

    def over(self, settings: LauncherSettings) -> LauncherSettings:
        """The launcher settings of a job at this level."""
        given = self.given()
        if "gpus" in given:
            given.setdefault("gres", "")
        elif "gres" in given:
            given["gpus"] = 0
        return replace(settings, **given)

    def then(self, above: dict[str, Any]) -> JobResources:
        """The resources of the next level up: the keys in `above`, and the others from this level."""
        if "gpus" in above or "gres" in above:
            above = {"gpus": None, "gres": None, **above}
        return replace(self, **above)

    def given(self) -> dict[str, Any]:
        """The keys that are set, with their values."""
        return {key: value for key, value in asdict(self).items() if value is not None}
