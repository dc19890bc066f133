"""Totals and figures of any stretch of time, from the timelines of `reports/ledger.py`; defined in docs/accounts.md.

Every total is a sum over slices that are cut at the window's ends. So the totals of two neighbouring windows add up to the
total of both. Unknown is None: a mean of nothing.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import fsum
from operator import itemgetter
from typing import Final

from supervisor.policy.upkeep.accounting import Account
from supervisor.records import Record, replace
from supervisor.reports.ledger import ROUNDING_S, Ledger, ProgramTimeline, Slice, recorded, within

Seconds = dict[Account, float]

# Reasons why nothing runs in a free slot, by priority.
_FREE: Final = (Account.DOWN, Account.RESTARTING, Account.WAITING, Account.UNKNOWN)
_OF_PROGRAM: Final = (Account.TRAINING, Account.LOST, Account.UNKNOWN)  # later facts move merged time between these
_Stay = tuple[float, float, str]  # from, to, `workers` or the account in which it waits (empty: neither); neighbours joined


class AccountSheet(Record):
    """The account sheet of one program, or of all slots. `seconds` add up to `wall_s`."""

    name: str
    wall_s: float
    seconds: Seconds
    failures: int = 0  # stalls and deaths
    reboots: int = 0  # of the host; of a program: those that interrupted it
    mttd_s: float | None = None  # over stalls and deaths
    mttr_s: float | None = None  # over all interruptions after which it trained again
    lost_steps: int = 0
    lost_unknown: int = 0  # resumes with an unknown number of lost steps
    lost_s_unknown: int = 0  # resumes with an unknown number of lost seconds: LOST is then a lower bound

    @property
    def ettr(self) -> float | None:
        """Share of TRAINING in all paid time."""
        return _share(self.seconds.get(Account.TRAINING, 0.0), self.wall_s)

    @property
    def goodput(self) -> float | None:
        """Share of TRAINING in the time in which it could have trained: box and daemon were up, and it had a slot."""
        apart = (Account.DOWN, Account.WAITING, Account.IDLE)
        return _share(self.seconds.get(Account.TRAINING, 0.0), self.wall_s - fsum(self.seconds.get(a, 0.0) for a in apart))

    @property
    def availability(self) -> float | None:
        """Share of the time in which box and daemon were up."""
        return _share(self.wall_s - self.seconds.get(Account.DOWN, 0.0), self.wall_s)


class Summary(Record):
    """The figures of one window: of all slots together, of each program, of each level."""

    since_s: float
    until_s: float
    slots: AccountSheet
    programs: tuple[AccountSheet, ...]
    at_level: dict[str, dict[str, Seconds]]  # by program and level


def _share(part_s: float, whole_s: float) -> float | None:
    return part_s / whole_s if whole_s > ROUNDING_S else None


def summary(ledger: Ledger, *, since_s: float | None = None, until_s: float | None = None) -> Summary:
    """The figures of a window of a closed ledger (`Ledger.closed`); without bounds, of the whole ledger."""
    first_s = ledger.first_s or 0.0
    since_s = first_s if since_s is None else max(since_s, first_s)
    until_s = ledger.at_s if until_s is None else min(until_s, ledger.at_s)
    until_s = max(since_s, until_s)
    by_name: dict[str, list[ProgramTimeline]] = {}
    booked: dict[str, _Booked] = {}
    of_slots = _Booked()
    for timeline in ledger.all_timelines():
        by_name.setdefault(timeline.name, []).append(timeline)
        _book(ledger, timeline, since_s, until_s, booked.setdefault(timeline.name, _Booked()), of_slots)
    sheets = []
    for name, timelines in sorted(by_name.items()):
        own = booked[name]
        seconds = {account: own.seconds[account] for account in Account if account in own.seconds}
        sheets.append(_with_figures(name, timelines, since_s, until_s, fsum(own.lengths_s), seconds))
    slots, at_level = _slots(ledger, of_slots, since_s, until_s), {name: own.at_level for name, own in booked.items()}
    return Summary(since_s, until_s, slots, tuple(sheets), at_level)


def slots_in(ledger: Ledger, since_s: float, until_s: float) -> AccountSheet:
    """The sheet of all slots in a window inside the ledger: the `slots` of `summary`."""
    of_slots = _Booked()
    for timeline in ledger.all_timelines():
        _book(ledger, timeline, since_s, until_s, None, of_slots)
    return _slots(ledger, of_slots, since_s, until_s)


@dataclass(slots=True)
class _Booked:
    """The time of a window: of one program, or of all slots."""

    seconds: Seconds = field(default_factory=dict)
    merged: Seconds = field(default_factory=dict)  # of slots: the part that is merged by day
    lengths_s: array[float] = field(default_factory=lambda: array("d"))
    at_level: dict[str, Seconds] = field(default_factory=dict)
    stays: list[list[_Stay]] = field(default_factory=list)  # of each training


def _add(total: Seconds, piece: Slice, accounts: Collection[Account] = tuple(Account)) -> None:
    for account, seconds in piece.seconds.items():
        if account not in accounts:
            continue
        total[account] = total.get(account, 0.0) + seconds


def _book(
    ledger: Ledger, timeline: ProgramTimeline, since_s: float, until_s: float, own: _Booked | None, of_slots: _Booked
) -> None:  # fmt: skip
    """Add the time of one timeline."""
    starts: list[float] = [at_s for at_s, _, _ in ledger.levels]
    stays: list[_Stay] = []
    for piece in timeline.within(since_s, until_s):
        if piece.end_s <= ledger.merged_s and not timeline.service:
            _add(of_slots.merged, piece, _OF_PROGRAM)
        elif piece.holds and not timeline.service:
            _add(of_slots.seconds, piece)
        if own is not None:
            _add(own.seconds, piece)
            own.lengths_s.append(piece.end_s - piece.start_s)
            for level, part in _by_level(ledger, starts, piece):
                _add(own.at_level.setdefault(level, {}), part)
        if piece.end_s <= ledger.merged_s:
            continue
        waits = next((account.value for account in _FREE if account in piece.seconds), "")
        begin_s, kind = piece.start_s, "workers" if piece.holds else waits
        if stays and stays[-1][2] == kind and begin_s <= stays[-1][1] + ROUNDING_S:
            begin_s = stays.pop()[0]
        stays.append((begin_s, piece.end_s, kind))
    if not timeline.service:
        of_slots.stays.append(stays)


def _by_level(ledger: Ledger, starts: list[float], piece: Slice) -> Iterator[tuple[str, Slice]]:
    place = bisect_right(starts, piece.start_s)
    while place < len(starts) and starts[place] < piece.end_s:
        part, piece = piece.cut(starts[place])
        yield ledger.levels[place - 1][1] if place else "", part
        place += 1
    yield ledger.levels[place - 1][1] if place else "", piece


def _slots(ledger: Ledger, booked: _Booked, since_s: float, until_s: float) -> AccountSheet:
    found = booked.seconds
    for piece in within(ledger.merged, since_s, until_s):
        _add(booked.merged, piece)
    paid_s = fsum(booked.merged.values())
    for account, seconds_s in booked.merged.items():
        found[account] = found.get(account, 0.0) + seconds_s
    for from_s, to_s, slots, free in paid_slots(ledger, booked.stays, max(since_s, ledger.merged_s), until_s):
        paid_s += slots * (to_s - from_s)
        for account, count in free.items():
            found[account] = found.get(account, 0.0) + count * (to_s - from_s)
    seconds = {account: found[account] for account in Account if account in found}
    sheet = _with_figures("slots", ledger.trainings(), since_s, until_s, paid_s, seconds)
    return replace(sheet, reboots=reboots_in(ledger, since_s, until_s))


def reboots_in(ledger: Ledger, since_s: float, until_s: float) -> int:
    """The reboots of a window: those after which the box came up in it, also at its end."""
    return sum(not reboot.moved for reboot in recorded(ledger.reboots, since_s, until_s))


def _with_figures(
    name: str, timelines: list[ProgramTimeline], since_s: float, until_s: float, wall_s: float, seconds: Seconds
) -> AccountSheet:  # fmt: skip
    """An incident and a loss count at the time at which they were recorded."""
    detected_s, reboots, steps, unknown, unknown_s = array("d"), 0, 0, 0, 0
    ends: dict[float, float] = {}  # when it trained again -> the first failure before that: without training, one outage
    for timeline in timelines:
        for item in recorded(timeline.incidents, since_s, until_s):
            if item.kind == "reboot":
                reboots += 1
            else:
                detected_s.append(item.at_s - item.failed_at_s)
            if item.trains_at_s is not None:
                ends[item.trains_at_s] = min(ends.get(item.trains_at_s, item.failed_at_s), item.failed_at_s)
        for loss in recorded(timeline.losses, since_s, until_s):
            steps += loss.steps or 0
            unknown += loss.steps is None and loss.again
            unknown_s += loss.seconds is None
    return AccountSheet(
        name, wall_s, seconds, len(detected_s), reboots, _mean(detected_s),
        _mean(trains_s - failed_s for trains_s, failed_s in ends.items()), steps, unknown, unknown_s,
    )  # fmt: skip


def merge(ledger: Ledger, bounds: Sequence[float]) -> None:
    """Merge the time between neighbouring bounds, the first of which is where the merged time ends so far."""
    rest: list[Slice] = []
    for timeline in ledger.timelines.values():
        timeline.close(ledger.at_s)
    for from_s, to_s in pairwise(bounds):
        seconds, own = slots_in(ledger, from_s, to_s).seconds, dict[Account, float]()
        for timeline in ledger.trainings():
            for piece in timeline.within(from_s, to_s):
                _add(own, piece, _OF_PROGRAM)
        left = {account: seconds.get(account, 0.0) - own.get(account, 0.0) for account in {*seconds, *own}}
        rest.append(Slice(from_s, to_s, {account: s for account, s in left.items() if abs(s) > ROUNDING_S}, holds=False))
    for timeline in ledger.all_timelines():
        timeline.merge(bounds)
    ledger.merged += rest


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return fsum(found) / len(found) if found else None


# --- levels ------------------------------------------------------------------------------------------------------------


def level_stretches(ledger: Ledger) -> list[tuple[float, float, str, int]]:
    """(from, to, level, slots) of every level in force, end to end; empty before the first level."""
    ends = [*(at_s for at_s, _, _ in ledger.levels[1:]), ledger.at_s] if ledger.levels else []
    return [(at_s, end_s, name, slots) for (at_s, name, slots), end_s in zip(ledger.levels, ends, strict=True)]


# --- slots -------------------------------------------------------------------------------------------------------------


def paid_slots(
    ledger: Ledger, stays: Iterable[Iterable[_Stay]], since_s: float, until_s: float
) -> Iterator[tuple[float, float, int, dict[Account, int]]]:
    """(From, to, paid slots, those of them without a worker by account), end to end.

    An empty slot is paid for only while something waits for it; if no slot is used or wanted, all of them are.
    """
    at_s, slots, workers = since_s, 0, 0
    waiting = dict.fromkeys(_FREE, 0)
    for moment_s, kind, change in chain(_changes(ledger, stays, since_s, until_s), [(until_s, "workers", 0)]):
        if moment_s > at_s:
            used, free = workers, {}
            for account in _FREE:
                taken = min(max(0, slots - used), waiting[account])
                if taken:
                    used, free[account] = used + taken, taken
            if not used and slots:
                used, free = slots, {Account.IDLE: slots}
            yield at_s, moment_s, used, free
            at_s = moment_s
        if kind == "slots":
            slots += change
        elif kind == "workers":
            workers += change
        else:
            waiting[Account(kind)] += change


def _changes(
    ledger: Ledger, stays: Iterable[Iterable[_Stay]], since_s: float, until_s: float
) -> Iterator[tuple[float, str, int]]:
    """(time, kind, difference), in order of time: changes in the number of slots, workers and waiting programs."""

    def edges(stretches: Iterable[tuple[float, float, str, int]]) -> Iterator[tuple[float, str, int]]:
        for from_s, to_s, kind, how_many in stretches:
            begin_s, end_s = max(from_s, since_s), min(to_s, until_s)
            if kind and begin_s < end_s:
                yield begin_s, kind, how_many
                yield end_s, kind, -how_many

    levels = edges((from_s, to_s, "slots", slots) for from_s, to_s, _, slots in level_stretches(ledger))
    programs = [edges((*stay, 1) for stay in own) for own in stays]
    return heapq.merge(levels, *programs, key=itemgetter(0))
