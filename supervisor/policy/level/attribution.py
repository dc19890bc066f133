"""How much of a reboot counts against the load, from 0 (not at all) to 1, and against which level.

First match wins:

1. **0** when the reboot was intended: by the operator, by an orderly shutdown, or announced by the provider (`cause` is
   not `unclean`).
2. **0** when no worker ran, or all workers were paused: an idle box is not overloaded.
3. By the age of the last sign of life when the box went down: **1** up to two minutes, **0.5** up to ten, **0** beyond.
   With an old sign of life the daemon itself may have been dead, so nobody knows which workers ran. Unknown age: **0.5**.
4. A restart of a container without an order: the kernel went on, so somebody sent SIGKILL to all: the provider, a
   neighbour's need of memory, or the load. Only the record can say which. **0** in the first minute of the level. After
   that rule 3, times the share of this level's ends per hour that the levels below it do not have, too.
5. The level in force is charged. Exception: within a minute of a step down, the level that was left is charged, because
   heat and memory lag behind. The step must have been made in the boot that ended: a level that was left because of an
   earlier reboot has not run since.

Worked example: unclean, sign of life 4 s old, eight workers, at heavy since 17 minutes: 1, against heavy. A container is
killed at heavy, for the third time in an hour there; the levels below had 10 hours and no such end: 1. With 20 such ends in
these 10 hours: 1 - 2 / 3 = 0.33.

A crash of a worker, or a worker that runs out of memory, is no reboot, so this rule never sees it. Why not require proof
before a reboot is charged: a box that loses power leaves none, and such reboots matter most. A reboot that is charged
wrongly costs little: such reboots hit all levels alike, and cancel out when levels are compared.
"""

from __future__ import annotations

from typing import Final

from supervisor.formats import span
from supervisor.records import Record

FRESH_S: Final = 120.0
OLD_S: Final = 600.0
LAG_S: Final = 60.0
FIRST_S: Final = 60.0
_HALF: Final = 0.5


class Attribution(Record):
    """`left`: the reboot is charged to the level that was left a moment before, not to the level in force."""

    weight: float
    left: bool
    why: str


def beyond(here: tuple[float, float], below: tuple[float, float]) -> float:
    """The share of this level's rate of ends that the levels below do not explain; each is (ends, time of training)."""
    if not below[0] or below[1] <= 0.0 or not here[0]:
        return 1.0
    return max(0.0, 1.0 - below[0] / below[1] * here[1] / here[0])


def attribute(
    cause: str, *, workers: int, sign_age_s: float | None, since_change_s: float | None = None, stepped_down: bool = False,
    ran_s: float | None = None, share: float | None = None,
) -> Attribution:  # fmt: skip
    """The weight of a reboot, and the level that it counts against.

    `cause` is that of the fact `HostRebooted`. `workers` is the number of workers that use the level and trained when the
    box went down. `sign_age_s` is the time from the last sign of life to the end of that boot (None: unknown).
    `since_change_s` is the time since the level was changed in that boot (None: it was not changed). `stepped_down` says
    whether that change was to a lower level. `share` is the result of `beyond` for a container (None: the host rebooted),
    `ran_s` the time that the workers had trained at the level in this life of the container (None: unknown).
    """
    if cause != "unclean":
        return Attribution(0.0, left=False, why=f"it was intended ({cause}): does not count against the load")
    if workers == 0:
        return Attribution(0.0, left=False, why="nothing that uses the level was training: does not count against the load")
    if sign_age_s is not None and sign_age_s > OLD_S:
        sign = f"the last sign of life was {span(sign_age_s)} old"
        why = f"{sign}, so what ran is unknown: does not count against the load"
        return Attribution(0.0, left=False, why=why)
    if share is not None and (ran_s is None or ran_s < FIRST_S):
        why = "killed from outside in the level's first minute, which proves nothing about it"
        return Attribution(0.0, left=False, why=why)
    if share is not None:
        weight = share * (1.0 if sign_age_s is not None and sign_age_s <= FRESH_S else _HALF)
        why = (
            f"killed from outside, which happens less often below this level by {share:.0%}: counts {weight:.2f} against it"
        )
        return Attribution(weight, left=False, why=why)
    left = stepped_down and since_change_s is not None and since_change_s < LAG_S
    whom = "it counts against the level just left" if left else "it counts against the level"
    down = "the box went down without a shutdown"
    if sign_age_s is None or sign_age_s > FRESH_S:
        return Attribution(_HALF, left, why=f"{down}, and what ran is uncertain: half of {whom}")
    count = f"{workers} worker" if workers == 1 else f"{workers} workers"
    return Attribution(1.0, left, why=f"{down} while {count} trained: {whom}")
