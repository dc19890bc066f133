"""Whether the daemon itself did not run for a while, so that this time does not count against workers.

The rule:

1. The daemon was *away* when its deciding thread took its next input more than `AWAY_S` later than planned. The thread
   never waits for more than two seconds, so in that time it did not run: SIGSTOP, a suspended or overloaded host, a disk
   that hung.
2. Time away does not age a worker: every time stamp by which a stall is judged moves forward by the time away.
3. For half of the time away, at most `SETTLE_S`, no worker is judged or killed. In this time the daemon first reads the
   messages in sockets and pipes, and workers that were suspended too can run.
4. Ages are counted up to the moment of the sample, not to the time at which it is processed.

Worked example: last progress at 100 s, the daemon is stopped from 103 s to 163 s. Until 168 s no worker is judged; at 169 s
the age is 69 - 60 = 9 s.

Why not by the time between two looks: if a slow disk or /proc makes each look take 6 s, the daemon would always count as
away, and would never judge a worker.
"""

from __future__ import annotations

from typing import Final

AWAY_S: Final = 3.0
SETTLE_S: Final = 5.0
TOLD_AGAIN_S: Final = 60.0  # on an overloaded box, the next absence is recorded only after a quiet minute
MOST: Final = 64  # number of absences kept; an age that spans more is reduced by these only

Absence = tuple[float, float]  # from, until


def was_away(*, asked_s: float, gap_s: float) -> bool:
    """Whether the thread was away: it planned to wait for at most `asked_s`, and got its next input after `gap_s`."""
    return gap_s - asked_s > AWAY_S


def settle_s(away_s: float) -> float:
    """How long the daemon reads messages before it judges a worker again."""
    return min(SETTLE_S, away_s / 2)


def remember(absences: tuple[Absence, ...], absence: Absence) -> tuple[Absence, ...]:
    return (*absences, absence)[-MOST:]


def is_news(absences: tuple[Absence, ...], from_s: float) -> bool:
    """Whether an absence that began at `from_s` is recorded as a fact of its own."""
    return not absences or from_s - absences[-1][1] > TOLD_AGAIN_S


def moved_on(at_s: float, absences: tuple[Absence, ...]) -> float:
    """The time stamp, moved forward by the part of each absence that came after it.

    Example: 100 s, away from 103 s to 163 s: 160 s. A stamp of 165 s stays unchanged.
    """
    if not absences or at_s >= absences[-1][1]:  # the usual case: stamps are seconds old
        return at_s
    return at_s + sum(until_s - max(from_s, at_s) for from_s, until_s in absences if until_s > at_s)


def moved_on_if_known(at_s: float | None, absences: tuple[Absence, ...]) -> float | None:
    """The time stamp moved forward as by `moved_on`; None (unknown) stays None."""
    return None if at_s is None else moved_on(at_s, absences)
