"""The part of `status` about the end of the work (`rules.py`), and the price of a box without work."""

from __future__ import annotations

from typing import Final

from supervisor.features.when_done import rules as rule
from supervisor.features.when_done.record import EndRecord
from supervisor.features.when_done.rules import Outlook
from supervisor.features.when_done.settings import WhenDoneSettings
from supervisor.features.when_done.work import outlooks, reason
from supervisor.formats import UNKNOWN, duration, usd, when
from supervisor.model.memory import Memory
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.reports.added import Added, Gauge
from supervisor.reports.sources import Json, Sources

_CANNOT: Final = "[when_done] CANNOT STOP THIS BOX"
_PATIENCE_S: Final = 300.0  # programs that wait for a restart trained just now


def when_done_view(state: State, settings: Settings | None, memory: Memory, *, now_s: float, wall_s: float) -> Json | None:
    """{"cause", "left_s", "line"} of an end; without one `cause` is empty. None: no command is configured.

    `left_s` is until the next step that is due by itself; None: there is none.
    """
    if settings is None or not settings.of(WhenDoneSettings).command:
        return None
    record, rules = state.of(EndRecord), settings.of(WhenDoneSettings)
    absent = f"{_CANNOT}: {memory.host.cannot_stop}; " if memory.host is not None and memory.host.cannot_stop else ""
    if not record.cause:
        line = f"{absent}no end is near ({rules.command[0]} waits for: {', '.join(rules.when)})"
        return {"cause": "", "left_s": None, "line": line}
    waits = not record.cancelled and record.ordered_s is None
    left_s = max(0.0, rule.due_s(rules, record) - now_s) if waits else 0.0
    why = reason(state, settings, memory, record.cause, now_s=now_s, wall_s=wall_s)
    line = f"{absent}{why}: {_doing(state, settings, memory, left_s)}"
    return {"cause": record.cause, "left_s": left_s or None, "line": line}


def _doing(state: State, settings: Settings, memory: Memory, left_s: float) -> str:
    record, rules, name = state.of(EndRecord), settings.of(WhenDoneSettings), settings.of(WhenDoneSettings).command[0]
    failed = f"{name} failed ({record.error}); " if record.error else ""
    logged_in = (memory.host.logged_in if memory.host else None) if rules.hold_while_logged_in and not record.now else None
    if record.cancelled:
        return "cancelled, so this box is not stopped"
    if record.ordered_s is not None:
        return f"{name} runs" if record.runs else f"{name} has succeeded, and this box should end now"
    if left_s > 0:
        return f"{failed}this box is stopped in {duration(left_s)} (`extralifectl when-done cancel` keeps it)"
    if logged_in:
        return f"{failed}this box is stopped once nobody is logged in ({', '.join(logged_in)})"
    if record.refused:
        return f"NOT STOPPED, as {record.refused}; `extralifectl when-done now` stops it all the same"
    return f"this box is about to be stopped, it waits for {', '.join(sorted(state.live)) or 'the copy off the box'}"


def costs_for_nothing(
    state: State, settings: Settings | None, memory: Memory, end: Json | None, *, wall_s: float
) -> list[str]:  # fmt: skip
    """A sentence on a box that costs money while nothing trains, or is about to be stopped. `end`: the view above."""
    line = end["line"] if end is not None and (end["cause"] or end["line"].startswith(_CANNOT)) else ""
    price = None if settings is None else settings.cost.usd_per_hour
    trainings = [each for each in state.programs.values() if not each.service]
    work = set() if settings is None else set(outlooks(state, memory).values())
    since_wall_s = max((each.since_wall_s for each in trainings), default=wall_s)
    waits = Outlook.OPEN in work
    trains = waits and (any(each.attempt for each in trainings) or wall_s - since_wall_s < _PATIENCE_S)
    if price is None or not trainings or trains:
        return [line] if line else []
    since = when(since_wall_s, wall_s)[:-3] or UNKNOWN  # without seconds
    what = "nothing trains" if waits else "nothing can go on" if work else "every program is stopped"
    what = "all done" if work == {Outlook.DONE} else what
    return [f"{what} since {since}; the box costs {usd(price)} an hour{f'; {line}' if line else ''}"]


def _status(sources: Sources) -> Json | None:
    return when_done_view(sources.state, sources.settings, sources.memory, now_s=sources.now_s, wall_s=sources.wall_s)


def _for_nothing(sources: Sources) -> list[str]:
    return costs_for_nothing(sources.state, sources.settings, sources.memory, _status(sources), wall_s=sources.wall_s)


def _gauges(sources: Sources) -> list[Gauge]:
    left_s = (_status(sources) or {}).get("left_s")
    return [("when_done_seconds", "until this box is stopped, because its work is over", left_s)]


def _needs_you(_: Sources, daemon: Json) -> list[str]:
    needs: list[str] = daemon["for_nothing"]
    return needs


ADDED = Added(
    status=lambda sources: {"when_done": _status(sources), "for_nothing": _for_nothing(sources)},
    gauges=_gauges,
    needs_you=_needs_you,
)
