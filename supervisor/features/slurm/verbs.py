"""The verb `nodes`: the stability of nodes and partitions."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import text
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options


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
