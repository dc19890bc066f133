"""At which resolution the recorded past is kept, for how long, and which resolution answers a question.

The rule. A reading of every `TIERS[0].period_s` is kept for the span of that tier. Once a period of the next tier is over,
its rows are folded into one (least, mean and most of what is measured; the newest of what is counted), and so on. When
the file is larger than `max_mb`, what each tier holds is shortened by the same factor, so that a box with many programs
remembers less of everything instead of nothing of the night before. A question is answered by the finest tier that
reaches back as far as it asks, or as anything was recorded, in no more than the points that it asks for, and in no more rows
than an answer has room for; where none does, by the coarsest. How far a tier reaches back is told by its oldest row: a file
over its bound holds less than `keep_s`.

Points are asked for by program, but an answer takes as long as it has numbers: 20 curves of 20 programs for 33 hours by the
minute would be 1.7 million, two seconds of the daemon and 26 MB. So an answer has at most MOST_NUMBERS. A box with more than
MANY_SUBJECTS programs has the resolution of one with as many, and its answers take longer in proportion.

Worked example. 12 hours in at most 1,000 points: 10 s would be 4,320 points and reaches back 6 hours only; a minute has 720
points. Of 20 programs that is 14,400 rows. With three curves a row has 17 numbers, and there is room for 2,647: ten minutes,
72 points of each program. The file is 160 MB of 128 allowed: every tier keeps 0.9 * 128 / 160 = 0.72 of its present span.
Rows of 10 s reached back 6 hours and now 4.3; rows of an hour reached back 20 days, as the box is no older, and now 14.4.

Why not thin the rows at random when they are drawn: spikes come and go from one look to the next. Why not drop the oldest
rows of the file alone: the coarse ones are the oldest and the cheapest, and the only ones of last month.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from supervisor.records import dataclass

_HOUR_S: Final = 3600.0
_DAY_S: Final = 24 * _HOUR_S
_ROOM: Final = 0.9  # of what is allowed, once it was exceeded: else it would be exceeded again at once


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """How much may be recorded of the past."""

    max_mb: int = 128  # 0: nothing is recorded


@dataclass(frozen=True, slots=True)
class Tier:
    """One resolution. `by_attempt`: the attempts of a program in one period have a row each; else they share one."""

    period_s: float
    keep_s: float
    by_attempt: bool = True


# A box that reboots every 20 minutes begins 72 attempts a day: with a row for each, a day would be no coarser than an hour.
TIERS: Final = (
    Tier(10.0, 6 * _HOUR_S), Tier(60.0, 2 * _DAY_S), Tier(600.0, 14 * _DAY_S), Tier(3600.0, 90 * _DAY_S),
    Tier(6 * _HOUR_S, 365 * _DAY_S, by_attempt=False), Tier(_DAY_S, 1095 * _DAY_S, by_attempt=False),
)  # fmt: skip
MOST_NUMBERS: Final = 45_000
MANY_SUBJECTS: Final = 20


def kept_spans(tiers: Sequence[Tier], oldest_s: Sequence[float], size_bytes: int, most_bytes: int) -> list[float]:
    """How many seconds of each tier are kept. `oldest_s` is the age of each tier's oldest row."""
    factor = _ROOM * most_bytes / size_bytes if size_bytes > most_bytes else 1.0
    return [min(tier.keep_s, age_s) * factor for tier, age_s in zip(tiers, oldest_s, strict=True)]


class Held(NamedTuple):
    """What a tier holds of a window that is asked for."""

    oldest_s: float  # of all that it holds; inf: nothing
    rows: int


def tier_for(
    tiers: Sequence[Tier], held: Sequence[Held], since_s: float, until_s: float, most_points: int, most_rows: float
) -> Tier:  # fmt: skip
    """The tier that answers a question about a window in at most `most_points` points a subject and `most_rows` in all.

    All are moments of journal time. Example: at 100 h, asked for the last 12 h, a file over its bound whose minutes begin at
    91 h and whose ten minutes begin at 40 h answers by ten minutes.
    """
    begun_s = max(since_s, min((each.oldest_s for each in held), default=since_s))
    for tier, each in zip(tiers, held, strict=False):
        fits = until_s - begun_s <= tier.period_s * most_points and each.rows <= most_rows
        if each.oldest_s < begun_s + tier.period_s and fits:
            return tier
    return tiers[-1]


def rows_for(numbers: int, subjects: int) -> float:
    """How many rows of so many numbers one answer has room for. Example: of 17, 2,647 for 20 programs, 5,294 for 40."""
    return MOST_NUMBERS // numbers * max(1.0, subjects / MANY_SUBJECTS)


def bucket_of(at_s: float, period_s: float) -> float:
    """The beginning of the period that a moment is in, in seconds of journal time."""
    return at_s // period_s * period_s
