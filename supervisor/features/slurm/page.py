"""Views of a cluster that runs the programs: its jobs, avoided nodes and hours by account, and the page `nodes`."""

from __future__ import annotations

from supervisor.features.slurm.messages import JobSight
from supervisor.features.slurm.record import ClusterRecord, JobsAtLook
from supervisor.features.slurm.rules.nodes import WINDOW_S, Stability
from supervisor.features.slurm.settings import LauncherSettings
from supervisor.model.memory import Memory
from supervisor.model.state import State
from supervisor.policy.level.worth import mtbf_bound_s
from supervisor.reports.added import Added
from supervisor.reports.sources import Json, Sources


def job_view(name: str, state: State, memory: Memory) -> Json | None:
    """The job of a program's attempt, from the newest reading of the queue, completed from the record."""
    program, known = state.programs.get(name), state.of(ClusterRecord).jobs.get(name)
    seen = memory.of(JobsAtLook).seen.get(name)
    token = None if program is None or program.attempt is None else program.attempt.token
    if seen is None or seen.token != token:
        if known is None:
            return None
        seen = JobSight(known.token, known.job, runs=known.begun_at_s is not None)
    return {
        "id": seen.job,
        "state": seen.state or None,
        "reason": seen.reason or None,
        "node": seen.node or (known.node if known is not None else "") or None,
        "partition": seen.partition or (known.partition if known is not None else "") or None,
        "account": seen.account or (known.account if known is not None else "") or None,
        "start_expected_wall_s": None if seen.runs else seen.start_expected_wall_s,
    }


def cluster_view(state: State, *, now_s: float) -> Json:
    """The cluster's part of `status`. Only ended jobs count in the hours."""
    record = state.of(ClusterRecord)
    return {
        "error": record.error,
        "unreachable_s": None if record.unreachable_since_s is None else now_s - record.unreachable_since_s,
        "avoided": {node: record.excluded[node] - now_s for node in record.avoid(now_s)},
        "accounts": {
            name: {
                "jobs": each.jobs,
                "hours": each.job_s / 3600.0,
                "gpu_hours": None if each.unknown_s >= each.job_s > 0 else each.gpu_s / 3600.0,
                "hours_unknown": each.unknown_s / 3600.0,
            }
            for name, each in sorted(record.usage.items())
        },
    }


def _in_use(sources: Sources) -> bool:
    return sources.settings is not None and sources.settings.of(LauncherSettings).remote


NO_CLUSTER = 'programs run on this machine: nodes are on record with [launcher] kind = "slurm"'


def nodes(sources: Sources) -> Json:
    """How stable each node and each partition is, those with the most faults first. Running jobs count, too."""
    record, now_s = sources.state.of(ClusterRecord), sources.now_s
    by_node, by_partition = record.stability(now_s)
    recent = {node: [at_s for at_s in times if now_s - at_s < WINDOW_S] for node, times in record.faults.items()}
    avoided = {node: record.excluded[node] - now_s for node in record.avoid(now_s)}
    return {
        "says": "" if _in_use(sources) or by_node else NO_CLUSTER,
        "nodes": [
            {
                "name": name,
                **_stability(each),
                "faults_in_a_week": len(recent.get(name, ())),
                "last_fault_ago_s": now_s - recent[name][-1] if recent.get(name) else None,
                "avoided_for_s": avoided.get(name),
            }
            for name, each in _by_faults(by_node)
        ],
        "partitions": [{"name": name, **_stability(each)} for name, each in _by_faults(by_partition)],
    }


def _by_faults(records: dict[str, Stability]) -> list[tuple[str, Stability]]:
    return sorted(records.items(), key=lambda each: (-each[1].faults, each[0]))


def _stability(each: Stability) -> Json:
    hours = each.up_s / 3600.0
    return {
        "jobs": each.jobs,
        "hours": hours,
        "faults": each.faults,
        "preemptions": each.preemptions,
        "mtbf_h": hours / each.faults if each.faults else None,
        "mtbf_bound_h": mtbf_bound_s(each.faults, each.up_s) / 3600.0 if each.up_s else None,
    }


def _troubles(daemon: Json) -> list[str]:
    error = daemon["cluster"]["error"] if "cluster" in daemon else ""
    return [f"the cluster does not answer: {error}"] if error else []


def _status(sources: Sources) -> Json:
    return {"cluster": cluster_view(sources.state, now_s=sources.now_s)} if _in_use(sources) else {}


def _program(sources: Sources, name: str) -> Json:
    return {"job": job_view(name, sources.state, sources.memory)} if _in_use(sources) else {}


ADDED = Added(status=_status, program=_program, troubles=_troubles)
