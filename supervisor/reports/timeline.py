"""The page `timeline`: levels, reboots, absences of the daemon, backups, programs' states and troubles, in time order.

A span keeps its true beginning, even before the window. It has journal times (`_s`) and wall-clock times (`_wall_s`).

The page has a limited size for any window: each lane is divided into a limited number of parts. Neighbouring spans that are
both shorter than a part are merged, with the state of the longer one; `count` is the number of merged spans. Marks of one
cause and program in one part are merged too, with the time of the first and the sequence number of the newest fact.

Worked example. A program that dies every three seconds for an hour, in a window of 10 h with 300 parts of two minutes: its
1,200 deaths are 30 marks of 40 each, and its 3,600 states at most 60 spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.model.lifecycle import Phase
from supervisor.model.snapshot import decoded
from supervisor.model.state import State
from supervisor.records import Record, dataclass
from supervisor.reports.accounts_view import wall_clock_of
from supervisor.reports.incidents import Incident
from supervisor.reports.kept import Chunk, Kept, chunked
from supervisor.reports.ledger import Ledger

Json = dict[str, Any]

OFF: Final = "OFF"  # the state of a program whose box is off
_PARTS: Final = 300  # of a lane ...
_ALL_PARTS: Final = 3000  # ... and of the lanes of all programs together
_FEWEST_PARTS: Final = 20
_OWNER: Final = ""  # of the chunks
_BRIEF_S: Final = 5.0  # an absence of the daemon up to this long is not shown

_PHASES: Final[dict[type[facts.Fact], Phase]] = {
    facts.SpawnIntended: Phase.STARTING, facts.BecameReady: Phase.RUNNING, facts.StopIntended: Phase.STOPPING,
    facts.BackedOff: Phase.BACKOFF, facts.Requeued: Phase.QUEUED, facts.Gated: Phase.GATED, facts.Finished: Phase.DONE,
    facts.GaveUp: Phase.FATAL, facts.NotRestarted: Phase.EXITED, facts.StayedDown: Phase.STOPPED,
}  # fmt: skip
# The kind of an incident's mark, by the fact that names the incident; any other kind is `trouble`.
_KINDS: Final[dict[type[facts.Fact], str]] = {
    facts.HostRebooted: "reboot", facts.Stalled: "stall", facts.Exited: "death", facts.SpawnFailed: "death",
    facts.Diverged: "divergence", facts.Sickened: "illness", facts.DaemonStarted: "daemon", facts.Slowed: "slow",
}  # fmt: skip


class Span(Record):
    """A stretch of a lane. `fields` holds further keys of its JSON."""

    from_s: float
    to_s: float
    fields: Json
    count: int = 1
    longest_s: float = 0.0  # after merging: the length of the span that `fields` comes from


@dataclass(slots=True)
class Lanes:
    """The spans and marks of a journal, by lane."""

    levels: list[Span] = field(default_factory=list)
    box: list[Span] = field(default_factory=list)
    backups: list[Span] = field(default_factory=list)
    vetoes: list[Span] = field(default_factory=list)
    programs: dict[str, list[Span]] = field(default_factory=dict)
    marks: list[tuple[float, Json]] = field(default_factory=list)


def timeline_view(
    closed: Ledger, lanes: Lanes, found: Iterable[Incident], begin_s: float, end_s: float, *, wall_s: float
) -> Json:  # fmt: skip
    """Everything between two moments. `wall_s` is the wall clock's time of `closed.at_s`."""
    lanes.marks += [_mark(each) for each in found]
    part_s = (end_s - begin_s) / _PARTS
    shown = {name: inside for name, spans in lanes.programs.items() if (inside := _inside(spans, begin_s, end_s))}
    parts = min(_PARTS, max(_FEWEST_PARTS, _ALL_PARTS // max(1, len(shown))))
    own_s = (end_s - begin_s) / parts
    wall = wall_clock_of(closed, wall_s)

    def lane_json(spans: Sequence[Span], longest_s: float) -> list[Json]:
        inside = sorted(_inside(spans, begin_s, end_s), key=lambda span: span.from_s)
        return [_span(each, wall) for each in merged(inside, longest_s)]

    marks = [each for each in lanes.marks if begin_s <= each[0] <= end_s]
    return {
        "since_s": begin_s, "until_s": end_s, "since_wall_s": wall(begin_s), "until_wall_s": wall(end_s),
        "levels": lane_json(lanes.levels, part_s), "box": lane_json(lanes.box, part_s),
        "backups": lane_json(lanes.backups, part_s), "vetoes": lane_json(lanes.vetoes, part_s),
        "programs": [{"name": name, "spans": lane_json(spans, own_s)} for name, spans in sorted(shown.items())],
        "marks": _marks(marks, own_s, wall),
    }  # fmt: skip


def _inside(spans: Sequence[Span], begin_s: float, end_s: float) -> list[Span]:
    return [each for each in spans if each.to_s >= begin_s and each.from_s <= end_s]


def merged(spans: Iterable[Span], part_s: float) -> list[Span]:
    """Merge neighbours that are both shorter than a part and less than a part apart."""
    found: list[Span] = []
    for each in spans:
        last = found[-1] if found else None
        length_s = each.to_s - each.from_s
        if last is not None and last.fields == each.fields and last.to_s == each.from_s:
            found[-1] = replace(last, to_s=each.to_s, longest_s=each.to_s - last.from_s)
        elif last is not None and max(length_s, last.to_s - last.from_s, each.from_s - last.to_s) < part_s:
            keys, longest_s = (each.fields, length_s) if length_s > last.longest_s else (last.fields, last.longest_s)
            found[-1] = Span(last.from_s, max(last.to_s, each.to_s), keys, last.count + each.count, longest_s)
        else:
            found.append(replace(each, longest_s=length_s))
    return found


def _span(each: Span, wall: Callable[[float], float]) -> Json:
    return {
        "from_s": each.from_s, "to_s": each.to_s, "from_wall_s": wall(each.from_s), "to_wall_s": wall(each.to_s),
        **each.fields, "count": each.count,
    }  # fmt: skip


# --- marks -------------------------------------------------------------------------------------------------------------


def _mark(each: Incident) -> tuple[float, Json]:
    cause = each.cause
    return each.began_s, {
        "kind": _KINDS.get(type(cause.fact), "trouble"), "what": each.what, "program": each.program or None,
        "seq": cause.seq, "why": cause.fact.why,
    }  # fmt: skip


def _marks(marks: Iterable[tuple[float, Json]], part_s: float, wall: Callable[[float], float]) -> list[Json]:
    """Marks in time order; those of one part, cause and program are merged."""
    found: dict[tuple[Any, ...], Json] = {}
    for at_s, mark_keys in sorted(marks, key=lambda mark: (mark[0], mark[1]["seq"])):
        key = mark_keys["kind"], mark_keys["what"], mark_keys["program"], at_s // part_s if part_s > 0 else 0
        if key in found:
            found[key] |= mark_keys | {"count": found[key]["count"] + 1}
        else:
            found[key] = {"at_s": at_s, "wall_s": wall(at_s), **mark_keys, "count": 1}
    return [*found.values()]


# --- reading -----------------------------------------------------------------------------------------------------------


class LaneReading:
    """The fold over the journal behind the page. Spans that are over, and marks, may leave the memory."""

    def __init__(self) -> None:
        self._over: list[tuple[str, str, Span]] = []
        self._marks: list[tuple[float, Json]] = []
        self._open: dict[tuple[str, str], tuple[float, Json]] = {}  # (lane, name) -> begin, further keys
        self._last_s: float | None = None
        self._rebooted_s: float | None = None
        self._chunks = {"span": 0, "mark": 0}

    def add(self, stamped: Stamped) -> None:
        """Read one more fact."""
        self._add(stamped, stamped.fact)
        self._last_s = stamped.at_s

    def lanes(self, now_s: float, kept: Kept | None, since_s: float, until_s: float) -> Lanes:
        """Everything between two moments, and more. What goes on ends now."""
        found = {kind: [] if kept is None else [
            item for chunk in kept.overlapping(kind, _OWNER, since_s, until_s, below) for item in chunk.items
        ] for kind, below in self._chunks.items()}  # fmt: skip
        out = Lanes(marks=[*((at_s, keys) for at_s, keys in found["mark"]), *self._marks])
        older = ((lane, name, Span(*span)) for lane, name, *span in found["span"])
        live = ((lane, name, Span(at_s, max(at_s, now_s), keys)) for (lane, name), (at_s, keys) in self._open.items())
        for lane, name, span in (*older, *self._over, *live):
            spans = out.programs.setdefault(name, []) if lane == "programs" else getattr(out, lane)
            spans.append(span)
        return out

    def seal(self) -> Iterator[Chunk]:
        """Give away the spans that are over, and the marks."""
        spans = [
            (each.from_s, each.to_s, [lane, name, each.from_s, each.to_s, each.fields]) for lane, name, each in self._over
        ]
        marks = [(at_s, at_s, [at_s, keys]) for at_s, keys in self._marks]
        self._over, self._marks = [], []
        for kind, items in (("span", spans), ("mark", marks)):
            for chunk in chunked(kind, _OWNER, self._chunks[kind], items):
                self._chunks[kind] = chunk.number + 1
                yield chunk

    def as_json(self) -> Json:
        """The fold as values for `json.dumps`, after `seal`."""
        going = [[*key, *value] for key, value in self._open.items()]
        return {"open": going, "last_s": self._last_s, "rebooted_s": self._rebooted_s, "chunks": self._chunks}

    @staticmethod
    def of_json(values: Mapping[str, Any]) -> LaneReading:
        """The reverse of `as_json`."""
        out = LaneReading()
        out._open = {(lane, name): (at_s, keys) for lane, name, at_s, keys in values["open"]}
        out._last_s, out._rebooted_s, out._chunks = values["last_s"], values["rebooted_s"], values["chunks"]
        return out

    def _begin(self, lane: str, name: str, at_s: float, fields: Json) -> None:
        if self._open.get((lane, name), (0.0, None))[1] != fields:
            self._end(lane, name, at_s)
            self._open[lane, name] = at_s, fields

    def _end(self, lane: str, name: str, at_s: float, **more: object) -> None:
        found = self._open.pop((lane, name), None)
        if found is None:
            return
        self._over.append((lane, name, Span(found[0], max(found[0], at_s), found[1] | more)))

    def _add(self, stamped: Stamped, fact: facts.Fact) -> None:
        at_s = stamped.at_s
        match fact:
            case facts.ProgramFact():
                self._program(stamped, fact)
            case facts.LevelChosen(level=level):
                keys = {"level": level, "slots": fact.slots, "trial": fact.trial, "by": fact.by, "why": fact.why}
                self._begin("levels", "", at_s, keys | {"seq": stamped.seq})
            case facts.Snapshot(state=text) if not self._open:
                self._opened(stamped, decoded(State, text))
            case facts.Vetoed(rule=rule):
                self._begin("vetoes", rule, at_s, {"rule": rule, "cap": fact.cap, "why": fact.why, "seq": stamped.seq})
            case facts.VetoLifted(rule=rule):
                self._end("vetoes", rule, at_s)
            case facts.BackupFact():
                self._backup(stamped, fact)
            case facts.OperatorAsked(request=request):
                self._mark(stamped, "operator", request, None)
            case _:
                self._box(stamped, fact)

    def _mark(self, stamped: Stamped, kind: str, what: str, program: str | None) -> None:
        keys = {"kind": kind, "what": what, "program": program, "seq": stamped.seq, "why": stamped.fact.why}
        self._marks.append((stamped.at_s, keys))

    def _opened(self, stamped: Stamped, state: State) -> None:
        """Begin with the state of a snapshot: earlier facts are no longer in the journal."""
        at_s, climb = stamped.at_s, state.climb
        keys = {"level": state.level, "slots": state.slots, "trial": climb.trial, "by": "", "why": climb.why}
        self._begin("levels", "", at_s, keys | {"seq": stamped.seq})
        for name, program in state.programs.items():
            self._begin("programs", name, at_s, {"phase": program.phase.value})

    def _box(self, stamped: Stamped, fact: facts.Fact) -> None:
        at_s = stamped.at_s
        match fact:
            case facts.HostRebooted(last_sign_s=last_sign_s):
                from_s = at_s - (fact.down_s or 0.0) if last_sign_s is None else last_sign_s
                self._away(stamped, min(from_s, at_s), "reboot", cause=fact.cause, end=fact.end, level=fact.level)
                self._rebooted_s = at_s
                for name in fact.programs:
                    self._begin("programs", name, min(from_s, at_s), {"phase": OFF})
            case facts.DaemonStarted(last_sign_s=last_sign_s) if self._last_s is not None and self._rebooted_s != at_s:
                from_s = self._last_s if last_sign_s is None else max(self._last_s, last_sign_s)
                if at_s - from_s > _BRIEF_S:
                    self._away(stamped, from_s, "no daemon")
            case facts.DaemonSuspended(gap_s=gap_s):
                self._away(stamped, at_s - gap_s, "suspended")
            case _:
                pass

    def _away(self, stamped: Stamped, from_s: float, kind: str, **more: object) -> None:
        keys = {"kind": kind, "why": stamped.fact.why, "seq": stamped.seq, **more}
        self._over.append(("box", "", Span(from_s, stamped.at_s, keys)))

    def _backup(self, stamped: Stamped, fact: facts.BackupFact) -> None:
        at_s = stamped.at_s
        match fact:
            case facts.BackupIntended(name=name, cause=cause):
                self._begin("backups", name, at_s, {"name": name, "cause": cause, "seq": stamped.seq})
            case facts.BackedUp(name=name):
                self._end("backups", name, at_s, ok=True, why=fact.why)
            case facts.BackupFailed(name=name):
                self._end("backups", name, at_s, ok=False, why=fact.why)
            case facts.RolledBackTo(backup=backup):
                for name in fact.steps:
                    self._mark(stamped, "rollback", f"back to backup {backup}", name)
            case _:
                pass

    def _program(self, stamped: Stamped, fact: facts.ProgramFact) -> None:
        name, at_s = fact.program, stamped.at_s
        match fact:
            case facts.ProgramConfigured() if ("programs", name) not in self._open:
                phase = Phase.QUEUED if fact.autostart else Phase.STOPPED
                self._begin("programs", name, at_s, {"phase": phase.value})
            case facts.ProgramRemoved():
                self._end("programs", name, at_s)
            case facts.RolledBack():
                self._mark(stamped, "rollback", "rolled back", name)
            case facts.Finished():
                self._mark(stamped, "done", "finished", name)
        phase_now = _PHASES.get(type(fact))
        if phase_now is not None:
            self._begin("programs", name, at_s, {"phase": phase_now.value})
