"""Where programs run: `[launcher]` in the config.

`kind = "local"`, the default, is this machine. With `kind = "slurm"` each attempt of a program is a job of a Slurm
cluster (`adapters/`), and a level's slots are the number of jobs at once, in the queue or running.

A job's time is limited. `signal_lead_s` before the limit Slurm signals the job, which saves and leaves, and the next job
resumes there. So the lead must be longer than a save takes: with 120 s and a save of 20 s no work is lost.
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import Any, Final

from supervisor.discovery import Extended
from supervisor.keys import key
from supervisor.model.launching import Launching
from supervisor.records import Record

LOCAL: Final = "local"
SLURM: Final = "slurm"
KINDS: Final = (LOCAL, SLURM)
LEAST_PATIENCE_S: Final = 10.0
"""The lowest stall limit of a job. A node writes its report every 2 s, the daemon samples every second, and a shared file
system may delay both by some seconds: with a limit of 2 s each healthy job would be killed."""
_WORD: Final = "[A-Za-z0-9_.@+-]{1,64}"


class LauncherSettings(Launching):
    """`[launcher]` in the config. Empty and None: not requested, so the cluster's own default applies."""

    kind: str = key(
        LOCAL, "`local`: programs run on this machine; `slurm`: each start of a program is a job of a Slurm cluster",
        choices=KINDS,
    )  # fmt: skip
    partition: str = key(
        "", "partition of the jobs; empty: the cluster's default",
        form="the name of a partition, or several with commas between them", pattern=f"({_WORD}(,{_WORD})*)?",
    )  # fmt: skip
    account: str = key(
        "", "account that the jobs are charged to; empty: your default account",
        form="the name of an account", pattern=f"({_WORD})?",
    )  # fmt: skip
    qos: str = key(
        "", "quality of service of the jobs; empty: the account's default",
        form="the name of a quality of service", pattern=f"({_WORD})?",
    )  # fmt: skip
    constraint: str = key(
        "", "features that a node must have, as in `sbatch --constraint`",
        form="features such as a100&nvlink", pattern=r"[A-Za-z0-9_.&|*!\[\](),:-]{0,200}",
    )  # fmt: skip
    gres: str = key(
        "", "generic resources in Slurm's own words, such as `gpu:a100:1`, in place of `gpus`",
        form="generic resources such as gpu:a100:1", pattern="[A-Za-z0-9_.:,/=()-]{0,200}",
    )  # fmt: skip
    gpus: int = key(0, "GPUs of each job", low=0, high=64)
    cpus: int = key(
        4, "processors of each job; also the threads of a built-in program, unless its level says otherwise", high=4096
    )
    memory_mb: int | None = key(None, "memory of each job in MiB", high=100_000_000, unset="the partition's default")
    time_limit_s: float = key(
        4 * 3600.0, "time limit of each job, rounded up to minutes; the next job continues where it ends", low=60
    )
    signal_lead_s: float = key(
        120.0, "time before its time limit at which a job saves and exits; must be longer than a save takes",
        low=5, high=65_535, up_to="time_limit_s",
    )  # fmt: skip
    setup: str = key(
        "", "lines of shell that each job runs first, such as `module load conda` and `conda activate rl`; "
        "a line that fails ends the job",
    )  # fmt: skip
    options: str = key("", "more options of sbatch, one a line, such as `--reservation=night`")
    poll_s: float = key(10.0, "time between two polls of the queue", low=0.5, high=3600)
    settle_s: float = key(
        120.0, "time to search for a job whose submission got no answer, before it counts as not submitted"
    )
    node_faults: int = key(3, "number of faults of one node after which new jobs avoid it", high=1000)
    node_exclude_s: float = key(86400.0, "time for which new jobs avoid a node with too many faults")

    @property
    def remote(self) -> bool:
        return self.kind != LOCAL

    def asks_gpu(self, spec: Extended) -> str:
        job = spec.of(NextJob).resources.over(self)
        return f"launcher.gpus = {job.gpus}" if job.gpus else job.gres if "gpu" in job.gres else ""


class JobResources(Record):
    """`[levels.NAME.launcher]`: the resources that the jobs of a level request in place of `[launcher]`. None: as there.

    A level sets the number of jobs at once (`slots`), their size (`num_envs`, `batch_size`), and here their resources.
    Worked example: `[launcher]` has one GPU on partition a100, and heavy has `gpus = 2` and `cpus = 32`: its jobs request
    two GPUs and 32 processors on a100. GPUs are requested in one way only: `gres` of a level replaces `gpus` of [launcher],
    and the other way round. A program keeps the resources that it was started with. So a change of level that changes them
    asks the program to save and leave, and submits it anew. A job that waits in the queue is submitted anew at once.
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

    def __str__(self) -> str:
        """Its part of a level's identity."""
        return ", ".join(f"{key} {value}" for key, value in self.given().items())


class NextJob(Record):
    """A program's next job: the resources that it requests at this level, and the nodes that it avoids."""

    resources: JobResources = field(default_factory=JobResources)
    avoid: tuple[str, ...] = ()


SECTIONS: Final = {"launcher": LauncherSettings}
LEVEL: Final = {"launcher": JobResources}
PROGRAM: Final = {"job": NextJob}
GONE: Final = {"launcher.arrays": "each seed is a job of its own: remove it"}
ELSEWHERE: Final = {
    r"srun ": (
        "extralife sees neither processes nor memory of its tasks on other nodes, and Slurm's time limit is a crash; "
        'set kind = "slurm" in [launcher]'
    ),
}
