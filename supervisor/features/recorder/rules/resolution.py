"""The resolution at which the recorded past is kept, for how long, and which resolution answers a question.

The rule. A reading is recorded every `TIERS[0].period_s` and kept for the span of that tier. Once a period of the next
tier is over, its rows are folded into one row, and so on from tier to tier. The fold keeps the least, mean and most of a
measured series, and the newest value of a counted one. When the file is larger than `max_mb`, the span of every tier is
shortened by the same factor. So a box with many programs keeps less of everything, instead of nothing of the last night.

A question is answered by the finest tier that reaches back far enough: as far as the question asks, or to the first
recorded row. If it has more points than asked for, neighbours are drawn as one: of ONE_POINT rows at most, beyond that a
coarser tier answers. If no tier fits, the coarsest one answers. How far a tier reaches back is read from its oldest row:
if the file is over its bound, the tier holds less than `keep_s`.

Points are asked for by program, but the time of an answer depends on its number of numbers. So an answer has at most
MOST_NUMBERS. A box with many programs has at least LEAST_POINTS of each, and its answers take longer in proportion.

Worked example. 24 hours in at most 1,000 points: 10 s reaches back 6 hours only; a minute has 1,440 points. Two minutes as
one make 720. Of 100 programs with three curves a row has 18 numbers, and there is room for 16,666 rows, 166 points of each:
ten minutes. The file is 160 MB of 128 allowed: every tier keeps 0.9 * 128 / 160 = 0.72 of its present span.

Why not thin the rows at random when they are drawn: spikes come and go from one look to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final, NamedTuple

from supervisor.records import Record

_HOUR_S: Final = 3600.0
_DAY_S: Final = 24 * _HOUR_S
_ROOM: Final = 0.9  # target share of the allowed size after it was exceeded: a target of 1 would be exceeded again at once


class Tier(Record):
    """One resolution. `by_attempt`: each attempt of a program in one period has its own row; else they share one."""

    period_s: float
    keep_s: float
    by_attempt: bool = True


# A box that reboots every 20 minutes begins 72 attempts a day: with a row for each, a day would be no coarser than an hour.
TIERS: Final = (
    Tier(10.0, 6 * _HOUR_S), Tier(60.0, 2 * _DAY_S), Tier(600.0, 14 * _DAY_S), Tier(3600.0, 90 * _DAY_S),
    Tier(6 * _HOUR_S, 365 * _DAY_S, by_attempt=False), Tier(_DAY_S, 1095 * _DAY_S, by_attempt=False),
)  # fmt: skip
MOST_NUMBERS: Final = 300_000
LEAST_POINTS: Final = 120
MANY_SUBJECTS: Final = 20
ONE_POINT: Final = 4


def kept_spans(tiers: Sequence[Tier], oldest_s: Sequence[float], size_bytes: int, most_bytes: int) -> list[float]:
    """The number of seconds to keep in each tier. `oldest_s` is the age of each tier's oldest row."""
    factor = _ROOM * most_bytes / size_bytes if size_bytes > most_bytes else 1.0
    return [min(tier.keep_s, age_s) * factor for tier, age_s in zip(tiers, oldest_s, strict=True)]


class Held(NamedTuple):
    """The rows of a tier for a requested window."""

    oldest_s: float  # time of the tier's oldest row, also outside of the window; inf: the tier is empty
    rows: int  # rows inside the window


def tier_for(
    tiers: Sequence[Tier], held: Sequence[Held], since_s: float, until_s: float, most_points: float, most_rows: float
) -> Tier:  # fmt: skip
    """The tier that answers a question about a window in at most `most_points` points a subject and `most_rows` in all.

    All times are journal time. Example: at 100 h the last 12 h are requested. The file was over its bound: its rows of a
    minute begin at 91 h, its rows of ten minutes at 40 h. So the rows of ten minutes answer.
    """
    begun_s = max(since_s, _first(tiers, held, since_s))
    for tier, each in zip(tiers, held, strict=False):
        fits = until_s - begun_s <= tier.period_s * most_points and each.rows <= most_rows
        if each.oldest_s < begun_s + tier.period_s and fits:
            return tier
    return tiers[-1]


def _first(tiers: Sequence[Tier], held: Sequence[Held], none: float) -> float:
    """The time of the first recorded row. A coarser one with the same readings has the time at which its period began.

    Example: the first reading came at 12 s, so the first row of an hour is of 0 s: that is no older past.
    """
    for place, each in enumerate(held):
        coarser = zip(tiers[place + 1 :], held[place + 1 :], strict=False)
        if all(other.oldest_s >= bucket_of(each.oldest_s, tier.period_s) for tier, other in coarser):
            return each.oldest_s
    return none


def rows_for(numbers: int, subjects: int) -> int:
    """The maximum number of rows in one answer. Example: 18 numbers a row: 16,666 for 20 programs, 24,000 for 200."""
    return max(MOST_NUMBERS // numbers, LEAST_POINTS * subjects)


def points_for(
    held: Sequence[Held], since_s: float, until_s: float, points: int, most_rows: int, subjects: int
) -> tuple[Tier, float | None]:  # fmt: skip
    """The tier that answers, and the period in which all rows of a program become one point; None: each row is a point.

    The period is a multiple of the tier's, so that no point lacks rows. If there are only a few points too many, it is one
    and a half of the tier's: two would make about half as many points.
    """
    most_points = min(points, most_rows / subjects)
    tier = tier_for(TIERS, held, since_s, until_s, ONE_POINT * most_points, ONE_POINT * most_rows)
    begun_s = max(since_s, _first(TIERS, held, since_s))
    share = (until_s - begun_s) / (tier.period_s * most_points)
    if share <= 1.0:
        crowded = held and held[TIERS.index(tier)].rows > most_points * subjects
        return tier, tier.period_s if crowded else None
    return tier, tier.period_s * (1.5 if share <= 1.2 else ceil(share))


def bucket_of(at_s: float, period_s: float) -> float:
    """The beginning of the period that contains a moment, in seconds of journal time."""
    return at_s // period_s * period_s
