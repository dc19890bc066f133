"""Whether the box has bad hours: hours of the day in which it reboots far more often, at the same level, than in the others.

A day is a cycle of 24 h of journal time, whatever the wall clock says. A box that is too warm every afternoon, or whose
neighbour's nightly job draws the power, keeps to it without anybody knowing its time zone, and a stepped clock moves
nothing.

The rule. It weighs reboots that were held against a level, and the training there by hour of the cycle, both fading by 5 %
a day. For every stretch of hours that begins and ends with a reboot, the reboots inside are set against those that the same
levels' training inside would have had at an even pace. Hours are **bad** when

1. the reboots are e^11 times as likely if the stretch has a pace of its own,
2. inside, it reboots at least three times as often as outside,
3. it did so on three days at least, and
4. the levels that rebooted inside have trained outside for a day or more.

Of all such stretches the likeliest one is taken. From then on the load policy holds two records, one for the bad hours and
one for the others, each with a home, and changes from one to the other when the hour comes (`policy/level/load.py`).

Worked example: heavy reboots every half an hour from 10 to 20 o'clock and never otherwise. In three days it has trained
there for 36 h outside and for 4 h inside, with 8 reboots: at an even pace 0.8 of them, and e^15 times as likely with a pace
of its own. On the fourth day at ten the box goes to the level that is worth most in those hours, and at eight in the
evening back to heavy: no reboot tells it, and no trial is needed.

Why not a rate for each hour: a reboot or two is all that an hour ever has, and the level that would tell most does not run
in the bad hours any more. Why by level: a level that is tried once a day, always at the same hour, and dies each time, has
no bad hour; it has never run in another. Why three days: a fault that began this afternoon has rebooted in the afternoon
alone. Why e^11: some hundred stretches are looked at after each reboot, and at e^8 a box that reboots by chance ten times
a day has "bad hours" within a month in one case of four.
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
_FADES: Final = 0.95  # a day
_LIKELIER: Final = 11.0  # as a logarithm
_WORSE: Final = 3.0
_DAYS: Final = 3
_OUTSIDE_S: Final = DAY_S
_KEPT: Final = 60
_KEPT_S: Final = 21 * DAY_S
_LONGEST: Final = 18  # hours
_FEWEST: Final = 2.8  # k log((2 k + 1)^2) < _LIKELIER: the most that `_likelier` finds of k, with none due
_BEFORE_S: Final = 600.0  # the hours were bad a little before the first reboot of any day ...
_AFTER_S: Final = 600.0  # ... and after the last

Reboot = tuple[float, int, float]  # when, at which level, its weight
Stretch = tuple[float, float]  # seconds of the cycle, from and to; it may go over its end


class Hours(NamedTuple):
    """`up_s` is training by level, and by hour of the cycle; `reboots` are (when, level, weight)."""

    up_s: tuple[tuple[float, ...], ...] = ()
    reboots: tuple[Reboot, ...] = ()
    bad: Stretch | None = None


def unseen(levels: int) -> Hours:
    """Before anything ran."""
    return Hours(up_s=((0.0,) * _HOURS,) * levels)


def are_bad(hours: Hours, at_s: float) -> bool:
    """Whether the bad hours are now."""
    return hours.bad is not None and _within(hours.bad, at_s % DAY_S)


def changes_in_s(hours: Hours, at_s: float) -> float | None:
    """How long until the bad hours begin, or are over if they are now; None: there are none."""
    if hours.bad is None:
        return None
    return (hours.bad[are_bad(hours, at_s)] - at_s) % DAY_S


def ran(hours: Hours, level: int, *, before_s: float, at_s: float, up_s: float) -> Hours:
    """After `up_s` of training at a level that has ended at `at_s`; the time told before was `before_s`."""
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
    """After a reboot that is held against a level: the likeliest stretch of bad hours around it, if it is likely enough."""
    reboots = hours.reboots
    if reboots and at_s - reboots[0][0] > _KEPT_S:  # they are in order
        reboots = tuple(each for each in reboots if at_s - each[0] <= _KEPT_S)
    reboots = (*reboots, (at_s, level, weight))[-_KEPT:]
    hours = Hours(hours.up_s, reboots, hours.bad)
    if at_s // DAY_S - reboots[0][0] // DAY_S < _DAYS - 1:
        return hours
    came = _came(reboots, at_s)
    candidates = _candidates(hours, came, _hour(at_s))
    rows = _rows(hours, came) if candidates else []
    likely, begin, count = _LIKELIER, 0, 0
    for first, length in candidates:
        found = _likelier(rows, first, length)
        if found > likely and _days(reboots, first, length) >= _DAYS:
            likely, begin, count = found, first, length
    return hours if not count else Hours(hours.up_s, reboots, _edges(reboots, begin, count))


def share(hours: Hours, at_s: float, level: int, *, bad: bool) -> tuple[float, float]:
    """Reboots (by weight) and training of a level in the bad hours, or in the others, as far as they are remembered."""
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
    """A level that has rebooted: sums of its training and reboots over the hours, twice around, from hour 0 on."""

    up_s: tuple[float, ...]
    came: tuple[float, ...]


def _rows(hours: Hours, came: dict[int, list[float]]) -> list[_Row]:
    rows = []
    for level, row in came.items():
        up = hours.up_s[level]
        rows.append(_Row(tuple(accumulate((*up, *up), initial=0.0)), tuple(accumulate((*row, *row), initial=0.0))))
    return rows


def _came(reboots: tuple[Reboot, ...], now_s: float) -> dict[int, list[float]]:
    """By level, how often it has rebooted in each hour of the cycle, faded."""
    came: dict[int, list[float]] = {}
    for when_s, level, weight in reboots:
        if level not in came:
            came[level] = [0.0] * _HOURS
        came[level][_hour(when_s)] += weight * _FADES ** ((now_s - when_s) / DAY_S)
    return came


def _candidates(hours: Hours, came: dict[int, list[float]], newest: int) -> list[tuple[int, int]]:
    """Stretches (first hour, how many) from a reboot to a reboot, around the newest, that can be so much worse at all.

    Another stretch is no likelier for the newest reboot. All levels are taken in one sum: enough to pass over nearly all
    stretches cheaply. The bounds of a share (`_likelier`) move what was due by no more than `slack`. Fewer than `_FEWEST`
    reboots inside are never so likely, even if none was due there.
    """
    ins = due = [0.0] * _HOURS
    slack = 1e-6
    for level, row in came.items():
        up, whole = hours.up_s[level], sum(row)
        ins, up_s = list(map(add, ins, row)), sum(up)
        slack += 0.01 * whole
        if up_s:
            pace = whole / up_s
            due = [before + pace * ran_s for before, ran_s in zip(due, up, strict=True)]
        else:
            slack -= 0.5 * whole
    of_day = [hour for hour, each in enumerate(ins) if each]
    ends = [*(hour + 1 for hour in of_day), *(hour + 1 + _HOURS for hour in of_day)]
    ins, due = list(accumulate((*ins, *ins), initial=0.0)), list(accumulate((*due, *due), initial=0.0))
    every = ins[_HOURS] + 1.0  # with half a reboot more on each side, as in `_likelier`
    found = []
    for first in of_day:
        least = max(first + (newest - first) % _HOURS, bisect_left(ins, ins[first] + _FEWEST) - 1)
        came_before, due_before = ins[first] - 0.5, due[first] + slack - 0.5
        for end in ends[bisect_right(ends, least) : bisect_right(ends, first + _LONGEST)]:
            inside, least_due = ins[end] - came_before, due[end] - due_before
            least_due = max(least_due, 0.5)
            if inside * (every - least_due) >= _WORSE * least_due * (every - inside):
                found.append((first, end - first))
    return found


def _likelier(rows: list[_Row], first: int, length: int) -> float:
    """How much likelier the reboots are (a logarithm) if these hours have a pace of their own; 0.0: they are not bad."""
    found, inside, outside, due_in, due_out, out_s = [], 0.0, 0.0, 0.0, 0.0, 0.0
    for up, came in rows:
        in_s, came_in = up[first + length] - up[first], came[first + length] - came[first]
        whole_s, whole = up[_HOURS], came[_HOURS]
        share = min(0.99, max(0.01, in_s / whole_s if whole_s else 0.5))
        found.append((came_in, whole - came_in, share))
        inside, outside = inside + came_in, outside + whole - came_in
        due_in, due_out = due_in + whole * share, due_out + whole * (1.0 - share)
        out_s += whole_s - in_s if came_in else 0.0
    worse = (inside + 0.5) / (due_in + 0.5) / ((outside + 0.5) / (due_out + 0.5))
    if worse < _WORSE or out_s < _OUTSIDE_S:
        return 0.0
    likely = inside * math.log(worse)
    for ins, outs, share in found:
        likely -= (ins + outs) * math.log(worse * share + 1.0 - share)
    return likely


def _days(reboots: tuple[Reboot, ...], first: int, length: int) -> int:
    """On how many days it has rebooted in these hours; a day begins with them."""
    ages = (when_s - first * _HOUR_S for when_s, _, _ in reboots)
    return len({int(age_s // DAY_S) for age_s in ages if age_s % DAY_S < length * _HOUR_S})


def _edges(reboots: tuple[Reboot, ...], first: int, length: int) -> Stretch:
    """From a little before the earliest reboot of these hours to the latest, whatever the hour's stroke says."""
    begin_s = first * _HOUR_S
    phases = [(when_s - begin_s) % DAY_S for when_s, _, _ in reboots]
    phases = [each for each in phases if each < length * _HOUR_S]
    return (begin_s + min(phases) - _BEFORE_S) % DAY_S, (begin_s + max(phases) + _AFTER_S) % DAY_S
