"""What the launcher of jobs posts to the deciding thread."""

from __future__ import annotations

from dataclasses import field

from supervisor.model.inputs import Input
from supervisor.records import Record


class JobSight(Record):
    """The job of one attempt, as the cluster reports it. Empty and None: not known."""

    token: str
    job: str
    state: str = ""
    reason: str = ""
    node: str = ""
    partition: str = ""
    account: str = ""
    gpus: int | None = None
    start_expected_wall_s: float | None = None
    runs: bool = False
    refused: str = ""  # why the cluster refuses to delete it, in its own words


class JobsSeen(Input):
    """One look at the cluster's queue: the jobs by program. After an `error`, `jobs` are those of the last look."""

    jobs: dict[str, JobSight] = field(default_factory=dict)
    error: str = ""
