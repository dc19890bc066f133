"""A clause about the pattern of a box's reboots.

The rule. Requested reboots do not count. A run begins with the newest reboot and goes back in time. A reboot belongs to
the run if it was at most two hours before the next one in it; three make a pattern. Where there is no such run, three
reboots within the 24 h up to the newest one are a pattern too. After 24 h without another reboot, there is no pattern any
more.

The clause names the level of most of these reboots if that level had at least three. If all of those came at a similar time
after the level had begun, it gives that time too. Similar means: the latest is at most twice as late as the earliest, or
ten minutes later.

Worked example: unclean reboots at 12:00, 12:25, 12:50 and 13:10, after 15, 18, 20 and 16 minutes at heavy:
`4 in 1h 10m, each 15m to 20m after heavy began`.

Why not a mean time between reboots: a box that ran for a month and then rebooted three times in an hour has a good one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from supervisor.formats import span
from supervisor.records import Record

LEAST: Final = 3
_GAP_S: Final = 2 * 3600.0
_DAY_S: Final = 86_400.0
_ALIKE_S: Final = 600.0
_MINUTE_S: Final = 60.0


class Struck(Record):
    """One reboot that nobody asked for: when, at which level, and the time since that level had begun (None: unknown)."""

    at_s: float
    level: str
    after_s: float | None


def pattern(reboots: Sequence[Struck], *, now_s: float) -> str:
    """The clause; empty when there is no pattern. `reboots` are oldest first."""
    if not reboots or now_s - reboots[-1].at_s > _DAY_S:
        return ""
    run = _run(reboots)
    if len(run) < LEAST:
        return ""
    return f"{len(run)} in {span(run[-1].at_s - run[0].at_s)}{_alike(run)}"


def _run(reboots: Sequence[Struck]) -> Sequence[Struck]:
    first = len(reboots) - 1
    while first > 0 and reboots[first].at_s - reboots[first - 1].at_s <= _GAP_S:
        first -= 1
    run = reboots[first:]
    return run if len(run) >= LEAST else [each for each in reboots if reboots[-1].at_s - each.at_s <= _DAY_S]


def _alike(run: Sequence[Struck]) -> str:
    """The level and the time that most of them share: `, each 15-20 min after heavy began`."""
    level, count = Counter(each.level for each in run).most_common(1)[0]
    if count < LEAST or not level:
        return ""
    there = [each.after_s for each in run if each.level == level]
    known = [after_s for after_s in there if after_s is not None]
    whose = "each" if count == len(run) else f"{count} of them"
    if len(known) < len(there) or max(known) > max(2 * min(known), min(known) + _ALIKE_S):
        return f", all at {level}" if count == len(run) else f", {whose} at {level}"
    low, high = (span(_MINUTE_S * round(edge / _MINUTE_S)) for edge in (min(known), max(known)))
    return f", {whose} {low if low == high else f'{low} to {high}'} after {level} began"
