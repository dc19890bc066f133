"""`algo = "auto"`: which algorithm, by what the box can hold and by the level's environments; and why.

The first that applies:

| what is found | algorithm | because |
|---|---|---|
| a checkpoint | its own | another one could not go on from it: a change of level must not refuse what was learned |
| no room for the replay, on disk or in memory | pqn | it keeps one rollout and no replay |
| no room for the rollout on the GPU | dqn | its replay is in the host's memory |
| 64 environments or more | pqn | made for many environments: no replay, a seventh of the learning for each step |
| fewer | dqn | few environments bring few steps: a replay learns from each of them several times |

What is not known (the memory of a GPU that nobody can ask) speaks against nothing. ppo is never chosen by itself: it
is the choice of a preset. Worked example: level heavy has 256 environments: pqn. Level light has 32, and the replay of
1,000,000 transitions needs 7.1 GB of which 74 GB are free on disk and 20 GB in memory: dqn. With 5 GB free: pqn. Later
the level is raised to heavy: the checkpoint is dqn's, and dqn it stays.

Why not by the level alone: a replay that does not fit ends the run in its first second. Why not at every start anew:
free disk changes from hour to hour, and what was learned with one algorithm is lost to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MANY_ENVS: Final = 64
_KEEP_FREE: Final = 0.95  # of what is free, as the replay itself demands


@dataclass(frozen=True, slots=True)
class Found:
    """What there is, and what each algorithm would take; None: not known."""

    checkpoint_algo: str | None  # of the newest whole checkpoint
    num_envs: int
    replay_bytes: int
    rollout_bytes: int
    disk_bytes: int | None  # free, with what this run's own replay holds already
    memory_bytes: int | None  # of the host
    gpu_bytes: int | None  # of the GPU; also None on a CPU


def choose(found: Found) -> tuple[str, str]:
    """(algorithm, why), by the table above."""
    if found.checkpoint_algo is not None:
        return found.checkpoint_algo, "that is its checkpoint's"
    for free, where in ((found.disk_bytes, "free on disk"), (found.memory_bytes, "free in memory")):
        if free is not None and found.replay_bytes > free * _KEEP_FREE:
            return "pqn", f"a replay of {_gb(found.replay_bytes)} does not fit into the {_gb(free)} {where}"
    if found.gpu_bytes is not None and found.rollout_bytes > found.gpu_bytes:
        return "dqn", f"a rollout of {_gb(found.rollout_bytes)} does not fit into the {_gb(found.gpu_bytes)} free on the GPU"
    if found.num_envs >= MANY_ENVS:
        return "pqn", f"{found.num_envs} environments bring steps enough without a replay"
    return "dqn", f"{found.num_envs} environments bring few steps, and the replay of {_gb(found.replay_bytes)} fits"


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.2f} GB"
