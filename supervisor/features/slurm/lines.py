"""A cluster in `status`: a column with each program's job, header lines on trouble and usage."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import text


def cell(job: dict[str, Any] | None) -> str:
    """`17 on a14`, or `17 PENDING (Resources), begins about 14:05`."""
    if job is None:
        return text.UNKNOWN
    number = text.printable(str(job["id"]))
    if job["node"] and job["state"] in {None, "RUNNING"}:
        return f"{number} on {text.printable(job['node'])}"
    state = f" {text.printable(job['state'])}" if job["state"] else ""
    reason = f" ({text.printable(job['reason'])})" if job["reason"] else ""
    expected_s = job["start_expected_wall_s"]
    begins = "" if expected_s is None else f", begins about {text.when(expected_s, text.wall_s())}"
    return f"{number}{state}{reason}{begins}"


def cells(view: dict[str, Any]) -> dict[str, str]:
    """The column of a program in `status`."""
    return {"JOB": cell(view["job"])} if "job" in view else {}


def lines(daemon: dict[str, Any]) -> list[str]:
    """The header lines: trouble first, then the usage of each account."""
    cluster = daemon.get("cluster")
    if cluster is None:
        return []
    found = []
    if cluster["unreachable_s"] is not None:
        for_s = text.duration(cluster["unreachable_s"])
        found.append(f"the cluster has not answered for {for_s}: {text.printable(cluster['error'])}; jobs run on")
    if cluster["avoided"]:
        nodes = ", ".join(f"{text.printable(node)} for {text.duration(s)}" for node, s in cluster["avoided"].items())
        found.append(f"nodes that new jobs avoid: {nodes}")
    used = [_used(name, each) for name, each in cluster["accounts"].items()]
    return [*found, *([f"used by account: {'; '.join(used)}"] if used else [])]


def left_behind(status: dict[str, Any]) -> str:
    """Which jobs a shutdown may leave, because their cluster does not answer. Empty: it has no jobs."""
    found = status["daemon"].get("cluster")
    jobs = [f"{text.printable(each['name'])} ({cell(each['job'])})" for each in status["programs"] if each.get("job")]
    if found is None or not jobs:
        return ""
    if found["unreachable_s"] is None:
        return (
            "the daemon ends once every job has left; `history` names the jobs that are left if the cluster does not answer"
        )
    return (
        f"the cluster does not answer: the daemon ends within seconds, and these jobs may run on: {', '.join(jobs)}; "
        "`scancel` ends them, or the next supervisord asks them again to leave"
    )


def _used(name: str, each: dict[str, Any]) -> str:
    jobs = f"{text.printable(name)} {text.duration(3600.0 * each['hours'])} in {text.count(each['jobs'], 'job')}"
    if each["gpu_hours"] is None:
        return f"{jobs}, GPU hours unknown"
    least = "at least " if each["hours_unknown"] else ""
    return f"{jobs}, {least}{each['gpu_hours']:.1f} GPU hours" if each["gpu_hours"] or least else jobs
