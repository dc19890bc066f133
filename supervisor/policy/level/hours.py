"""Whether the box has bad hours: hours of the day in which it reboots far more often, at the same level, than in the others.

A day is a cycle of 24 h of journal time. The wall clock and the time zone play no part, so a stepped clock changes nothing.

**Rule.** The rule looks at the reboots that counted against a level, and at the training time of each level by hour of the
cycle. Both fade by 5 % a day. A *stretch* is a range of hours that begins and ends with a reboot. For each stretch the rule
compares two hypotheses: the reboot rate inside differs from the rate outside, or it is the same all day. The hours of a
stretch are **bad** when

1. the likelihood ratio is at least e^11,
2. the reboot rate inside is at least three times the rate outside,
3. reboots inside happened on at least three days, and
4. the levels that rebooted inside have trained outside for a day or more.

If several stretches qualify, the one with the highest likelihood counts. From then on the load policy keeps two records, one
for the bad hours and one for the others, each with its own home level. It changes between them when the hour comes
(`policy/level/load.py`).

**Worked example.** Heavy reboots every half hour from 10:00 to 20:00 and never otherwise. In three days heavy has trained
for 36 h outside and for 4 h inside, with 8 reboots, all of them inside. That is a likelihood ratio of e^15. On the fourth
day at 10:00 the box goes to the level that is worth most in those hours, and at 20:00 back to heavy: without waiting for a
reboot, and without a trial.

Why not a rate for each hour: an hour has one or two reboots at most, and the most informative level no longer runs in the
bad hours. Why e^11: about a hundred stretches are tested after each reboot.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import add
from typing import Final, NamedTuple

DAY_S: Final = 86400.0
_HOUR_S: Final = 3600.0
_HOURS: Final = 24
_FADES: Final = 0.95  # factor per day
_LOG_RATIO: Final = 11.0  # logarithm of the likelihood ratio
_RATE_RATIO: Final = 3.0
_DAYS: Final = 3
_OUTSIDE_S: Final = DAY_S
_KEPT: Final = 60
_KEPT_S: Final = 21 * DAY_S
_LONGEST: Final = 18  # hours
_FEWEST: Final = 2.8  # below it k log((2 k + 1)^2) < _LOG_RATIO: the largest ratio of k reboots where none was expected
_BEFORE_S: Final = 600.0  # the bad hours begin this long before the earliest reboot of any day ...
_AFTER_S: Final = 600.0  # ... and end this long after the latest

Reboot = tuple[float, int, float]  # journal time, level, weight
Stretch = tuple[float, float]  # first and last second of the cycle; a stretch may go past the end of the cycle


class Hours(NamedTuple):
    """`up_s` is the training time by level, and by hour of the cycle; `reboots` are (journal time, level, weight)."""

    up_s: tuple[tuple[float, ...], ...] = ()
    reboots: tuple[Reboot, ...] = ()
    bad: Stretch | None = None


def unseen(levels: int) -> Hours:
    """The record before any training."""
    return Hours(up_s=((0.0,) * _HOURS,) * levels)


def are_bad(hours: Hours, at_s: float) -> bool:
    """Whether `at_s` is in the bad hours."""
    return hours.bad is not None and _within(hours.bad, at_s % DAY_S)


def changes_in_s(hours: Hours, at_s: float) -> float | None:
    """Seconds until the bad hours begin, or until they end if `at_s` is in them; None: there are none."""
    if hours.bad is None:
        return None
    return (hours.bad[are_bad(hours, at_s)] - at_s) % DAY_S


def ran(hours: Hours, level: int, *, before_s: float, at_s: float, up_s: float) -> Hours:
    """The record after `up_s` of training at a level until `at_s`; the previous call had `before_s` as its `at_s`."""
    up, reboots, bad = hours
    number = int(at_s / _HOUR_S)
    hour = number % _HOURS
    if number != int(before_s / _HOUR_S):
        up = tuple([(*row[:hour], row[hour] * _FADES, *row[hour + 1 :]) for row in up])
    rows, row = list(up), list(up[level])
    row[hour] += up_s
    rows[level] = tuple(row)
    return Hours(tuple(rows), reboots, bad)


def rebooted(hours: Hours, level: int, *, at_s: float, weight: float) -> Hours:
    """The record after a reboot that counts against a level, with the likeliest stretch of bad hours around it, if any."""
    reboots = hours.reboots
    if reboots and at_s - reboots[0][0] > _KEPT_S:  # the oldest reboot is the first
        reboots = tuple(each for each in reboots if at_s - each[0] <= _KEPT_S)
    reboots = (*reboots, (at_s, level, weight))[-_KEPT:]
    hours = Hours(hours.up_s, reboots, hours.bad)
    if at_s // DAY_S - reboots[0][0] // DAY_S < _DAYS - 1:
        return hours
    counts = _counts(reboots, at_s)
    candidates = _candidates(hours, counts, _hour(at_s))
    rows = _rows(hours, counts) if candidates else []
    log_ratio, begin, count = _LOG_RATIO, 0, 0
    for first, length in candidates:
        found = _log_ratio(rows, first, length)
        if found > log_ratio and _days(reboots, first, length) >= _DAYS:
            log_ratio, begin, count = found, first, length
    return hours if not count else Hours(hours.up_s, reboots, _edges(reboots, begin, count))


def share(hours: Hours, at_s: float, level: int, *, bad: bool) -> tuple[float, float]:
    """Reboots (by weight) and training time of a level in the bad hours, or in the other hours, as far as recorded."""
    reboots = up_s = 0.0
    for when_s, of, weight in hours.reboots:
        if of == level and _within(hours.bad, when_s % DAY_S) == bad:
            reboots += weight * _FADES ** ((at_s - when_s) / DAY_S)
    for hour, ran_s in enumerate(hours.up_s[level]):
        up_s += ran_s if _within(hours.bad, (hour + 0.5) * _HOUR_S) == bad else 0.0
    return reboots, up_s


def _hour(at_s: float) -> int:
    return int(at_s % DAY_S / _HOUR_S)


def _within(stretch: Stretch | None, phase_s: float) -> bool:
    if stretch is None:
        return False
    begin_s, end_s = stretch
    return begin_s <= phase_s < end_s if begin_s <= end_s else phase_s >= begin_s or phase_s < end_s


class _Row(NamedTuple):
    """A level with reboots: running sums of its training time and of its reboots over two cycles, from hour 0."""

    up_s: tuple[float, ...]
    counts: tuple[float, ...]


def _rows(hours: Hours, counts: dict[int, list[float]]) -> list[_Row]:
    rows = []
    for level, row in counts.items():
        up = hours.up_s[level]
        rows.append(_Row(tuple(accumulate((*up, *up), initial=0.0)), tuple(accumulate((*row, *row), initial=0.0))))
    return rows


def _counts(reboots: tuple[Reboot, ...], now_s: float) -> dict[int, list[float]]:
    """By level: the faded number of reboots in each hour of the cycle."""
    counts: dict[int, list[float]] = {}
    for when_s, level, weight in reboots:
        if level not in counts:
            counts[level] = [0.0] * _HOURS
        counts[level][_hour(when_s)] += weight * _FADES ** ((now_s - when_s) / DAY_S)
    return counts


def _candidates(hours: Hours, counts: dict[int, list[float]], newest: int) -> list[tuple[int, int]]:
    """Stretches (first hour, length in hours) around the newest reboot whose reboot rate can be high enough.

    The newest reboot makes only those stretches likelier that contain it. One sum over all levels excludes nearly all
    stretches at little cost. Clipping a share (in `_log_ratio`) changes the expected count by `slack` at most. Fewer than
    `_FEWEST` reboots inside never reach the threshold, even if none was expected there.
    """
    ins = expected = [0.0] * _HOURS
    slack = 1e-6
    for level, row in counts.items():
        up, whole = hours.up_s[level], sum(row)
        ins, up_s = list(map(add, ins, row)), sum(up)
        slack += 0.01 * whole
        if up_s:
            rate = whole / up_s
            expected = [before + rate * ran_s for before, ran_s in zip(expected, up, strict=True)]
        else:
            slack -= 0.5 * whole
    of_day = [hour for hour, each in enumerate(ins) if each]
    ends = [*(hour + 1 for hour in of_day), *(hour + 1 + _HOURS for hour in of_day)]
    ins, expected = list(accumulate((*ins, *ins), initial=0.0)), list(accumulate((*expected, *expected), initial=0.0))
    every = ins[_HOURS] + 1.0  # half a reboot is added inside and outside, as in `_log_ratio`
    found = []
    for first in of_day:
        least = max(first + (newest - first) % _HOURS, bisect_left(ins, ins[first] + _FEWEST) - 1)
        count_before, expected_before = ins[first] - 0.5, expected[first] + slack - 0.5
        for end in ends[bisect_right(ends, least) : bisect_right(ends, first + _LONGEST)]:
            inside, least_expected = ins[end] - count_before, expected[end] - expected_before
            least_expected = max(least_expected, 0.5)
            if inside * (every - least_expected) >= _RATE_RATIO * least_expected * (every - inside):
                found.append((first, end - first))
    return found


def _log_ratio(rows: list[_Row], first: int, length: int) -> float:
    """Logarithm of the likelihood ratio: a separate rate in these hours against one rate all day; 0.0: they are not bad."""
    found, inside, outside, expected_in, expected_out, out_s = [], 0.0, 0.0, 0.0, 0.0, 0.0
    for up, counts in rows:
        in_s, count_in = up[first + length] - up[first], counts[first + length] - counts[first]
        whole_s, whole = up[_HOURS], counts[_HOURS]
        share = min(0.99, max(0.01, in_s / whole_s if whole_s else 0.5))
        found.append((count_in, whole - count_in, share))
        inside, outside = inside + count_in, outside + whole - count_in
        expected_in, expected_out = expected_in + whole * share, expected_out + whole * (1.0 - share)
        out_s += whole_s - in_s if count_in else 0.0
    rate_ratio = (inside + 0.5) / (expected_in + 0.5) / ((outside + 0.5) / (expected_out + 0.5))
    if rate_ratio < _RATE_RATIO or out_s < _OUTSIDE_S:
        return 0.0
    log_ratio = inside * math.log(rate_ratio)
    for ins, outs, share in found:
        log_ratio -= (ins + outs) * math.log(rate_ratio * share + 1.0 - share)
    return log_ratio


def _days(reboots: tuple[Reboot, ...], first: int, length: int) -> int:
    """The number of days with a reboot in these hours; a day begins at the first of these hours."""
    ages = (when_s - first * _HOUR_S for when_s, _, _ in reboots)
    return len({int(age_s // DAY_S) for age_s in ages if age_s % DAY_S < length * _HOUR_S})


def _edges(reboots: tuple[Reboot, ...], first: int, length: int) -> Stretch:
    """From `_BEFORE_S` before the earliest reboot of these hours to `_AFTER_S` after the latest: not at whole hours."""
    begin_s = first * _HOUR_S
    phases = [(when_s - begin_s) % DAY_S for when_s, _, _ in reboots]
    phases = [each for each in phases if each < length * _HOUR_S]
    return (begin_s + min(phases) - _BEFORE_S) % DAY_S, (begin_s + max(phases) + _AFTER_S) % DAY_S
