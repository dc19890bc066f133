"""Whether the daemon itself was away, and how workers are then judged: not by its own absence.

The rule:

1. *Away* is a deciding thread that came back late. It never waits for more than two seconds; when it took its next input
   more than `AWAY_S` after that, it did not run meanwhile: SIGSTOP, a suspended or a starving host, a disk that hung.
2. Time that the daemon was away for is nobody's age: every stamp that a stall is judged by is moved on by it.
3. For half as long as it was away, at most `SETTLE_S`, nobody is judged and nobody killed at all: what has gathered in
   sockets and pipes is heard first, and workers that were suspended too get their turn.
4. Ages are counted to the moment at which the look began, never to when its turn comes.

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
TOLD_AGAIN_S: Final = 60.0  # a box that starves is told at its first gasp, and again only after a quiet minute
MOST: Final = 64  # absences that are remembered: an age that spans more of them is cut short by those alone

Absence = tuple[float, float]  # from, until


def was_away(*, asked_s: float, gap_s: float) -> bool:
    """Whether a thread that was ready to wait for `asked_s` and has its next input after `gap_s` was away."""
    return gap_s - asked_s > AWAY_S


def settle_s(away_s: float) -> float:
    """How long to listen before anybody is judged again."""
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
    return at_s + sum(until_s - max(from_s, at_s) for from_s, until_s in absences if until_s > at_s)
