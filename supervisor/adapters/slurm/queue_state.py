"""The state of Slurm's queue, and the row of an attempt's job in it."""

from __future__ import annotations

from dataclasses import field

from supervisor.adapters.slurm.client import Jobs
from supervisor.adapters.slurm.job_attempt import token_after
from supervisor.adapters.slurm.script import Tag, tag_of
from supervisor.policy.cluster.jobs import Job
from supervisor.records import dataclass


@dataclass(slots=True)
class QueueState:
    """The newest answer from Slurm, with its indexes."""

    absent: frozenset[str] = frozenset()
    unread: str = ""  # why the state of other missing targets is unknown (`client.Jobs`)
    by_target: dict[str, Job] = field(default_factory=dict)
    tags: dict[str, Tag] = field(default_factory=dict)  # by target
    by_submit_token: dict[str, list[Job]] = field(default_factory=dict)


def queue_state(answer: Jobs) -> QueueState:
    """An answer with its indexes."""
    tagged = [(row, tag) for row in answer.found if (tag := tag_of(row.comment)) is not None]
    by_submit_token: dict[str, list[Job]] = {}
    for row, tag in tagged:
        by_submit_token.setdefault(tag.token, []).append(row)
    by_target = {row.target: row for row in answer.found}
    return QueueState(answer.absent, answer.unread, by_target, {row.target: tag for row, tag in tagged}, by_submit_token)


def row_of(queue: QueueState, mark: str, program: str, number: int, token: str) -> tuple[Job, Tag] | None:
    """The row and tag of an attempt's job.

    It was submitted for this attempt, or for an earlier one that Slurm has restarted since.
    """
    for target, tag in queue.tags.items():
        if (tag.mark, tag.program) != (mark, program) or tag.attempt > number:
            continue
        if token_after(tag.token, min(number - tag.attempt, 1000)) == token:
            return queue.by_target[target], tag
    return None
