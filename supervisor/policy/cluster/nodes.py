"""Which nodes new jobs avoid.

The rule. A node that has lost `node_faults` jobs of ours within a week is avoided for `node_exclude_s`, a day. Faults are
what a job can only have from its node: NODE_FAIL, a launch that failed, a job that vanished and was put back into the
queue. A preemption, a time limit and a crash of the program say nothing about the node. When the time is over the node is
used again; its next fault excludes it at once, for as long as the older ones are within the week.

Worked example, 3 faults: a14 loses a job on Monday, on Tuesday and on Tuesday night: avoided until Wednesday night. It loses
another one on Thursday: four within a week, avoided until Friday.

Why not for ever: clusters repair nodes, and a list that only grows ends with no node left. Why not at the first fault: with
200 nodes and a reboot each month by chance, half of the cluster would be avoided for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WINDOW_S: Final = 7 * 86400.0
KEPT: Final = 200  # nodes, and faults of one node


def remembered(faults: Mapping[str, tuple[float, ...]], node: str, at_s: float) -> dict[str, tuple[float, ...]]:
    """The faults by node with one more; what is older than the window, and more nodes than KEPT, are forgotten."""
    recent = {name: tuple(each for each in times if at_s - each < WINDOW_S) for name, times in faults.items()}
    recent[node] = (*recent.get(node, ()), at_s)[-KEPT:]
    newest = sorted((item for item in recent.items() if item[1]), key=lambda item: item[1][-1])
    return dict(newest[-KEPT:])


def exclude_until_s(faults_s: tuple[float, ...], *, now_s: float, faults: int, exclude_s: float) -> float | None:
    """Until when a node with these faults, the newest just now, is avoided; None: it is not."""
    return now_s + exclude_s if sum(now_s - each < WINDOW_S for each in faults_s) >= faults else None
