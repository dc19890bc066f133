"""Totals and figures of any stretch of time, from the timelines of `reports/ledger.py`; defined in docs/accounts.md.

Every total is a sum over slices that are cut at the window's ends. So the totals of two neighbouring windows add up to the
total of both. `check` lists what does not add up; the simulator and the tests call it.

Unknown is None: a mean of nothing, an MTBF without a failure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from math import fsum
from operator import attrgetter
from typing import Final

from supervisor.policy.upkeep.accounting import COMPUTING, Account
from supervisor.records import Record
from supervisor.reports.ledger import ROUNDING_S, Interruption, Ledger, ProgramTimeline, Slice

Seconds = dict[Account, float]

_FREE: Final = (  # reasons why nothing runs in a free slot, by priority
    Account.HOST_DOWN, Account.DAEMON_DOWN, Account.BACKOFF, Account.NOTICE, Account.ADMISSION, Account.UNKNOWN,
)  # fmt: skip
_TRAINS: Final = COMPUTING | {Account.LOST, Account.UNPROVEN, Account.CHECKPOINT_STALL, Account.EVALUATE}
_BY_END: Final = attrgetter("end_s")


class LevelFigures(Record):
    """Figures of one level. `host_up_s` / `reboots` is the box's MTBF, `trained_s` / `failures` a program's."""

    host_up_s: float = 0.0
    reboots: int = 0  # unclean ones
    trained_s: float = 0.0
    failures: int = 0  # stalls and deaths

    @property
    def host_mtbf_s(self) -> float | None:
        return self.host_up_s / self.reboots if self.reboots and self.host_up_s > 0.0 else None

    @property
    def program_mtbf_s(self) -> float | None:
        return self.trained_s / self.failures if self.failures and self.trained_s > 0.0 else None


class AccountSheet(Record):
    """The account sheet of one program, or of all slots. `seconds` add up to `wall_s`."""

    name: str
    wall_s: float
    seconds: Seconds
    failures: int = 0  # stalls and deaths
    reboots: int = 0  # reboots of the host during an attempt
    mttd_s: float | None = None  # over stalls and deaths
    mttr_s: float | None = None  # over all interruptions after which it trained again
    lost_steps: int = 0
    lost_unknown: int = 0  # resumes with an unknown number of lost steps
    lost_s_unknown: int = 0  # resumes with an unknown number of lost seconds: LOST is then a lower bound

    @property
    def ettr(self) -> float | None:
        """Productive share of all paid time."""
        return _share(self.seconds.get(Account.PRODUCTIVE, 0.0), self.wall_s)

    @property
    def goodput(self) -> float | None:
        """Productive share of the time in which it could have trained: the box was up, and it had a slot."""
        apart = (Account.HOST_DOWN, Account.ADMISSION, Account.NOTICE, Account.IDLE)
        return _share(self.seconds.get(Account.PRODUCTIVE, 0.0), self.wall_s - fsum(self.seconds.get(a, 0.0) for a in apart))

    @property
    def availability(self) -> float | None:
        """Share of the time in which the box was up."""
        return _share(self.wall_s - self.seconds.get(Account.HOST_DOWN, 0.0), self.wall_s)


class Summary(Record):
    """The figures of one window: of all slots together, of each program, of each level."""

    since_s: float
    until_s: float
    slots: AccountSheet
    programs: tuple[AccountSheet, ...]
    levels: dict[str, LevelFigures] = field(default_factory=dict)


def _share(part_s: float, whole_s: float) -> float | None:
    return part_s / whole_s if whole_s > ROUNDING_S else None


def summary(ledger: Ledger, *, since_s: float | None = None, until_s: float | None = None) -> Summary:
    """The figures of a window of a closed ledger (`Ledger.closed`); without bounds, of the whole ledger."""
    first_s = ledger.first_s or 0.0
    since_s = first_s if since_s is None else max(since_s, first_s)
    until_s = ledger.at_s if until_s is None else min(until_s, ledger.at_s)
    until_s = max(since_s, until_s)
    by_name: dict[str, list[ProgramTimeline]] = {}
    for timeline in ledger.all_timelines():
        by_name.setdefault(timeline.name, []).append(timeline)
    sheets = []
    trained: dict[str, float] = {}
    for name, timelines in sorted(by_name.items()):
        pieces = [piece for timeline in timelines for piece in within(timeline, since_s, until_s)]
        if not any(timeline.service for timeline in timelines):
            _train(ledger, pieces, trained)
        sheets.append(_sheet(name, timelines, pieces, since_s, until_s))
    slots = slots_in(ledger, since_s, until_s)
    return Summary(since_s, until_s, slots, tuple(sheets), _levels(ledger, trained, since_s, until_s))


def slots_in(ledger: Ledger, since_s: float, until_s: float) -> AccountSheet:
    """The sheet of all slots in a window inside the ledger: the `slots` of `summary`."""
    found: Seconds = {}
    for timeline in ledger.all_timelines():
        _add(found, (piece for piece in within(timeline, since_s, until_s) if piece.holds))
    paid_s = 0.0
    for from_s, to_s, paid, free in paid_slots(ledger, since_s, until_s):
        paid_s += paid * (to_s - from_s)
        for account, count in free.items():
            found[account] = found.get(account, 0.0) + count * (to_s - from_s)
    seconds = {account: found[account] for account in Account if account in found}
    return _with_figures("slots", ledger.trainings(), since_s, until_s, paid_s, seconds)


def within(timeline: ProgramTimeline, since_s: float, until_s: float) -> Iterator[Slice]:
    """The slices of a window, cut at its ends."""
    slices = timeline.slices
    for place in range(bisect_right(slices, since_s, key=_BY_END), len(slices)):
        piece = slices[place]
        if piece.start_s >= until_s:
            return
        if piece.start_s < since_s:
            piece = piece.cut(since_s)[1]
        if piece.end_s > until_s:
            piece = piece.cut(until_s)[0]
        yield piece


def _add(into: Seconds, pieces: Iterable[Slice]) -> None:
    for piece in pieces:
        for account, seconds in piece.seconds.items():
            into[account] = into.get(account, 0.0) + seconds


def _sheet(name: str, timelines: list[ProgramTimeline], pieces: list[Slice], since_s: float, until_s: float) -> AccountSheet:
    seconds: Seconds = {}
    _add(seconds, pieces)
    wall_s = fsum(piece.end_s - piece.start_s for piece in pieces)
    return _with_figures(name, timelines, since_s, until_s, wall_s, {a: seconds[a] for a in Account if a in seconds})


def _with_figures(
    name: str, timelines: list[ProgramTimeline], since_s: float, until_s: float, wall_s: float, seconds: Seconds
) -> AccountSheet:  # fmt: skip
    """An incident counts at the time at which it began, a loss at the time at which it was recorded."""
    incidents = [item for timeline in timelines for item in timeline.incidents if since_s <= item.failed_at_s < until_s]
    failures = [item for item in incidents if item.kind != "reboot"]
    losses = [loss for timeline in timelines for loss in timeline.losses if since_s <= loss.at_s < until_s]
    return AccountSheet(
        name, wall_s, seconds, len(failures), len(incidents) - len(failures),
        _mean(item.detected_at_s - item.failed_at_s for item in failures), _mean(_repairs(incidents)),
        sum(loss.steps or 0 for loss in losses), sum(1 for loss in losses if loss.steps is None and loss.again),
        sum(1 for loss in losses if loss.seconds is None),
    )  # fmt: skip


def _repairs(incidents: list[Interruption]) -> Iterator[float]:
    """Seconds from failure to training again. Failures without training between them are one outage, from the first on."""
    ends: dict[float, float] = {}
    for item in incidents:
        if item.trains_at_s is not None:
            ends[item.trains_at_s] = min(ends.get(item.trains_at_s, item.failed_at_s), item.failed_at_s)
    yield from (trains_s - failed_s for trains_s, failed_s in ends.items())


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return fsum(found) / len(found) if found else None


# --- levels ------------------------------------------------------------------------------------------------------------


def level_stretches(ledger: Ledger) -> list[tuple[float, float, str, int]]:
    """(from, to, level, slots) of every level in force, end to end; empty before the first level."""
    ends = [*(at_s for at_s, _, _ in ledger.levels[1:]), ledger.at_s] if ledger.levels else []
    return [(at_s, end_s, name, slots) for (at_s, name, slots), end_s in zip(ledger.levels, ends, strict=True)]


def _train(ledger: Ledger, pieces: list[Slice], into: dict[str, float]) -> None:
    """Seconds of training by level. A slice belongs to the level at its start."""
    starts = [at_s for at_s, _, _ in ledger.levels]
    for piece in pieces:
        trained_s = sum(seconds for account, seconds in piece.seconds.items() if account in _TRAINS)
        if trained_s:
            place = bisect_right(starts, piece.start_s) - 1
            level = ledger.levels[place][1] if place >= 0 else ""
            into[level] = into.get(level, 0.0) + trained_s


def _levels(ledger: Ledger, trained: Mapping[str, float], since_s: float, until_s: float) -> dict[str, LevelFigures]:
    up: dict[str, float] = {}
    for from_s, to_s, level, _ in level_stretches(ledger):
        stretch_s = max(0.0, min(to_s, until_s) - max(from_s, since_s))
        off_s = sum(
            max(0.0, min(to_s, until_s, reboot.boot_s) - max(from_s, since_s, reboot.last_sign_s))
            for reboot in ledger.reboots
        )
        up[level] = up.get(level, 0.0) + stretch_s - off_s
    reboots = [reboot.level for reboot in ledger.reboots if reboot.unclean and since_s <= reboot.last_sign_s < until_s]
    failures = [
        item.level
        for timeline in ledger.trainings()
        for item in timeline.incidents
        if item.kind != "reboot" and since_s <= item.failed_at_s < until_s
    ]
    names = sorted({*up, *trained, *reboots, *failures})
    return {
        name: LevelFigures(up.get(name, 0.0), reboots.count(name), trained.get(name, 0.0), failures.count(name))
        for name in names
    }


# --- slots -------------------------------------------------------------------------------------------------------------


def paid_slots(ledger: Ledger, since_s: float, until_s: float) -> Iterator[tuple[float, float, int, dict[Account, int]]]:
    """(From, to, paid slots, those of them without a worker by account), end to end.

    An empty slot is paid for only while something waits for it; if no slot is used or wanted, all of them are.
    """
    at_s, slots, workers = since_s, 0, 0
    waiting = dict.fromkeys(_FREE, 0)
    for moment_s, kind, change in [*sorted(_changes(ledger, since_s, until_s)), (until_s, "workers", 0)]:
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


def _changes(ledger: Ledger, since_s: float, until_s: float) -> Iterator[tuple[float, str, int]]:
    """(time, kind, difference): changes in the number of slots, workers and waiting programs."""
    stretches = [(from_s, to_s, "slots", slots) for from_s, to_s, _, slots in level_stretches(ledger)]
    for timeline in ledger.trainings():
        stretches += [(from_s, to_s, kind, 1) for from_s, to_s, kind in _stays(timeline, since_s, until_s)]
    for from_s, to_s, kind, how_many in stretches:
        begin_s, end_s = max(from_s, since_s), min(to_s, until_s)
        if begin_s < end_s:
            yield begin_s, kind, how_many
            yield end_s, kind, -how_many


def _stays(timeline: ProgramTimeline, since_s: float, until_s: float) -> Iterator[tuple[float, float, str]]:
    """(from, to, `workers` or the account in which it waits), neighbours joined."""
    begin_s, end_s, now = since_s, since_s, ""
    for piece in within(timeline, since_s, until_s):
        waits = next((account.value for account in _FREE if account in piece.seconds), "")
        kind = "workers" if piece.holds else waits
        if kind != now or piece.start_s > end_s + ROUNDING_S:
            if now:
                yield begin_s, end_s, now
            begin_s, now = piece.start_s, kind
        end_s = piece.end_s
    if now:
        yield begin_s, end_s, now
