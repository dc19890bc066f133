"""The page `days`: computed, kept and lost steps, hours and dollars, by local day of the box.

A loss counts on the day on which the program resumed, as in `accounts`. A kept step counts on the day on which it was
computed; between two moments with known steps, progress is taken as even. Steps kept today may still be lost tomorrow.
Computed steps are the sum of both; if the size of a loss is unknown, the sum is a lower bound. A day lasts from local
midnight to local midnight, so it may have 23 or 25 hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from math import fsum
from typing import Final

from supervisor.policy.upkeep import cost
from supervisor.policy.upkeep.accounting import Account
from supervisor.reports.accounts import AccountSheet, slots_in
from supervisor.reports.accounts_view import journal_s, not_counted, placed, wall_clock_of
from supervisor.reports.cost_view import NO_PRICE, Games, frames_in, games_of, kept_in
from supervisor.reports.incidents import cause_in_words
from supervisor.reports.ledger import Ledger, recorded
from supervisor.reports.pages import Since
from supervisor.reports.sources import Json, Sources

Zone = Callable[[float], tuple[str, float]]  # wall clock -> (name of the local time, seconds ahead of UTC)

MOST_DAYS: Final = 100
_DAY_S: Final = 86_400


def days(sources: Sources, since: Since, until: Since) -> Json:
    """Computed, kept and lost steps, hours and dollars, by local day."""
    games, price = games_of(sources)
    closed, begin_s, end_s, wall_s = placed(sources, since, until)
    return days_view(closed, games, begin_s, end_s, zone=sources.zone, wall_s=wall_s, usd_per_hour=price)


def days_view(
    closed: Ledger, games: Games, begin_s: float, end_s: float, *, zone: Zone, wall_s: float, usd_per_hour: float | None
) -> Json:
    """The newest 100 days of a window, oldest first, and the whole window as `total`. None is "not known"."""
    wall = wall_clock_of(closed, wall_s)
    every = list(local_days(wall(begin_s), wall(end_s), zone))
    shown, bounds = every[-MOST_DAYS:], [begin_s]
    for _, midnight_s in shown if len(shown) < len(every) else shown[1:]:
        bounds.append(min(end_s, max(bounds[-1], journal_s(closed, midnight_s))))
    parts = [(from_s, to_s, slots_in(closed, from_s, to_s)) for from_s, to_s in pairwise([*bounds, end_s])]
    slots = [each for _, _, each in parts]  # to read the whole window once more would take as long as all days
    return {
        "since_s": begin_s, "until_s": end_s, "since_wall_s": wall(begin_s), "until_wall_s": wall(end_s),
        "zone": zone(wall(end_s))[0], "utc_offset_s": zone(wall(end_s))[1], "usd_per_hour": usd_per_hour,
        "says": NO_PRICE if usd_per_hour is None else "", "left_out": len(every) - len(shown),
        "days": [{"date": date, **_row(closed, games, from_s, to_s, [sheet], wall, usd_per_hour)}
                 for (date, _), (from_s, to_s, sheet) in zip(shown, parts[-len(shown):], strict=True)],
        "total": _row(closed, games, begin_s, end_s, slots, wall, usd_per_hour), **not_counted(closed, begin_s),
    }  # fmt: skip


def local_days(begin_wall_s: float, end_wall_s: float, zone: Zone) -> Iterator[tuple[str, float]]:
    """(Date, its midnight) of every day that overlaps the window."""
    first, last = (int((at + zone(at)[1]) // _DAY_S) for at in (begin_wall_s, max(begin_wall_s, end_wall_s)))
    for day in range(first, last + 1):
        date = datetime.fromtimestamp(day * _DAY_S, UTC).date().isoformat()
        # A local day begins by the UTC offset at that moment, or near it: at the estimate from UTC's midnight.
        near_s = day * _DAY_S - zone(day * _DAY_S)[1]
        yield date, day * _DAY_S - zone(near_s)[1]


def _row(
    closed: Ledger, games: Games, from_s: float, to_s: float, slots: list[AccountSheet],
    wall: Callable[[float], float], usd_per_hour: float | None,
) -> Json:  # fmt: skip
    kept = sum(kept_in(closed, games, (from_s, to_s)).values())
    frames, _ = frames_in(closed, games, from_s, to_s)
    seconds = {account: fsum(sheet.seconds.get(account, 0.0) for sheet in slots) for account in Account}
    bill, lost = cost.bill(to_s - from_s, seconds, usd_per_hour), sum(sheet.lost_steps for sheet in slots)
    return {
        "from_s": from_s, "to_s": to_s, "from_wall_s": wall(from_s), "to_wall_s": wall(to_s),
        "hours": bill.wall_hours,
        "computed_steps": kept + lost,
        "kept_steps": kept,
        "lost_steps": lost,
        "lost_unknown": sum(sheet.lost_unknown for sheet in slots),
        "lost": _lost(closed, from_s, to_s),
        "kept_frames": frames,
        "useful_share": bill.causes[0].share,
        "failures": sum(sheet.failures for sheet in slots),
        "reboots": sum(sheet.reboots for sheet in slots),
        "usd": bill.usd,
        "usd_per_million_frames": cost.usd_per_million(bill.usd, frames),
        "causes": [asdict(each) for each in bill.causes],
    }  # fmt: skip


def _lost(closed: Ledger, from_s: float, to_s: float) -> list[Json]:
    """Lost steps by the cause of the previous attempt's end, the largest loss first."""
    found: dict[str, Json] = {}
    for loss in (loss for timeline in closed.trainings() for loss in recorded(timeline.losses, from_s, to_s)):
        if loss.steps or (loss.steps is None and loss.again):
            words = cause_in_words(loss.cause)
            group = found.setdefault(words, {"cause": words, "steps": 0, "resumes": 0, "unknown": 0})
            group["steps"] += loss.steps or 0
            group["resumes"] += 1
            group["unknown"] += loss.steps is None
    return sorted(found.values(), key=lambda group: (-group["steps"], group["cause"]))
