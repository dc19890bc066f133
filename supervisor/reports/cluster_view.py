"""What `status` says of a cluster that runs the programs: jobs, nodes that are avoided, time by account."""

from __future__ import annotations

from typing import Any

from supervisor.model.inputs import JobSight
from supervisor.model.memory import Memory
from supervisor.model.settings import Settings
from supervisor.model.state import State

Json = dict[str, Any]


def jobs_on(settings: Settings | None) -> bool:
    """Whether programs are jobs: without a cluster no page has a word of it."""
    return settings is not None and settings.launcher.remote


def job_view(name: str, state: State, memory: Memory) -> Json | None:
    """The job of a program's attempt, as the record has it, and as the newest look at the queue shows it."""
    program, known, seen = state.programs.get(name), state.cluster.jobs.get(name), memory.jobs.get(name)
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


def cluster_view(state: State, settings: Settings | None, *, now_s: float) -> Json | None:
    """None without a cluster. Hours are of jobs that have ended."""
    if not jobs_on(settings):
        return None
    record = state.cluster
    return {
        "error": record.error,
        "unreachable_s": None if record.unreachable_since_s is None else now_s - record.unreachable_since_s,
        "avoided": {node: record.excluded[node] - now_s for node in record.avoid(now_s)},
        "faults": {node: len(times) for node, times in sorted(record.faults.items())},
        "partitions": {
            name: {"hours": each.up_s / 3600.0, "faults": each.faults, "preemptions": each.preemptions}
            for name, each in sorted(record.partitions.items())
        },
        "accounts": {
            name: {"jobs": each.jobs, "hours": each.job_s / 3600.0, "gpu_hours": each.gpu_s / 3600.0}
            for name, each in sorted(record.usage.items())
        },
    }
