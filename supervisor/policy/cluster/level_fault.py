"""How much of a job that a node lost counts against the level, as a reboot of the host does on one box.

First match wins:

1. **0** when its training had not begun: a launch that fails says nothing about the load.
2. **0** for a script that takes nothing of the level: it would have run just so at any other.
3. **0** when the node fails clearly more often than the others (`nodes.is_worse`): it is the node, which is avoided soon.
4. **1 / n** of a reboot, n being the jobs that the level has at once: in a reboot one box loses all of its training, a
   cluster one job of n. A node that takes k of them counts k / n.

Worked example: heavy has eight jobs, and a14, which had no fault before, is down under one of them: an eighth of a reboot
counts against heavy. It is down again the next day, while nine other nodes had none: it is a14, and no level is blamed.

Why a share: with n jobs on n nodes a chance failure comes n times as often. Counted whole, each level would look worse than
the one below only because it has more jobs, and the climb would end at one job. Preemptions are not here: a cluster takes
nodes away for others, whatever the load. Nor is a job out of memory, which is its program's own.
"""

from __future__ import annotations

from supervisor.records import dataclass


@dataclass(frozen=True, slots=True)
class LevelShare:
    """`weight` 0: no level is blamed."""

    weight: float
    why: str


def share_of(*, trained: bool, takes_level: bool, worse: bool | None, jobs: int) -> LevelShare:
    """`worse` as of `nodes.is_worse`; `jobs` that the level has at once, this one among them."""
    if not trained:
        return LevelShare(0.0, "its training had not begun: no level is blamed")
    if not takes_level:
        return LevelShare(0.0, "it takes nothing of the level: no level is blamed")
    if worse:
        return LevelShare(0.0, "this node fails more often than the others: no level is blamed")
    return LevelShare(1.0 / max(1, jobs), f"one of {max(1, jobs)} job{'' if jobs <= 1 else 's'} that trained")
