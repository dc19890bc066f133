"""The page `incidents`: the incidents of a window, grouped by cause, with the evidence of the newest ones of each cause.

Text from a worker, a kernel or a log is untrusted: it is cut to a length and otherwise unchanged. Code that displays it must
escape it.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import fields
from math import fsum
from operator import attrgetter
from typing import Final

from supervisor import wall_clock
from supervisor.model.facts import Stamped
from supervisor.reports.accounts_view import not_counted, placed
from supervisor.reports.facts_view import word
from supervisor.reports.incidents import Incident
from supervisor.reports.pages import Since
from supervisor.reports.sources import Json, Sources

# Fields of facts with a measured value.
_MEASURED: Final = (
    "stall", "age_s", "limit_s", "cause", "end", "code", "signal", "steps", "checkpoint_step", "path", "step", "lost_steps",
    "lost_s", "at_least", "delay_s", "slow", "rate", "usual", "after_s", "waited_s", "free_bytes", "from_step", "number",
    "batch_size", "from_batch", "fine_step", "max_rss_bytes", "illness", "down_s", "up_s", "weight", "xid", "gpu", "for_s",
    "hung_s", "look", "kept", "lost", "target",
)  # fmt: skip
# Fields of facts with evidence as text. The end of a log matters, and the beginning of all other texts.
_SEEN: Final = ("evidence", "error", "errors", "text", "last_words", "leftovers", "last_lines")
_FROM_THE_END: Final = frozenset({"stdout", "stderr", "last_lines", "last_words"})
_DECISIONS: Final = frozenset({
    "StopIntended", "KillIntended", "BackedOff", "RolledBack", "BatchLowered", "Requeued", "CheckpointQuarantined", "GaveUp",
    "CheckpointsPutBack", "NotRestarted", "RebootJudged", "LevelChosen",
})  # fmt: skip
_MOST_ROWS: Final = 60  # of one incident
_NUMBER: Final = attrgetter("number")


def incidents(sources: Sources, since: Since, until: Since, program: str | None, limit: int, chars: int, seq: int) -> Json:
    """Incidents by cause, with the evidence of the newest `limit` of each. `seq`: only the incident of this fact."""
    closed, begin_s, end_s, wall_s = placed(sources, since, until)

    def view(found: Iterable[Incident]) -> list[Json]:
        found = (each for each in found if begin_s <= each.cause.at_s <= end_s)
        wanted = (each for each in found if not seq or any(row.seq == seq for row in each.rows))
        return incidents_view(wanted, sources.state.clock_steps, limit=limit, chars=chars)

    found = sources.incidents(begin_s, end_s, program, view)
    return {
        "since_s": begin_s, "until_s": end_s, "until_wall_s": wall_s - (closed.at_s - end_s),
        "count": sum(each["count"] for each in found), "causes": found, **not_counted(closed, begin_s),
    }  # fmt: skip


def incidents_view(
    found: Iterable[Incident], clock_steps: Mapping[str, float], limit: int = 0, chars: int = 0
) -> list[Json]:
    """One entry per cause and error text, the gravest first, with its newest `limit` incidents. `chars` limits each text.

    The gravest: what still keeps a program from training, then by the time without training and the steps that were lost.
    """
    by_cause: dict[tuple[str, str], _Cause] = {}
    for each in found:
        by_cause.setdefault((each.what, each.error), _Cause(each, max(1, limit))).add(each)
    ordered = sorted(by_cause.items(), key=lambda item: item[1].first.number)
    groups = [_group(what, error, each, clock_steps) | ({} if not limit else {"incidents": [
        incident_view(one, clock_steps, chars=chars) for one in each.newest[: -limit - 1 : -1]
    ]}) for (what, error), each in ordered]  # fmt: skip
    return sorted(groups, key=_order)


class _Cause:
    """The incidents of one cause. Only the newest ones stay whole, because those of a year would fill the memory."""

    def __init__(self, first: Incident, most: int) -> None:
        self.first, self._most = first, most
        self.newest: list[Incident] = []
        self.count, self.goes_on, self.outages_s = 0, False, array("d")
        self.lost_steps: int | None = None
        self.programs: set[str] = set()

    def add(self, each: Incident) -> None:
        self.count += each.count
        self.first = min(self.first, each, key=_NUMBER)
        insort(self.newest, each, key=_NUMBER)
        del self.newest[: -self._most]
        self.goes_on = self.goes_on or each.goes_on
        outage_s = (each.outage_s or 0.0) + each.before_outage_s
        self.outages_s.append(outage_s * max(1, len(each.programs())))  # of all programs
        self.programs.update(each.programs())
        for steps in (each.lost_steps, each.before_lost_steps):
            self.lost_steps = self.lost_steps if steps is None else steps + (self.lost_steps or 0)


def _order(group: Json) -> tuple[float, ...]:
    lost = (group["outage_s"], group["lost_steps"] or 0, group["count"], group["newest_wall_s"])
    return (not group["goes_on"], *(-each for each in lost))


def _group(what: str, error: str, found: _Cause, clock_steps: Mapping[str, float]) -> Json:
    newest = found.newest[-1].cause
    return {
        "what": what,
        "error": error,
        "count": found.count,
        "goes_on": found.goes_on,
        "outage_s": fsum(found.outages_s),
        "programs": sorted(found.programs),
        "first_wall_s": _wall_s(found.first.cause, clock_steps),
        "newest_wall_s": _wall_s(newest, clock_steps),
        "why": newest.fact.why,
        "lost_steps": found.lost_steps,
    }


def incident_view(found: Incident, clock_steps: Mapping[str, float], *, chars: int) -> Json:
    """One incident."""
    rows = found.rows if len(found.rows) <= _MOST_ROWS else [*found.rows[: _MOST_ROWS - 1], found.rows[-1]]
    return {
        "seq": found.cause.seq,
        "at_s": found.cause.at_s,
        "wall_s": _wall_s(found.cause, clock_steps),
        "what": found.what,
        "program": found.program or None,
        "programs": [*found.programs()],
        "attempt": found.attempt,
        "token": found.token or None,
        "level": found.level or None,
        "why": found.cause.fact.why,
        "outage_s": found.outage_s,
        "goes_on": found.goes_on,
        "lost_steps": found.lost_steps,
        "story": [_row(stamped, clock_steps, chars) for stamped in rows],
        "left_out": len(found.rows) - len(rows),
    }


def _row(stamped: Stamped, clock_steps: Mapping[str, float], chars: int) -> Json:
    """One fact of an incident: its reason, its measured values and its texts."""
    values = {field.name: getattr(stamped.fact, field.name) for field in fields(stamped.fact)}
    kind = type(stamped.fact).__name__
    return {
        "seq": stamped.seq,
        "wall_s": _wall_s(stamped, clock_steps),
        "kind": kind,
        "word": word(kind),
        "program": values.get("program"),
        "why": values["why"],
        "decision": kind in _DECISIONS,
        "measured": {key: values[key] for key in _MEASURED if _says_something(values.get(key))},
        "evidence": [_text(title, body, chars) for key in _SEEN for title, body in _texts(key, values.get(key))],
    }


def _says_something(value: object) -> bool:
    """Whether it is a known word or number, or a set flag. A mapping, such as the steps by program, is none of these."""
    return value not in (None, "") and value is not False and not isinstance(value, Mapping)


def _texts(key: str, value: object) -> list[tuple[str, str]]:
    """(title, text) of each piece that is not empty."""
    if isinstance(value, Mapping):
        return [(str(title), str(body)) for title, body in sorted(value.items()) if str(body).strip()]
    lines = value if isinstance(value, tuple) else (value or "",)
    body = "\n".join(map(str, lines))
    return [(key, body)] if body.strip() else []


def _text(title: str, body: str, chars: int) -> Json:
    whole = len(body) <= chars
    shown = body if whole else body[-chars:] if title in _FROM_THE_END else body[:chars]
    return {"title": title, "text": shown, "cut": not whole}


def _wall_s(stamped: Stamped, clock_steps: Mapping[str, float]) -> float:
    return wall_clock.shown(stamped.wall_s, stamped.boot_id, clock_steps)
