"""A cluster in `status`: a column with each program's job, header lines on trouble and usage. `nodes`: their stability."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import text
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options


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


def lines(cluster: dict[str, Any] | None) -> list[str]:
    """The header lines: trouble first, then the usage of each account."""
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


def nodes(session: Session, args: list[str]) -> int:
    """`nodes [--json]`.

    Nodes and partitions of the cluster that have run jobs: hours, faults, preemptions, and which nodes new jobs avoid.
    """
    names, options = parse_options(args, "--json")
    if names:
        raise Failed("Error: nodes takes no names", USAGE)
    session.warn_if_dead(to_stdout="--json" not in options)
    found = session.page("nodes")
    session.show(found, page, options)
    return OK


def page(found: dict[str, Any]) -> list[str]:
    """Nodes and partitions, most faults first. MTBF is the mean time between faults; its lower bound has 90 % confidence."""
    if found["says"]:
        return [found["says"]]
    if not found["nodes"]:
        return ["no job has run on a node yet"]
    head = ("JOBS", "HOURS", "FAULTS", "PREEMPTED", "MTBF", "MTBF >=")
    rows: list[tuple[str, ...]] = [("NODE", *head, "LAST FAULT", "")]
    for each in found["nodes"]:
        ago_s, avoided_s = each["last_fault_ago_s"], each["avoided_for_s"]
        last = "" if ago_s is None else f"{text.duration(ago_s)} ago"
        avoided = "" if avoided_s is None else f"new jobs avoid it for {text.duration(avoided_s)}"
        rows.append((text.printable(each["name"]), *_figures(each), last, avoided))
    parts = [("PARTITION", *head), *((text.printable(each["name"]), *_figures(each)) for each in found["partitions"])]
    right = {1, 2, 3, 4, 5, 6}
    return [*text.table(rows, right=right), "", *text.table(parts, right=right)]


def _figures(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(each["jobs"]), f"{each['hours']:.1f}", str(each["faults"]), str(each["preemptions"]), _mtbf(each["mtbf_h"]),
        _mtbf(each["mtbf_bound_h"]),
    )  # fmt: skip


def _mtbf(hours: float | None) -> str:
    return text.duration(None if hours is None else 3600.0 * hours)
