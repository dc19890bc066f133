"""How stable nodes and partitions are, and which nodes new jobs avoid.

The rule. A node that has had `node_faults` faults within a week is avoided for `node_exclude_s`, a day, unless the other
nodes fail as often. Faults are what a job can only have from its node: NODE_FAIL, a launch that failed, a job that vanished
and was put back into the queue, a broken GPU. A preemption, a time limit and a crash of the program say nothing about the
node. When the time is over the node is used again; its next fault excludes it at once, for as long as the older ones are
within the week.

* *One fault of a node may end several jobs*: those that it had begun before its last fault, and that end within ten
  minutes of it, belong to that fault.
* *As often*: its faults are at most twice what the others' rate would bring in its own hours. With one fault, or as long
  as the others have fewer hours than it has, that is not known, and its faults alone decide.

Worked example, 3 faults: a14 fails on Monday, on Tuesday and on Tuesday night, in 60 h; the others fail once in 500 h. It is
avoided until Wednesday night. It fails once more on Thursday: four within a week, avoided until Friday. At a level that
overheats every node, four nodes fail ten times each in 100 h: the others' rate brings ten in 100 h, so none is avoided. The
level is to blame (`level_fault.py`), and excluding them one by one would leave nowhere to go.

Why not for ever: clusters repair nodes, and a list that only grows ends with no node left. Why not at the first fault: with
200 nodes and a reboot each month by chance, half of the cluster would be avoided for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from supervisor.records import dataclass

WINDOW_S: Final = 7 * 86400.0
KEPT: Final = 200  # nodes, and faults of one node
ONE_FAULT_S: Final = 600.0
_AS_OFTEN: Final = 2.0


@dataclass(frozen=True, slots=True)
class Stability:
    """What a node or a partition has shown: time in which jobs of ours ran there, and what ended them from outside."""

    up_s: float = 0.0
    jobs: int = 0
    faults: int = 0
    preemptions: int = 0
    last_s: float = 0.0  # of the newest job or fault, in journal time


def total(records: Iterable[Stability]) -> Stability:
    """All of them as one."""
    up_s, jobs, faults, preemptions = 0.0, 0, 0, 0
    for each in records:
        up_s, jobs = up_s + each.up_s, jobs + each.jobs
        faults, preemptions = faults + each.faults, preemptions + each.preemptions
    return Stability(up_s, jobs, faults, preemptions)


def is_worse(node: Stability, others: Stability) -> bool | None:
    """Whether a node fails clearly more often than the others; None: too little is known of them."""
    if node.faults < 2 or others.up_s < node.up_s:
        return None
    expected = others.faults * node.up_s / others.up_s if others.up_s else 0.0
    return node.faults > _AS_OFTEN * expected


def same_fault(faults_s: tuple[float, ...], *, begun_at_s: float | None, at_s: float) -> bool:
    """Whether a job that was lost now, and had begun then, belongs to the node's fault before."""
    if not faults_s or at_s - faults_s[-1] > ONE_FAULT_S:
        return False
    return begun_at_s is not None and begun_at_s < faults_s[-1]


def remembered(faults: Mapping[str, tuple[float, ...]], node: str, at_s: float) -> dict[str, tuple[float, ...]]:
    """The faults by node with one more; what is older than the window, and more nodes than KEPT, are forgotten."""
    recent = {name: tuple(each for each in times if at_s - each < WINDOW_S) for name, times in faults.items()}
    recent[node] = (*recent.get(node, ()), at_s)[-KEPT:]
    newest = sorted((item for item in recent.items() if item[1]), key=lambda item: item[1][-1])
    return dict(newest[-KEPT:])


def exclude_until_s(
    faults_s: tuple[float, ...], worse: bool | None, *, now_s: float, faults: int, exclude_s: float
) -> float | None:  # fmt: skip
    """Until when a node with these faults, the newest just now, is avoided; None: it is not."""
    if worse is False or sum(now_s - each < WINDOW_S for each in faults_s) < faults:
        return None
    return now_s + exclude_s
