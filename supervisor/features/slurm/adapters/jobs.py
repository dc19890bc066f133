"""The jobs of a Slurm cluster as the launcher knows them: attempts, the queue's rows, and how an attempt ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from supervisor.adapters.process import endings
from supervisor.features.slurm.adapters.client import Jobs
from supervisor.features.slurm.adapters.report import NodeReport
from supervisor.features.slurm.adapters.script import OUTPUT_FILE, Tag, Terms, tag_of
from supervisor.features.slurm.messages import JobSight
from supervisor.features.slurm.rules.job_end import JobEnd
from supervisor.features.slurm.rules.jobs import Job
from supervisor.files import read_bounded
from supervisor.model.inputs import Ending
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script.figures import Figures
from supervisor.ports import Clock, ahead_s
from supervisor.records import Record, replace
from workers import contract

_OUTPUT_BYTES: Final = 16_384
_OUT_OF_MEMORY: Final = re.compile(rb"(?im)^slurmstepd.* exceeded (job )?memory limit|^slurmstepd.* oom[-_ ]kill")


@dataclass(slots=True)
class JobAttempt:
    """One attempt that has been submitted as a job, or is about to be."""

    program: str
    number: int
    token: str
    submit_token: str  # the token in the job's comment: it names the attempt for which the job was submitted
    restart: int = 0  # number of times that Slurm had restarted the job when this attempt began
    job: str | None = None
    unanswered_s: float | None = None  # since then it is unknown whether the job was submitted
    submitting: bool = True
    row: Job | None = None
    began_s: float | None = None  # when the job was first seen on a node
    spawned: bool = False  # a report of the node shows that its worker has run
    over_s: float | None = None  # when Slurm first showed its end
    missing_s: float | None = None  # since then Slurm does not list its job, and nobody can say whether it has ended
    unread: str = ""  # why nobody can say it
    report_ns: int | None = None  # stamp of its node's last report, as long as Slurm does not list its job
    leaving: bool = False
    leave_sent: bool = False  # Slurm has answered the signal that asks the job to leave
    killed: bool = False
    refused: str = ""  # Slurm's words when it refused to delete the job
    given_up: bool = False  # we deleted the job because its node never started the program


class RequeuedJob(Record):
    """A job that Slurm has put back into its queue, and the next attempt, which continues in that job."""

    job: str
    submit_token: str
    restart: int
    token: str
    since_s: float


class SubmitRequest(Record):
    """A request to submit one attempt."""

    attempt: JobAttempt
    spec: ProgramSpec
    terms: Terms


def token_after(token: str, restarts: int) -> str:
    for _ in range(restarts):
        token = contract.next_token(token)
    return token


def job_sight(attempt: JobAttempt) -> JobSight:
    row = attempt.row
    if row is None:
        state = "UNKNOWN" if attempt.unread else "PENDING"
        return JobSight(attempt.token, str(attempt.job), state, attempt.unread)
    state, reason = ("UNKNOWN", attempt.unread) if attempt.unread else (row.state, row.reason)
    return JobSight(
        attempt.token, row.target, state, reason, row.nodes[0] if row.nodes else "", row.partition, row.account,
        row.gpus, row.start_expected_at_wall_s, attempt.began_s is not None, attempt.refused,
    )  # fmt: skip


# --- the queue ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class QueueState:
    """The newest answer from Slurm, with its indexes."""

    absent: frozenset[str] = frozenset()
    unread: str = ""  # why the state of other missing targets is unknown (`client.Jobs`)
    by_target: dict[str, Job] = field(default_factory=dict)
    tags: dict[str, Tag] = field(default_factory=dict)  # by target
    by_submit_token: dict[str, list[Job]] = field(default_factory=dict)


def queue_state(answer: Jobs) -> QueueState:
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


# --- the end ------------------------------------------------------------------------------------------------------------


def read_ending(
    paths: Paths, clock: Clock, shown: Callable[[str, str, float, tuple[int, int]], Figures], attempt: JobAttempt,
    state: str, node_report: NodeReport | None, *, requeued: bool, next_token: str,
) -> Ending:  # fmt: skip
    """The end of an attempt whose job Slurm shows in this state; empty: Slurm no longer lists the job.

    `shown`: the figures in an attempt's own output (`FigureReader.last`).
    """
    journal_s: Callable[[int], float] | None = None
    logs_from = (0, 0)
    if node_report is not None:  # without one, the clocks of both hosts were never compared
        offset_s = node_report.wall_s - ahead_s(clock) - node_report.at_ns / 1e9
        journal_s, logs_from = (lambda at_ns: at_ns / 1e9 + offset_s), node_report.logs_from
    args = paths, attempt.program, attempt.number, attempt.token, logs_from, journal_s
    try:
        ending = endings.read_ending(*args)
        if ending is None:
            what = "left no exit record" if attempt.spawned else "ended before its program began"
            fate = f"its job {attempt.job} {what} ({state or 'Slurm no longer lists the job'})"
            ending = endings.without_record(*args, fate=fate)
        if ending.steps is None:
            since_wall_s = clock.wall_s() if node_report is None else node_report.since_wall_s
            ending = replace(ending, shown=shown(attempt.program, attempt.token, since_wall_s, logs_from))
    except Exception as error:  # noqa: BLE001  an end that is never posted would block the program for ever
        ending = Ending(fate=f"its end could not be read: {type(error).__name__}: {error}")
    row = attempt.row
    node = node_report.node if node_report is not None else (row.nodes[0] if row is not None and row.nodes else "")
    job = JobEnd(
        str(attempt.job or "?"), "LAUNCH_FAILED" if attempt.given_up else _by_output(paths, attempt, state),
        "" if row is None else row.reason, node, requeued, "" if node_report is None else node_report.asked,
        attempt.spawned, next_token,
    )  # fmt: skip
    return replace(ending, oom_line="", oom_kills=None, job=job)


def _by_output(paths: Paths, attempt: JobAttempt, state: str) -> str:
    """The job's state, corrected to OUT_OF_MEMORY if its output shows that.

    Where memory is limited without cgroups, Slurm kills a job and reports FAILED. Only the output contains the reason.
    """
    if state != "FAILED":
        return state
    first = attempt.number - attempt.restart  # the number of the job's first attempt
    directory = paths.attempt_dir(attempt.program, first, attempt.submit_token)
    text = read_bounded(f"{directory}/{OUTPUT_FILE.format(attempt.job)}", _OUTPUT_BYTES)
    return "OUT_OF_MEMORY" if _OUT_OF_MEMORY.search(text) else state
