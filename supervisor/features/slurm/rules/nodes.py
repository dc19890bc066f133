"""How stable nodes and partitions are, and which nodes new jobs avoid.

The rule. A node that has had `node_faults` faults within a week is avoided for `node_exclude_s`, a day. A fault is an end
that only the node can cause: NODE_FAIL, a launch that failed, a job that vanished and was put back into the queue, a broken
GPU. A preemption, a time limit and a crash of the program prove nothing about the node. When the time is over the node is
used again. Its next fault excludes it at once, as long as the older faults are within the week.

* *One fault of a node may end several jobs*: a job belongs to the node's last fault if it had begun before that fault and
  ends within ten minutes after it.
* *At most half of the nodes that our jobs have used are avoided at once*: where most nodes fail, none of them is the cause,
  and the jobs would wait for a day.

Worked example, 3 faults: a14 fails on Monday, on Tuesday and on Tuesday night. It is avoided until Wednesday night. It
fails once more on Thursday: four within a week, avoided until Friday.

Why not for ever: clusters repair nodes, and a list that only grows ends with no node left. Why not at the first fault: with
200 nodes and one random reboot a month each, half of the cluster would be avoided for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.records import Record

WINDOW_S: Final = 7 * 86400.0
KEPT: Final = 200  # maximum number of nodes, and of faults of one node
ONE_FAULT_S: Final = 600.0


class Stability(Record):
    """The record of a node or a partition: how long our jobs ran there, and how often an outside cause ended them."""

    up_s: float = 0.0
    jobs: int = 0
    faults: int = 0
    preemptions: int = 0
    last_s: float = 0.0  # time of the newest job or fault, in journal time


def same_fault(faults_s: tuple[float, ...], *, begun_at_s: float | None, at_s: float) -> bool:
    """Whether a job that began at `begun_at_s` and was lost at `at_s` belongs to the node's last fault."""
    if not faults_s or at_s - faults_s[-1] > ONE_FAULT_S:
        return False
    return begun_at_s is not None and begun_at_s < faults_s[-1]


def remembered(faults: Mapping[str, tuple[float, ...]], node: str, at_s: float) -> dict[str, tuple[float, ...]]:
    """The faults by node, with one more. Faults older than the window, and the oldest nodes beyond KEPT, are removed."""
    recent = {name: tuple(each for each in times if at_s - each < WINDOW_S) for name, times in faults.items()}
    recent[node] = (*recent.get(node, ()), at_s)[-KEPT:]
    newest = sorted((item for item in recent.items() if item[1]), key=lambda item: item[1][-1])
    return dict(newest[-KEPT:])


def exclude_until_s(
    faults_s: tuple[float, ...], *, now_s: float, faults: int, exclude_s: float, avoided: int, used: int
) -> float | None:  # fmt: skip
    """Until when a node with these faults (the newest at `now_s`) is avoided; None: it is not avoided.

    `avoided`: number of other nodes that are avoided now; `used`: number of nodes that jobs have used.
    """
    if sum(now_s - each < WINDOW_S for each in faults_s) < faults or avoided >= max(1, used // 2):
        return None
    return now_s + exclude_s
