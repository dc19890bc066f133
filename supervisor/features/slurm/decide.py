"""Jobs of a cluster: record their submission, start and end, and judge their ends."""

from __future__ import annotations

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import Feature
from supervisor.deciding.requests import end, stopped
from supervisor.features.slurm.messages import JobsSeen
from supervisor.features.slurm.record import ClusterRecord, JobRecord, JobsAtLook
from supervisor.features.slurm.rules import job_end, nodes, shut_down
from supervisor.features.slurm.rules.job_end import JobEnd
from supervisor.features.slurm.settings import LauncherSettings, NextJob
from supervisor.formats import span
from supervisor.model import facts
from supervisor.model.commands import Spawn
from supervisor.model.inputs import Ending, Terminated
from supervisor.model.state import State
from supervisor.policy.worker.diagnosis import Diagnosis
from supervisor.records import replace


def on_jobs(context: DecisionContext, item: JobsSeen) -> None:
    """Process one reading of the cluster's queue. The record of a job that the reading lacks stays unchanged."""
    record = context.state.of(ClusterRecord)
    if item.error:
        if record.unreachable_since_s is None:
            why = f"the cluster does not answer: {item.error}; jobs run on, and none is submitted again meanwhile"
            context.record(facts.ClusterUnreachable(why, item.error))
        return
    if record.unreachable_since_s is not None:
        after_s = context.now_s - record.unreachable_since_s
        context.record(facts.ClusterReached(f"the cluster answers again, after {span(after_s)}", after_s))
    for name, sight in sorted(item.jobs.items()):
        if context.live(name, sight.token) is not None:
            known = context.state.of(ClusterRecord).jobs.get(name)
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
    context.remember(JobsAtLook(dict(item.jobs)))


def _order(context: DecisionContext, order: Spawn) -> Spawn:
    """The next attempt may be in a job that Slurm starts again by itself; other jobs avoid nodes with faults."""
    record, job = context.state.of(ClusterRecord), order.spec.of(NextJob)
    token = record.next_tokens.get(order.spec.name, order.token)
    return replace(order, token=token, spec=order.spec.having(replace(job, avoid=record.avoid(context.now_s))))


def _judged(ending: Ending, done_codes: tuple[int, ...]) -> job_end.JobVerdict | None:
    if not isinstance(ending.job, JobEnd):
        return None
    return job_end.judge(
        ending.job, code=ending.code, signal=ending.signal, done_codes=done_codes, last_lines=ending.last_lines
    )  # fmt: skip


def _verdict(ending: Ending, done_codes: tuple[int, ...], by_exit: Diagnosis) -> Diagnosis:
    """Why an attempt ended. The finding about its job, if any, replaces `by_exit`."""
    found = _judged(ending, done_codes)
    return by_exit if found is None else Diagnosis(found.cause, found.counted, found.why)


def _ended(context: DecisionContext, name: str, ending: Ending, before: State) -> None:
    """After the attempt's end is recorded, record that Slurm requeued its job, or that its node has a fault.

    An attempt that the daemon had asked to leave continues as another job: the old job is deleted, or still has the old
    request to leave.
    """
    job, spec, attempt = ending.job, context.settings.program(name), before.programs[name].attempt
    if not isinstance(job, JobEnd) or attempt is None or attempt.stop is not None:
        return
    if job.requeued and job.next_token:
        why = f"Slurm starts job {job.job} again by itself: the next attempt is the same job"
        context.record(facts.JobRequeued(why, name, job.job, job.next_token))
    found = _judged(ending, spec.done_codes if spec is not None else (0,))
    if found is not None and found.fault and job.node:
        _note_fault(context, name, job, before.of(ClusterRecord).jobs.get(name))


def _note_fault(context: DecisionContext, name: str, job: JobEnd, before: JobRecord | None) -> None:
    """Record that a node lost a job. Repeated faults exclude the node for a while."""
    settings, record, node = context.settings.of(LauncherSettings), context.state.of(ClusterRecord), job.node
    begun_at_s, partition = (None, "") if before is None else (before.begun_at_s, before.partition)
    again = nodes.same_fault(record.faults.get(node, ()), begun_at_s=begun_at_s, at_s=context.now_s)
    why = f"node {node} has lost job {job.job} of {name}"
    context.record(facts.NodeFaulted(why, node, partition, name, job.job, new=not again))
    if again:
        return
    after = context.state.of(ClusterRecord)
    faults_s, avoided = after.faults[node], set(after.avoid(context.now_s)) - {node}
    until_s = nodes.exclude_until_s(
        faults_s, now_s=context.now_s, faults=settings.node_faults, exclude_s=settings.node_exclude_s,
        avoided=len(avoided), used=len(after.nodes.keys() | {node}),
    )  # fmt: skip
    if until_s is not None:
        avoid = f"new jobs avoid it for {span(settings.node_exclude_s)}"
        why = f"node {node} has failed {len(faults_s)} times within a week: {avoid}"
        context.record(facts.NodeExcluded(why, node, until_s))


def _follows(context: DecisionContext, name: str, verdict: Diagnosis) -> bool:
    """A job that somebody deleted stays down. One that the cluster took goes on at once."""
    if verdict.cause == job_end.CANCELLED:
        why = f"{verdict.why}; `extralifectl start` submits it again"
        context.record(facts.Wanted(why, name, run=False, by="the cluster"))
        context.record(facts.StayedDown(why, name))
    elif verdict.cause in job_end.GOES_ON:
        context.record(facts.Requeued(f"{verdict.why}; the next job goes on", name))
    else:
        return False
    return True


def _begun(context: DecisionContext, name: str) -> float | None:
    """Since when its job has a node: before that it waits in the queue."""
    job = context.state.of(ClusterRecord).jobs.get(name)
    return None if job is None else job.begun_at_s


def _refused(context: DecisionContext, name: str) -> str | None:
    if not context.settings.of(LauncherSettings).remote:
        return None
    job = context.memory.of(JobsAtLook).seen.get(name)
    return f"the cluster refuses to delete its job: {job.refused}" if job is not None and job.refused else ""


# --- the end of the daemon ----------------------------------------------------------------------------------------------


def _terminated(context: DecisionContext, item: Terminated) -> bool:
    """Jobs stay: they do not run on this host, and the next daemon adopts them. `shutdown` ends them too.

    A signal after `shutdown` ends the daemon without waiting for them.
    """
    if not context.settings.of(LauncherSettings).remote:
        return False
    if context.state.stopping:
        _end_without_jobs(context, f"{item.by}: extralife does not wait for")
    else:
        end(context, by=item.by, keep_workers=True, why=f"{item.by}: the jobs go on", reexec=False)
    return True


def _pursue(context: DecisionContext) -> None:
    """End a daemon that is shutting down without its jobs, if the cluster does not answer."""
    asked_s = [each.attempt.stop.asked_at_s for each in context.state.live.values() if each.attempt and each.attempt.stop]
    record = context.state.of(ClusterRecord)
    if not context.state.stopping or not asked_s:
        return
    at_s = shut_down.ends_at_s(asked_at_s=max(asked_s), unreachable_since_s=record.unreachable_since_s)
    if at_s is not None and context.now_s >= at_s:
        _end_without_jobs(context, f"the cluster does not answer ({record.error}): extralife ends without")
    else:
        context.wake(at_s)


def _end_without_jobs(context: DecisionContext, why: str) -> None:
    jobs = context.state.of(ClusterRecord).jobs
    left = (
        f"{name} (job {jobs[name].job})" if name in jobs else f"{name} (job not known)"
        for name in sorted(context.state.live)
    )
    stopped(context, f"{why} jobs that may still run: {', '.join(left)}; the next supervisord asks them again to leave")


FEATURE = Feature(
    turn=90, section="launcher", record="cluster", memory="jobs", inputs={JobsSeen: on_jobs}, order=_order,
    verdict=_verdict, ended=_ended, follows=_follows, terminated=_terminated, pursue=_pursue, begun=_begun, refused=_refused,
)  # fmt: skip
