"""When a torn checkpoint that a script wrote itself is set aside, so that the script finds the previous one.

Many scripts load the newest file without checking it, and die of it again and again. The rule, for each counted death:

1. The death counts against a torn checkpoint if that was the newest checkpoint when the attempt began, newer than every
   whole one.
2. After `poison_deaths` such deaths since the program was last healthy, that checkpoint is set aside: renamed, not removed.
3. Never when no older checkpoint is whole: the script would begin at step 0, which may be worse than waiting for a person
   who looks in the morning. So a `checkpoint_check` that calls every checkpoint torn sets none aside.

Worked example, three deaths: the box is killed while `step=900.pt` is written. Attempts 2, 3 and 4 begin with it, and
die; before attempt 5 it becomes `.step=900.pt.bad`, and attempt 5 resumes from `step=800.pt`.

Why not at once: a script may handle torn files itself, and its author may want to look at the file. Why not the same for
a whole checkpoint: a missing GPU kills too. For a whole checkpoint, only deaths after training had begun count
(`restart.is_poison`).
"""

from __future__ import annotations


def is_due(most_deaths: int, *, deaths: int, older_is_whole: bool) -> bool:
    """Whether to set it aside. `deaths` counts the deaths of attempts that began with this checkpoint as the newest."""
    return older_is_whole and deaths >= most_deaths
