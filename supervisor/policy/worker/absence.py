"""Whether the daemon itself did not run for a while, so that this time does not count against workers.

The rule:

1. The daemon was *away* when its deciding thread took its next input more than `AWAY_S` later than planned. The thread never
   waits for more than two seconds, so it did not run: SIGSTOP, a suspended or overloaded host, a disk that hung.
2. Time away does not age a worker: every stamp by which a stall is judged moves forward by it.
3. For half of the time away, at most `SETTLE_S`, no worker is judged or killed: messages in sockets and pipes are read
   first, and workers that were suspended, too, can run.
4. Ages are counted up to the moment of the sample, not to the time at which it is processed.

Worked example: last progress at 100 s, the daemon is stopped from 103 s to 163 s. Until 168 s nobody is judged; at 169 s
the age is 69 - 60 = 9 s. Had the worker hung since 100 s it would be overdue (limit 30 s) at 191 s.

Why not by the time between two looks: a look that takes 6 s because a disk or /proc is slow would make a daemon that is
always away, and judge nobody for ever. By this rule a look may take as long as it likes: the deciding thread, which does
not look, comes back no later for it. And why not a fixed time of grace: after an hour's suspend half a minute proves
nothing, and a box that stops for 6 s in every 20 would be judged never; here its stalls are found in twice the time.
"""

from __future__ import annotations

from typing import Final

AWAY_S: Final = 3.0
SETTLE_S: Final = 5.0
TOLD_AGAIN_S: Final = 60.0  # on an overloaded box, the next absence is recorded only after a quiet minute
MOST: Final = 64  # absences that are remembered: an age that spans more of them is cut short by those alone

Absence = tuple[float, float]  # from, until


def was_away(*, asked_s: float, gap_s: float) -> bool:
    """Whether a thread that was ready to wait for `asked_s` and has its next input after `gap_s` was away."""
    return gap_s - asked_s > AWAY_S


def settle_s(away_s: float) -> float:
    """How long to read messages before a worker is judged again."""
    return min(SETTLE_S, away_s / 2)


def remember(absences: tuple[Absence, ...], absence: Absence) -> tuple[Absence, ...]:
    return (*absences, absence)[-MOST:]


def is_news(absences: tuple[Absence, ...], from_s: float) -> bool:
    """Whether an absence that began at `from_s` is worth a fact of its own."""
    return not absences or from_s - absences[-1][1] > TOLD_AGAIN_S


def moved_on(at_s: float, absences: tuple[Absence, ...]) -> float:
    """The stamp as if nobody had been away since: later by as much of every absence as came after it.

    Example: 100 s, away from 103 s to 163 s: 160 s. A stamp of 165 s stays as it is.
    """
    if not absences or at_s >= absences[-1][1]:  # as nearly always: stamps are seconds old
        return at_s
    return at_s + sum(until_s - max(from_s, at_s) for from_s, until_s in absences if until_s > at_s)
