"""How much the loss of a job by its node counts against the level, as a reboot of the host does on one box.

First match wins:

1. **0** when its training had not begun: a launch that fails proves nothing about the load.
2. **0** for a script that uses no setting of the level: it would have run the same at any other level.
3. **0** when the node fails clearly more often than the others (`nodes.is_worse`): the node is the cause, and will be
   avoided soon.
4. **1 / n** of a reboot, where n is the number of jobs that the level runs at once: in a reboot one box loses all of its
   training, a cluster one job of n. A node that takes down k jobs counts k / n.

Worked example: heavy has eight jobs, and a14, which had no fault before, goes down under one of them: an eighth of a
reboot counts against heavy. It goes down again the next day, while nine other nodes had no fault: a14 is the cause, and
no level is blamed.

Why a share: with n jobs on n nodes a random failure comes n times as often. Counted whole, each level would look worse
than the one below only because it has more jobs, and the climb would end at one job. Preemptions do not count here: a
cluster takes nodes away for other jobs, whatever the load. Neither does a job out of memory, which is its program's own
fault.
"""

from __future__ import annotations

from supervisor.records import dataclass


@dataclass(frozen=True, slots=True)
class LevelShare:
    """The share of a reboot that counts against the level. `weight` 0: no level is blamed."""

    weight: float
    why: str


def share_of(*, trained: bool, takes_level: bool, worse: bool | None, jobs: int) -> LevelShare:
    """The share for one lost job. `worse`: by `nodes.is_worse`; `jobs`: number at once at this level, this one included."""
    if not trained:
        return LevelShare(0.0, "its training had not begun: no level is blamed")
    if not takes_level:
        return LevelShare(0.0, "it takes nothing of the level: no level is blamed")
    if worse:
        return LevelShare(0.0, "this node fails more often than the others: no level is blamed")
    return LevelShare(1.0 / max(1, jobs), f"one of {max(1, jobs)} job{'' if jobs <= 1 else 's'} that trained")
