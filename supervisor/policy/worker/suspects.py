"""When a checkpoint that a script wrote itself is set aside because every start from it dies, and when it is put back.

Many scripts load the newest file without checking it. If that file is torn, or looks whole and lacks a part (a shard that
was never written), each start dies of it. The rule:

1. The suspect of an attempt is the newest checkpoint when it began: the torn one that is newer than every whole one, else
   the whole one that it resumes from. Once the attempt has written a checkpoint it has no suspect.
2. A crash or a stall counts against the suspect (`BLAMED`). Nobody's SIGKILL, no lack of memory and no reboot counts.
3. After `poison_deaths` of them since it was healthy, the suspect is set aside (renamed), and the one before it is tried.
4. Never if no older one is whole: the script would begin at step 0, which may be worse than waiting for a person, who is
   told at once. But three deaths prove a cut in one that an end may have cut (`newest_whole.py`): it is set aside, on trial.
5. One that may be whole is set aside on trial. If the program dies of `MOST_TRIED` checkpoints, one after the other, or of
   all that there are, then the cause is not a checkpoint (a missing GPU, a mistake in the script). All of them are put back,
   which is reported, and none is set aside again before the program was healthy. The same if a person starts it before that.
6. The trial is over once the program writes a checkpoint or is healthy: what was set aside stays so.

Worked example, three deaths: `global_step20` lacks a shard. Attempts 1, 2 and 3 begin with it, and die; before attempt 4 it
becomes `.global_step20.bad`. Attempt 4 resumes from `global_step10` and saves `global_step15`: the trial is over.

Why not at once: a script may handle torn files itself, and its author may want to look at the file.
"""

from __future__ import annotations

import enum
from typing import Final

MOST_TRIED: Final = 3
BLAMED: Final = frozenset({"crash", "stalled"})  # causes of an end (`diagnosis.py`) that may lie in a checkpoint


class Verdict(enum.Enum):
    """What to do with a suspect before the next start."""

    KEEP = 0
    SET_ASIDE = 1
    PUT_BACK = 2  # those that were tried before it, if any; an alert is sent


def judge(most_deaths: int, *, deaths: int, torn: bool, older_is_whole: bool, tried: int, acquitted: bool) -> Verdict:
    """The verdict after a death. `deaths` counts those that are blamed on this suspect.

    `tried` whole ones were set aside on trial before it. `acquitted`: such a trial has ended without a result.
    """
    if deaths < most_deaths or acquitted:
        return Verdict.KEEP
    if older_is_whole and (torn or tried + 1 < MOST_TRIED):
        return Verdict.SET_ASIDE
    return Verdict.PUT_BACK
