"""The page `accounts`: the accounts of a requested window as plain JSON values.

Used by the daemon's API and by `supervisorctl accounts` on the journal of a dead daemon. None is "not known".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from supervisor.policy.upkeep.accounting import Account
from supervisor.records import Record
from supervisor.reports.accounts import AccountSheet, LevelFigures, Summary
from supervisor.reports.ledger import Ledger

Json = dict[str, Any]


class Since(Record):
    """The beginning of a window: seconds ago, a wall-clock time, the newest boot, or (all unset) the journal's beginning."""

    ago_s: float | None = None
    wall_s: float | None = None
    boot: bool = False

    @property
    def given(self) -> bool:
        return self != Since()


def since_s(ledger: Ledger, since: Since) -> float:
    """The beginning of the window in journal time."""
    first_s = ledger.first_s or 0.0
    if since.ago_s is not None:
        return max(first_s, ledger.at_s - since.ago_s)
    if since.boot:
        return ledger.reboots[-1].boot_s if ledger.reboots else first_s
    if since.wall_s is not None:
        return max(first_s, min(ledger.at_s, journal_s(ledger, since.wall_s)))
    return first_s


def journal_s(ledger: Ledger, wall_s: float) -> float:
    """Convert a wall-clock time to journal time, by the newest known pair of both times that is not later."""
    known = [pair for pair in ledger.clocks if pair[1] <= wall_s]
    at_s, then_wall_s = known[-1] if known else ledger.clocks[0] if ledger.clocks else (0.0, wall_s)
    return at_s + wall_s - then_wall_s


def wall_clock_of(closed: Ledger, wall_s: float) -> Callable[[float], float]:
    """Journal time -> wall clock, the reverse of `journal_s`. `wall_s` is the wall clock's time at the end of the ledger."""
    known = [*closed.clocks, (closed.at_s, wall_s)]
    begun = [at_s for at_s, _ in known]

    def wall(at_s: float) -> float:
        then_s, then_wall_s = known[max(0, bisect_right(begun, at_s) - 1)]
        return then_wall_s + at_s - then_s

    return wall


def accounts_view(closed: Ledger, found: Summary, *, wall_s: float) -> Json:
    """All sheets of a window. `wall_s` is the wall clock's time at the end of the closed ledger."""
    until_wall_s = wall_s - (closed.at_s - found.until_s)
    return {
        "since_s": found.since_s,
        "until_s": found.until_s,
        "since_wall_s": until_wall_s - (found.until_s - found.since_s),
        "until_wall_s": until_wall_s,
        "slots": closed.levels[-1][2] if closed.levels else None,
        "total": _sheet(found.slots),
        "programs": [_sheet(sheet) for sheet in found.programs],
        "levels": {name: _level(figures) for name, figures in found.levels.items()},
    }


def _sheet(sheet: AccountSheet) -> Json:
    return {
        "name": sheet.name,
        "wall_s": sheet.wall_s,
        "seconds": {account.value: sheet.seconds.get(account, 0.0) for account in Account},
        "ettr": sheet.ettr,
        "goodput": sheet.goodput,
        "availability": sheet.availability,
        "failures": sheet.failures,
        "reboots": sheet.reboots,
        "mttd_s": sheet.mttd_s,
        "mttr_s": sheet.mttr_s,
        "lost_steps": sheet.lost_steps,
        "lost_unknown": sheet.lost_unknown,
        "lost_s_unknown": sheet.lost_s_unknown,
    }


def _level(figures: LevelFigures) -> Json:
    return {
        "host_up_s": figures.host_up_s,
        "reboots": figures.reboots,
        "host_mtbf_s": figures.host_mtbf_s,
        "trained_s": figures.trained_s,
        "failures": figures.failures,
        "program_mtbf_s": figures.program_mtbf_s,
    }
