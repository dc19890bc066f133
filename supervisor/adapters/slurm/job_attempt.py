"""What the launcher of a Slurm cluster knows about an attempt and its job."""

from __future__ import annotations

from supervisor.adapters.slurm.script import Terms
from supervisor.model.inputs import JobSight
from supervisor.model.settings import ProgramSpec
from supervisor.policy.cluster.jobs import Job
from supervisor.records import Record, dataclass
from workers import contract


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
        row.gpus, row.start_expected_at_wall_s, attempt.began_s is not None,
    )  # fmt: skip
