"""`algo = "auto"`: chooses the algorithm by the box's disk and memory and by the level's environments, with a reason.

The first row that applies:

| condition | algorithm | because |
|---|---|---|
| a checkpoint exists | its own | another algorithm could not resume from it: a change of level must not lose the training |
| no room for the replay, on disk or in memory | pqn | it keeps one rollout and no replay |
| no room for the rollout on the GPU | dqn | its replay is in the host's memory |
| 64 environments or more | pqn | made for many environments: no replay, a seventh of the learning for each step |
| fewer | dqn | few environments make few steps: a replay learns from each of them several times |

An unknown value (the memory of a GPU that cannot be queried) excludes no algorithm. `auto` never chooses ppo: only a
preset does. Worked example: level heavy has 256 environments: pqn. Level light has 32, and the replay of
1,000,000 transitions needs 7.1 GB of which 74 GB are free on disk and 20 GB in memory: dqn. With 5 GB free: pqn. Later
the level is raised to heavy: the checkpoint is dqn's, so the algorithm stays dqn.

Why not by the level alone: a replay that does not fit ends the run in its first second. Why not again at every start:
free disk space changes from hour to hour, and another algorithm cannot use what the first one has learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MANY_ENVS: Final = 64
_KEEP_FREE: Final = 0.95  # largest share of the free space that may be used; the replay has the same limit


@dataclass(frozen=True, slots=True)
class Constraints:
    """The available resources, and the needs of each algorithm; None: unknown."""

    checkpoint_algo: str | None  # of the newest whole checkpoint
    num_envs: int
    replay_bytes: int
    rollout_bytes: int
    disk_bytes: int | None  # free space, plus the size of this run's existing replay
    memory_bytes: int | None  # of the host
    gpu_bytes: int | None  # of the GPU; also None on a CPU


def choose(constraints: Constraints) -> tuple[str, str]:
    """(algorithm, why), by the table above."""
    if constraints.checkpoint_algo is not None:
        return constraints.checkpoint_algo, "that is its checkpoint's"
    replay_bytes, rollout_bytes = constraints.replay_bytes, constraints.rollout_bytes
    for free, where in ((constraints.disk_bytes, "free on disk"), (constraints.memory_bytes, "free in memory")):
        if free is not None and replay_bytes > free * _KEEP_FREE:
            return "pqn", f"a replay of {_gb(replay_bytes)} does not fit into the {_gb(free)} {where}"
    gpu_bytes = constraints.gpu_bytes
    if gpu_bytes is not None and rollout_bytes > gpu_bytes:
        return "dqn", f"a rollout of {_gb(rollout_bytes)} does not fit into the {_gb(gpu_bytes)} free on the GPU"
    if constraints.num_envs >= MANY_ENVS:
        return "pqn", f"{constraints.num_envs} environments bring steps enough without a replay"
    return "dqn", f"{constraints.num_envs} environments bring few steps, and the replay of {_gb(replay_bytes)} fits"


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.2f} GB"
