"""The page `accounts`: the accounts of a requested window as plain JSON values; and the windows of all pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict

from supervisor.policy.upkeep.accounting import Account
from supervisor.policy.upkeep.cost import usd_of
from supervisor.reports.accounts import AccountSheet, Summary, summary
from supervisor.reports.ledger import Ledger, recorded
from supervisor.reports.pages import BadQuery, Since
from supervisor.reports.sources import Json, Sources


def accounts(sources: Sources, since: Since, until: Since) -> Json:
    """The account of every second of every program and slot, in a window."""
    price = None if sources.settings is None else sources.settings.cost.usd_per_hour
    return accounts_view(*summary_of(sources, since, until), price)


def window(closed: Ledger, since: Since, until: Since) -> tuple[float, float]:
    """(Begin, end) of a window in journal time."""
    begin_s, end_s = since_s(closed, since), since_s(closed, until)
    if begin_s > end_s:
        raise BadQuery("since must lie before until")
    return begin_s, end_s


def placed(sources: Sources, since: Since, until: Since) -> tuple[Ledger, float, float, float]:
    """The closed ledger, the begin and the end of a window in it that is counted, and the present time of the wall clock."""
    closed, wall_s = sources.closed()
    begin_s, end_s = (max(closed.counted_s, at_s) for at_s in window(closed, since, until))
    return closed, begin_s, end_s, wall_s


def not_counted(closed: Ledger, begin_s: float) -> Json:
    """For a page whose window begins where counting begins so far: a sentence. The time before is not in the page."""
    why = (
        "earlier days are not counted yet: extralife reads its record again, as after an upgrade; ask again in some minutes"
    )
    return {"not_counted": why} if begin_s == closed.counted_s > 0.0 else {}


def summary_of(sources: Sources, since: Since, until: Since) -> tuple[Ledger, Summary, float]:
    """The closed ledger, the figures of a window, and the present time of the wall clock."""
    closed, begin_s, end_s, wall_s = placed(sources, since, until)
    return closed, summary(closed, since_s=begin_s, until_s=end_s), wall_s


def since_s(ledger: Ledger, since: Since) -> float:
    """The beginning of the window in journal time."""
    first_s = ledger.first_s or 0.0
    if since.ago_s is not None:
        return max(first_s, ledger.at_s - float(since.ago_s))
    if since.boot:
        return ledger.reboots[-1].at_s if ledger.reboots else first_s
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


def take_overs(closed: Ledger, begin_s: float, end_s: float, usd_per_hour: float | None) -> list[Json]:
    """The boxes whose trainings this one continued in a window: the time without a box, and its price at this box's rate.

    `seconds` are from that box's last known sign of life to training here (None: not known); `trains`: it has come to that.
    Whether a provider charged for them is not known.
    """
    out = []
    for each in recorded(closed.take_overs, begin_s, end_s):
        until_s = closed.at_s if each.trains_s is None else each.trains_s
        seconds = None if each.since_s is None else max(0.0, until_s - each.since_s)
        usd = usd_of(None if seconds is None else seconds / 3600.0, usd_per_hour)
        out.append({"box": each.box, "seconds": seconds, "trains": each.trains_s is not None, "usd": usd})
    return out


def accounts_view(closed: Ledger, found: Summary, wall_s: float, usd_per_hour: float | None = None) -> Json:
    """All sheets of a window. `wall_s` is the wall clock's time at the end of the closed ledger."""
    until_wall_s = wall_s - (closed.at_s - found.until_s)
    return {
        "since_s": found.since_s,
        "until_s": found.until_s,
        "since_wall_s": until_wall_s - (found.until_s - found.since_s),
        "until_wall_s": until_wall_s,
        "slots": closed.levels[-1][2] if closed.levels else None,
        "take_overs": take_overs(closed, found.since_s, found.until_s, usd_per_hour),
        "total": _sheet(found.slots),
        "programs": [_sheet(sheet) for sheet in found.programs],
        **not_counted(closed, found.since_s),
    }


def _sheet(sheet: AccountSheet) -> Json:
    shares = {
        "name": sheet.name,
        "wall_s": sheet.wall_s,
        "seconds": {account.value: sheet.seconds.get(account, 0.0) for account in Account},
        "ettr": sheet.ettr,
        "goodput": sheet.goodput,
        "availability": sheet.availability,
    }
    return shares | {key: value for key, value in asdict(sheet).items() if key not in shares}
