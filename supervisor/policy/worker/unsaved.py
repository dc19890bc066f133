"""Whether a program trains on without saving, although its checkpoints are due.

A worker reports a save that fails. It cannot report a save that never happens: its wish to save is never met, its
directory is gone, or its disk hangs. So the daemon compares the age of the newest checkpoint with the program's interval:

* the limit is max(3 intervals, 10 minutes);
* the time counts from the newest checkpoint, or from the moment when training began, whichever is later, to the newest
  progress: a worker that hangs for ten minutes, because its stall limit is an hour, has failed no save;
* only steps beyond that checkpoint count: a program without new steps has nothing to lose.

Worked example: interval 10 s, newest checkpoint at step 9,000 eleven minutes ago, now at step 60,000. The limit is 600 s,
660 s have passed: overdue.

A program that decides by itself when to save has no interval. It is compared with its own habit: the largest of these gaps
between checkpoints takes the place of the interval: the usual one of those in its directory; the usual one of earlier
attempts with this configuration and level; the longest of this attempt, because a save that comes late shows that this is
its habit. If no gap is known, two hours without a checkpoint are too long.

Worked example: it writes over one file every 5 min, and is restarted. The next attempt makes steps for 16 min and does not
save: reported. It saves after 40 min: the trouble is over, and the next report of this attempt is due after two hours.

Why not one missed interval: a rollout is finished before a save, an evaluation may take minutes, and slow disks are common.
"""

from __future__ import annotations

from typing import Final

from supervisor.formats import span

_INTERVALS: Final = 3.0
_LEAST_S: Final = 600.0
_UNKNOWN_S: Final = 7200.0
_NEW: Final = 1.25


def limit_s(interval_s: float) -> float:
    """How long a program may train without a new checkpoint."""
    return max(_INTERVALS * interval_s, _LEAST_S)


def overdue(age_s: float, interval_s: float, steps: int | None, saved_step: int | None) -> str:
    """The problem as a sentence; empty: there is none, or too little is known.

    `age_s`: since the newest checkpoint, or since training began. `saved_step` is None before the first checkpoint.
    """
    if steps is None or steps <= (saved_step or 0) or age_s <= limit_s(interval_s):
        return ""
    since = "since training began" if saved_step is None else f"since step {saved_step:,}"
    return f"no checkpoint for {span(age_s)} {since} (due every {span(interval_s)}), now at step {steps:,}"


def is_new_gap(gap_s: float | None, known_s: float | None) -> bool:
    """Whether the usual gap between two saves is recorded: if its limit differs by a quarter from that on record."""
    return gap_s is not None and (known_s is None or not 1 / _NEW < limit_s(gap_s) / limit_s(known_s) < _NEW)


def overdue_unasked(age_s: float, interval_s: float | None, *, steps: int | None, saved_step: int | None, note: str) -> str:
    """As `overdue`, for a program that decides by itself when to save; `note`: a possible reason, as a clause."""
    if age_s <= (_UNKNOWN_S if interval_s is None else limit_s(interval_s)):
        return ""
    if steps is not None and saved_step is not None and steps <= saved_step:
        return ""
    usually = "" if interval_s is None else f" (usually every {span(interval_s)})"
    return f"no checkpoint for {span(age_s)}{usually}{f': {note}' if note else ''}"
