"""The page `timeline`: levels, reboots, absences of the daemon, backups, programs' states and troubles, in time order.

A span keeps its true beginning, even before the window. It has journal times (`_s`) and wall-clock times (`_wall_s`).

The page has a limited size for any window: each lane is divided into a limited number of parts. Neighbouring spans that are
both shorter than a part are merged, with the state of the longer one; `count` is the number of merged spans. Marks of one
cause and program in one part are merged too, with the time of the first and the sequence number of the newest fact.

Worked example. A program that dies every three seconds for an hour, in a window of 10 h with 300 parts of two minutes: its
1,200 deaths are 30 marks of 40 each, and its 3,600 states at most 60 spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from supervisor.model import facts
from supervisor.reports.accounts_view import not_counted, placed, wall_clock_of
from supervisor.reports.incidents import Incident
from supervisor.reports.lanes import Lanes, Span, merged
from supervisor.reports.ledger import Ledger
from supervisor.reports.pages import Since
from supervisor.reports.sources import Json, Sources

_PARTS: Final = 300  # of a lane ...
_ALL_PARTS: Final = 3000  # ... and of the lanes of all programs together
_FEWEST_PARTS: Final = 20

# The kind of an incident's mark, by the fact that names the incident; any other kind is `trouble`.
_KINDS: Final[dict[type[facts.Fact], str]] = {
    facts.HostRebooted: "reboot", facts.Stalled: "stall", facts.Exited: "death", facts.SpawnFailed: "death",
    facts.Diverged: "divergence", facts.Sickened: "illness", facts.DaemonStarted: "daemon", facts.Slowed: "slow",
}  # fmt: skip


def timeline(sources: Sources, since: Since, until: Since) -> Json:
    """Levels, reboots, backups, programs' states and incidents, in time order."""
    closed, begin_s, end_s, wall_s = placed(sources, since, until)
    lanes = sources.lanes(closed.at_s, begin_s, end_s)
    marks = sources.incidents(begin_s, end_s, None, marks_of)
    return timeline_view(closed, lanes, marks, begin_s, end_s, wall_s=wall_s)


def timeline_view(
    closed: Ledger, lanes: Lanes, marks: list[Span], begin_s: float, end_s: float, *, wall_s: float
) -> Json:  # fmt: skip
    """Everything between two moments. `wall_s` is the wall clock's time of `closed.at_s`."""
    part_s = (end_s - begin_s) / _PARTS
    shown = {name: inside for name, spans in lanes.programs.items() if (inside := _inside(spans, begin_s, end_s))}
    parts = min(_PARTS, max(_FEWEST_PARTS, _ALL_PARTS // max(1, len(shown))))
    own_s = (end_s - begin_s) / parts
    wall = wall_clock_of(closed, wall_s)

    def lane_json(spans: Sequence[Span], longest_s: float) -> list[Json]:
        inside = sorted(_inside(spans, begin_s, end_s), key=lambda span: span.from_s)
        return [
            {
                "from_s": each.from_s, "to_s": each.to_s, "from_wall_s": wall(each.from_s), "to_wall_s": wall(each.to_s),
                **each.fields, "count": each.count,
            }
            for each in merged(inside, longest_s)
        ]  # fmt: skip

    marks = [each for each in (*lanes.marks, *marks) if begin_s <= each.from_s <= end_s]
    return {
        "since_s": begin_s, "until_s": end_s, "since_wall_s": wall(begin_s), "until_wall_s": wall(end_s),
        "levels": lane_json(lanes.levels, part_s), "box": lane_json(lanes.box, part_s),
        "backups": lane_json(lanes.backups, part_s), "vetoes": lane_json(lanes.vetoes, part_s),
        "programs": [{"name": name, "spans": lane_json(spans, own_s)} for name, spans in sorted(shown.items())],
        "marks": _marks(marks, own_s, wall), **not_counted(closed, closed.counted_s),
    }  # fmt: skip


def _inside(spans: Sequence[Span], begin_s: float, end_s: float) -> list[Span]:
    return [each for each in spans if each.to_s >= begin_s and each.from_s <= end_s]


# --- marks -------------------------------------------------------------------------------------------------------------


def marks_of(found: Iterable[Incident]) -> list[Span]:
    return [
        Span(each.began_s, each.began_s, {
            "kind": _KINDS.get(type(each.cause.fact), "trouble"), "what": each.what, "program": each.program or None,
            "seq": each.cause.seq, "why": each.cause.fact.why,
        }, each.count)
        for each in found
    ]  # fmt: skip


def _marks(marks: Iterable[Span], part_s: float, wall: Callable[[float], float]) -> list[Json]:
    """Marks in time order; those of one part, cause and program are merged."""
    found: dict[tuple[Any, ...], Json] = {}
    for mark in sorted(marks, key=lambda mark: (mark.from_s, mark.fields["seq"])):
        at_s, mark_keys = mark.from_s, mark.fields
        key = mark_keys["kind"], mark_keys["what"], mark_keys["program"], at_s // part_s if part_s > 0 else 0
        if key in found:
            found[key] |= mark_keys | {"count": found[key]["count"] + mark.count}
        else:
            found[key] = {"at_s": at_s, "wall_s": wall(at_s), **mark_keys, "count": mark.count}
    return [*found.values()]
