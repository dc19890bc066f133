"""The state of Slurm's queue, and the row of an attempt's job in it."""

from __future__ import annotations

from dataclasses import field

from supervisor.adapters.slurm.arrays import Arrays
from supervisor.adapters.slurm.client import Jobs
from supervisor.adapters.slurm.job_attempt import token_after
from supervisor.adapters.slurm.script import Tag, array_of
from supervisor.policy.cluster.jobs import Job
from supervisor.records import dataclass


@dataclass(slots=True)
class QueueState:
    """The newest answer from Slurm, with its indexes."""

    absent: frozenset[str] = frozenset()
    unread: str = ""  # why the state of other missing targets is unknown (`client.Jobs`)
    by_target: dict[str, Job] = field(default_factory=dict)
    tags: dict[str, Tag] = field(default_factory=dict)  # by target
    unknown: list[tuple[Job, bool]] = field(default_factory=list)  # our array tasks whose attempt is unknown (`Arrays.tags`)
    by_submit_token: dict[str, list[Job]] = field(default_factory=dict)
    arrays: dict[str, set[int]] = field(default_factory=dict)  # job ids of the rows in the answer, by the array's token


def queue_state(arrays: Arrays, answer: Jobs) -> QueueState:
    """An answer with its indexes. The tables of `arrays` map the tasks of arrays to attempts."""
    tagged, unknown = arrays.tags(answer.found)
    by_submit_token: dict[str, list[Job]] = {}
    for row, tag in tagged:
        by_submit_token.setdefault(tag.token, []).append(row)
    by_array: dict[str, set[int]] = {}
    for row in answer.found:
        if (array := array_of(row.comment)) is not None:
            by_array.setdefault(array.token, set()).add(row.id)
    return QueueState(
        answer.absent, answer.unread, {row.target: row for row in answer.found},
        {row.target: tag for row, tag in tagged},
        [each for each in unknown if not each[0].ended], by_submit_token, by_array,
    )  # fmt: skip


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
