"""Where programs run: `[launcher]` in the config.

`kind = "local"`, the default, is this machine. With `kind = "slurm"` each attempt of a program is a job of a Slurm cluster
(`adapters/slurm/`), and a level's slots say how many jobs there are at once, in the queue or running.

A job's time is limited. `signal_lead_s` before the limit Slurm signals the job, which saves and leaves, and the next job
goes on from there. So the lead must be longer than a save takes: with 120 s and a save of 20 s nothing is lost, with 10 s
the job is killed in the middle of its save and the work since the checkpoint before is lost.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

from supervisor.records import dataclass

LOCAL: Final = "local"
SLURM: Final = "slurm"
KINDS: Final = (LOCAL, SLURM)
LEAST_PATIENCE_S: Final = 10.0
"""The shortest limit on progress of a job. A node writes its report every 2 s, the daemon samples every second, and a file
system that many hosts share may take some seconds for either: with 2 s each healthy job would be killed."""


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
    """`[levels.NAME.launcher]`: what the jobs of a level ask for in place of `[launcher]`. None: as there.

    A level says how many jobs there are at once (`slots`), at which size (`num_envs`, `batch_size`), and here with which
    resources. Worked example: `[launcher]` has one GPU on partition a100, and heavy has `gpus = 2` and `cpus = 32`: its
    jobs ask for two GPUs and 32 processors on a100. GPUs are asked for in one way: `gres` of a level replaces `gpus` of
    [launcher], and the other way round.

    They belong to what a program is started with, so a change of level that changes them asks the program to save and
    leave, and submits it anew. A job that waits in the queue is deleted and submitted anew at once.
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
        """What a job of this level asks for."""
        given = self.given()
        if "gpus" in given:
            given.setdefault("gres", "")
        elif "gres" in given:
            given["gpus"] = 0
        return replace(settings, **given)

    def then(self, above: dict[str, Any]) -> JobResources:
        """Those of the next level, which gives these keys and has the others from here."""
        if "gpus" in above or "gres" in above:
            above = {"gpus": None, "gres": None, **above}
        return replace(self, **above)

    def given(self) -> dict[str, Any]:
        """The keys that are set."""
        return {key: value for key, value in asdict(self).items() if value is not None}
