"""At which resolution the recorded past is kept, for how long, and which resolution answers a question.

The rule. A reading of every `TIERS[0].period_s` is kept for the span of that tier. Once a period of the next tier is over,
its rows are folded into one (least, mean and most of what is measured; the newest of what is counted), and so on. When
the file is larger than `max_mb`, what each tier holds is shortened by the same factor, so that a box with many programs
remembers less of everything instead of nothing of the night before. A question is answered by the finest tier that
reaches back as far as it asks, or as anything was recorded, in no more than the points that it asks for; where none does, by
the coarsest. How far a tier reaches back is told by its oldest row: a file over its bound holds less than `keep_s`.

Worked example. 12 hours in at most 1,000 points: 10 s would be 4,320 points and reaches back 6 hours only; a minute has 720
points. The file is 160 MB of 128 allowed: every tier keeps 0.9 * 128 / 160 = 0.72 of its present span. Rows of
10 s reached back 6 hours and now 4.3; rows of an hour reached back 20 days, as the box is no older, and now 14.4.

Why not thin the rows at random when they are drawn: spikes come and go from one look to the next. Why not drop the oldest
rows of the file alone: the coarse ones are the oldest and the cheapest, and the only ones of last month.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
    """One resolution."""

    period_s: float
    keep_s: float


TIERS: Final = (
    Tier(10.0, 6 * _HOUR_S), Tier(60.0, 2 * _DAY_S), Tier(600.0, 14 * _DAY_S), Tier(3600.0, 90 * _DAY_S),
)  # fmt: skip


def kept_spans(tiers: Sequence[Tier], oldest_s: Sequence[float], size_bytes: int, most_bytes: int) -> list[float]:
    """How many seconds of each tier are kept. `oldest_s` is the age of each tier's oldest row."""
    factor = _ROOM * most_bytes / size_bytes if size_bytes > most_bytes else 1.0
    return [min(tier.keep_s, age_s) * factor for tier, age_s in zip(tiers, oldest_s, strict=True)]


def tier_for(tiers: Sequence[Tier], oldest_s: Sequence[float], since_s: float, until_s: float, most_points: int) -> Tier:
    """The tier that answers a question about a window in at most `most_points` points. `oldest_s`: each tier's oldest row.

    All are moments of journal time. Example: at 100 h, asked for the last 12 h, a file over its bound whose minutes begin at
    91 h and whose ten minutes begin at 40 h answers by ten minutes.
    """
    begun_s = max(since_s, min(oldest_s, default=since_s))
    for tier, oldest in zip(tiers, oldest_s, strict=False):
        if oldest < begun_s + tier.period_s and until_s - begun_s <= tier.period_s * most_points:
            return tier
    return tiers[-1]


def bucket_of(at_s: float, period_s: float) -> float:
    """The beginning of the period that a moment is in, in seconds of journal time."""
    return at_s // period_s * period_s
