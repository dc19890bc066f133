"""Jobs of a cluster: record their submission, start and end, and judge their ends. Only used with [launcher]."""

from __future__ import annotations

from supervisor.deciding.context import DecisionContext
from supervisor.model import facts
from supervisor.model.cluster_record import JobRecord
from supervisor.model.inputs import Ending, JobSight, JobsSeen
from supervisor.policy.cluster import job_end, nodes
from supervisor.policy.cluster.job_end import JobEnd
from supervisor.policy.worker.diagnosis import Diagnosis
from supervisor.records import replace


def on_jobs(context: DecisionContext, item: JobsSeen) -> None:
    """Process one reading of the cluster's queue. The record of a job that the reading lacks stays unchanged."""
    record = context.state.cluster
    if item.error:
        if record.unreachable_since_s is None:
            why = f"the cluster does not answer: {item.error}; jobs run on, and none is submitted again meanwhile"
            context.record(facts.ClusterUnreachable(why, item.error))
        return
    if record.unreachable_since_s is not None:
        after_s = context.now_s - record.unreachable_since_s
        context.record(facts.ClusterReached(f"the cluster answers again, after {after_s:.0f} s", after_s))
    for name, sight in sorted(item.jobs.items()):
        if context.live(name, sight.token) is not None:
            _note(context, name, sight)
    context.memory = replace(context.memory, jobs=dict(item.jobs))


def _note(context: DecisionContext, name: str, sight: JobSight) -> None:
    known = context.state.cluster.jobs.get(name)
    if known is None or known.job != sight.job or known.token != sight.token:
        context.record(facts.JobSubmitted(f"it is job {sight.job} of the cluster", name, sight.token, sight.job))
        known = None
    if sight.runs and (known is None or known.begun_at_s is None):
        where = f"node {sight.node}" if sight.node else "a node"
        context.record(
            facts.JobStarted(
                f"job {sight.job} began on {where}", name, sight.token, sight.job, sight.node, sight.partition,
                sight.account, sight.gpus,
            )
        )  # fmt: skip


def verdict(ending: Ending, done_codes: tuple[int, ...], by_exit: Diagnosis) -> tuple[Diagnosis, bool]:
    """Why an attempt ended, and whether its node is at fault. The finding about its job, if any, replaces `by_exit`."""
    if ending.job is None:
        return by_exit, False
    found = job_end.judge(
        ending.job, code=ending.code, signal=ending.signal, done_codes=done_codes, last_lines=ending.last_lines
    )  # fmt: skip
    return (by_exit, False) if found is None else (Diagnosis(found.cause, found.counted, found.why), found.fault)


def note_end(
    context: DecisionContext, name: str, ending: Ending, before: JobRecord | None, *, asked: bool, fault: bool
) -> None:
    """After the attempt's end is recorded, record that Slurm requeued its job, or that its node has a fault.

    An attempt that the daemon had asked to leave continues as another job: the old job is deleted, or still has the old
    request to leave. `before` is the record of the job before this end.
    """
    job = ending.job
    if job is None:
        return
    if job.requeued and job.next_token and not asked:
        why = f"Slurm starts job {job.job} again by itself: the next attempt is the same job"
        context.record(facts.JobRequeued(why, name, job.job, job.next_token))
    if fault and job.node:
        _note_fault(context, name, job, before)


def _note_fault(context: DecisionContext, name: str, job: JobEnd, before: JobRecord | None) -> None:
    """Record that a node lost a job. Repeated faults exclude the node for a while."""
    settings, record, node = context.settings.launcher, context.state.cluster, job.node
    begun_at_s, partition = (None, "") if before is None else (before.begun_at_s, before.partition)
    again = nodes.same_fault(record.faults.get(node, ()), begun_at_s=begun_at_s, at_s=context.now_s)
    why = f"node {node} has lost job {job.job} of {name}"
    context.record(facts.NodeFaulted(why, node, partition, name, job.job, new=not again))
    if again:
        return
    after = context.state.cluster
    faults_s, avoided = after.faults[node], set(after.avoid(context.now_s)) - {node}
    until_s = nodes.exclude_until_s(
        faults_s, now_s=context.now_s, faults=settings.node_faults, exclude_s=settings.node_exclude_s,
        avoided=len(avoided), used=len(after.nodes.keys() | {node}),
    )  # fmt: skip
    if until_s is not None:
        for_h = settings.node_exclude_s / 3600.0
        why = f"node {node} has failed {len(faults_s)} times within a week: new jobs avoid it for {for_h:g} h"
        context.record(facts.NodeExcluded(why, node, until_s))
