"""Jobs of a cluster: what is put on record of them, and what their ends mean. Nothing here happens without [launcher]."""

from __future__ import annotations

from dataclasses import replace

from supervisor.deciding.turn import Turn
from supervisor.model import facts
from supervisor.model.inputs import Ending, JobSight, JobsSeen
from supervisor.policy.cluster import job_end, nodes
from supervisor.policy.worker.diagnosis import Diagnosis


def on_jobs(turn: Turn, item: JobsSeen) -> None:
    """One look at the queue. What it does not know stays as it was."""
    record = turn.state.cluster
    if item.error:
        if record.unreachable_since_s is None:
            why = f"the cluster does not answer: {item.error}; jobs run on, and none is submitted again meanwhile"
            turn.record(facts.ClusterUnreachable(why, item.error))
        return
    if record.unreachable_since_s is not None:
        after_s = turn.now_s - record.unreachable_since_s
        turn.record(facts.ClusterReached(f"the cluster answers again, after {after_s:.0f} s", after_s))
    for name, sight in sorted(item.jobs.items()):
        if turn.live(name, sight.token) is not None:
            _note(turn, name, sight)
    turn.memory = replace(turn.memory, jobs=dict(item.jobs))


def _note(turn: Turn, name: str, sight: JobSight) -> None:
    known = turn.state.cluster.jobs.get(name)
    if known is None or known.job != sight.job or known.token != sight.token:
        turn.record(facts.JobSubmitted(f"it is job {sight.job} of the cluster", name, sight.token, sight.job))
        known = None
    if sight.runs and (known is None or known.begun_at_s is None):
        where = f"node {sight.node}" if sight.node else "a node"
        turn.record(
            facts.JobStarted(
                f"job {sight.job} began on {where}", name, sight.token, sight.job, sight.node, sight.partition,
                sight.account, sight.gpus,
            )
        )  # fmt: skip


def verdict(ending: Ending, done_codes: tuple[int, ...], by_exit: Diagnosis) -> tuple[Diagnosis, bool]:
    """Why an attempt ended that was a job, and whether its node is to blame."""
    if ending.job is None:
        return by_exit, False
    found = job_end.judge(ending.job, code=ending.code, signal=ending.signal, done_codes=done_codes)
    return (by_exit, False) if found is None else (Diagnosis(found.cause, found.counted, found.why), found.fault)


def note_end(turn: Turn, name: str, ending: Ending, partition: str, *, asked: bool, fault: bool) -> None:
    """After the attempt's end is on record: the job goes on by itself, or its node has a fault.

    One that we had asked to leave goes on as another job: this one is deleted, or has the order of before.
    """
    job = ending.job
    if job is None:
        return
    if job.requeued and job.next_token and not asked:
        why = f"Slurm starts job {job.job} again by itself: the next attempt is the same job"
        turn.record(facts.JobRequeued(why, name, job.job, job.next_token))
    if not fault or not job.node:
        return
    turn.record(facts.NodeFaulted(f"node {job.node} has lost job {job.job} of {name}", job.node, partition, name, job.job))
    settings, faults_s = turn.settings.launcher, turn.state.cluster.faults[job.node]
    until_s = nodes.exclude_until_s(
        faults_s, now_s=turn.now_s, faults=settings.node_faults, exclude_s=settings.node_exclude_s
    )  # fmt: skip
    if until_s is not None:
        for_h = settings.node_exclude_s / 3600.0
        why = f"node {job.node} has lost {len(faults_s)} jobs within a week: new jobs avoid it for {for_h:g} h"
        turn.record(facts.NodeExcluded(why, job.node, until_s))
