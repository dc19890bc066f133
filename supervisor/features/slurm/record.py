"""The record of a cluster that runs programs as jobs: jobs of live attempts, nodes, GPU time by account."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Final

from supervisor.features.slurm.messages import JobSight
from supervisor.features.slurm.rules.job_end import PREEMPTED
from supervisor.features.slurm.rules.nodes import KEPT, Stability, remembered
from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.records import Record, replace


class JobRecord(Record):
    """The job of a program's attempt. Empty and None: the job has no node yet."""

    job: str
    token: str
    submitted_at_s: float
    begun_at_s: float | None = None
    node: str = ""
    partition: str = ""
    account: str = ""
    gpus: int | None = None


class Usage(Record):
    """The use of an account by jobs whose end is on record."""

    jobs: int = 0
    job_s: float = 0.0
    gpu_s: float = 0.0  # of jobs whose number of GPUs is known
    unknown_s: float = 0.0  # seconds of jobs whose number of GPUs is unknown


class ClusterRecord(Record):
    """The whole record. Empty without a cluster."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)  # by program
    next_tokens: dict[str, str] = field(default_factory=dict)  # by program: next attempt in a job that Slurm restarts itself
    faults: dict[str, tuple[float, ...]] = field(default_factory=dict)  # by node, in journal time
    excluded: dict[str, float] = field(default_factory=dict)  # by node: end of the exclusion, in journal time
    nodes: dict[str, Stability] = field(default_factory=dict)
    partitions: dict[str, Stability] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)  # by account
    unreachable_since_s: float | None = None
    error: str = ""

    KINDS: ClassVar = (
        facts.JobSubmitted, facts.JobStarted, facts.JobRequeued, facts.NodeFaulted, facts.NodeExcluded,
        facts.ClusterUnreachable, facts.ClusterReached,
    )  # fmt: skip
    LATER: ClassVar = (facts.SpawnIntended, facts.ProgramConfigured, facts.Exited, facts.SpawnFailed)

    def after(self, stamped: Stamped) -> ClusterRecord:
        """The record after one more fact; the same object if the fact does not concern it."""
        fact, at_s = stamped.fact, stamped.at_s
        match fact:
            case facts.SpawnIntended(program=name):
                return _without(self, name) if name in self.jobs or name in self.next_tokens else self
            case facts.JobSubmitted(program=name, token=token, job=job):
                return replace(self, jobs={**self.jobs, name: JobRecord(job, token, at_s)})
            case facts.JobStarted(program=name, token=token):
                found = self.jobs.get(name) or JobRecord(fact.job, token, at_s)
                begun = replace(
                    found, job=fact.job, begun_at_s=at_s, node=fact.node, partition=fact.partition, account=fact.account,
                    gpus=fact.gpus,
                )  # fmt: skip
                return replace(self, jobs={**self.jobs, name: begun})
            case facts.ProgramConfigured(program=name, live=False) if name in self.next_tokens:
                # The job that Slurm restarts has the settings from before the change, so no attempt continues in it.
                return replace(self, next_tokens={key: value for key, value in self.next_tokens.items() if key != name})
            case facts.JobRequeued(program=name, next_token=token):
                return replace(self, next_tokens={**self.next_tokens, name: token})
            case facts.Exited(program=name) if name in self.jobs:
                ended_at_s = at_s if fact.ended_at_s is None else fact.ended_at_s
                return _ended(self, name, ended_at_s, preempted=fact.cause == PREEMPTED)
            case facts.SpawnFailed(program=name) if name in self.jobs:
                return _without(self, name)
            case _:
                return _cluster(self, at_s, fact)

    def running(self) -> dict[str, tuple[str, str, int | None]]:
        """(account, partition, GPUs) of each job that has begun, by program."""
        begun = {name: job for name, job in self.jobs.items() if job.begun_at_s is not None}
        return {name: (job.account, job.partition, job.gpus) for name, job in begun.items()}

    def avoid(self, now_s: float) -> tuple[str, ...]:
        """The nodes that a job submitted now avoids."""
        return tuple(sorted(node for node, until_s in self.excluded.items() if until_s > now_s))

    def stability(self, now_s: float) -> tuple[dict[str, Stability], dict[str, Stability]]:
        """(nodes, partitions) up to now, including the time of jobs that still run."""
        nodes, partitions = dict(self.nodes), dict(self.partitions)
        for job in self.jobs.values():
            if job.begun_at_s is not None:
                _ran(nodes, job.node, max(0.0, now_s - job.begun_at_s), now_s)
                _ran(partitions, job.partition, max(0.0, now_s - job.begun_at_s), now_s)
        return nodes, partitions


def _ran(records: dict[str, Stability], name: str, ran_s: float, at_s: float) -> None:
    """Add one more job to a node or partition; without a name there is no record."""
    if name:
        before = records.get(name, Stability())
        records[name] = replace(before, up_s=before.up_s + ran_s, jobs=before.jobs + 1, last_s=at_s)


def _cluster(record: ClusterRecord, at_s: float, fact: facts.Fact) -> ClusterRecord:
    match fact:
        case facts.NodeFaulted(node=node, partition=partition, new=True):
            return replace(
                record, faults=remembered(record.faults, node, at_s), nodes=_newest(_faulted(record.nodes, node, at_s)),
                partitions=_newest(_faulted(record.partitions, partition, at_s)),
            )  # fmt: skip
        case facts.NodeExcluded(node=node, until_s=until_s):
            kept = sorted({**record.excluded, node: until_s}.items(), key=lambda each: each[1])[-KEPT:]
            return replace(record, excluded=dict(kept))
        case facts.ClusterUnreachable(error=error):
            return replace(record, unreachable_since_s=at_s, error=error)
        case facts.ClusterReached():
            return replace(record, unreachable_since_s=None, error="")
        case _:
            return record


def _without(record: ClusterRecord, name: str) -> ClusterRecord:
    return replace(
        record, jobs={key: value for key, value in record.jobs.items() if key != name},
        next_tokens={key: value for key, value in record.next_tokens.items() if key != name},
    )  # fmt: skip


def _ended(record: ClusterRecord, name: str, ended_at_s: float, *, preempted: bool) -> ClusterRecord:
    """Book the job's time on its account, its node and its partition."""
    job, after = record.jobs[name], _without(record, name)
    if job.begun_at_s is None:
        return after
    ran_s, account = max(0.0, ended_at_s - job.begun_at_s), job.account or "default"
    usage = record.usage.get(account, Usage())
    nodes, partitions = dict(record.nodes), dict(record.partitions)
    for records, place in ((nodes, job.node), (partitions, job.partition)):
        _ran(records, place, ran_s, ended_at_s)
        if place and preempted:
            records[place] = replace(records[place], preemptions=records[place].preemptions + 1)
    return replace(
        after, nodes=_newest(nodes), partitions=_newest(partitions),
        usage={
            **record.usage,
            account: Usage(
                usage.jobs + 1, usage.job_s + ran_s, usage.gpu_s + ran_s * (job.gpus or 0),
                usage.unknown_s + (ran_s if job.gpus is None else 0.0),
            ),
        },
    )  # fmt: skip


def _faulted(records: dict[str, Stability], name: str, at_s: float) -> dict[str, Stability]:
    before = records.get(name, Stability())
    return {**records, name: replace(before, faults=before.faults + 1, last_s=at_s)} if name else records


def _newest(records: dict[str, Stability]) -> dict[str, Stability]:
    """At most KEPT of them: a cluster may have thousands of nodes, and the record goes into each snapshot."""
    if len(records) <= KEPT:
        return records
    return dict(sorted(records.items(), key=lambda each: each[1].last_s)[-KEPT:])


class JobsAtLook(Record):
    seen: dict[str, JobSight] = field(default_factory=dict)  # by program, at the newest look at the cluster's queue


RECORDS: Final = {"cluster": ClusterRecord}
MEMORY: Final = {"jobs": JobsAtLook}
