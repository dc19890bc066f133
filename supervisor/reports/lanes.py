"""The fold over the journal behind the page `timeline`: levels, absences, backups, vetoes, states of programs, and marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from supervisor.model import facts
from supervisor.model.codec import of_text
from supervisor.model.facts import Stamped
from supervisor.model.lifecycle import Phase
from supervisor.model.state import State

Json = dict[str, Any]

OFF: Final = "OFF"  # the state of a program whose box is off
MARKS: Final = "marks"  # the lane of spans without a length
_COARSE_S: Final = 3 * 3600.0  # older spans that are shorter are merged with their neighbours
_BRIEF_S: Final = 5.0  # an absence of the daemon up to this long is not shown

_PHASES: Final[dict[type[facts.Fact], Phase]] = {
    facts.SpawnIntended: Phase.STARTING, facts.BecameReady: Phase.RUNNING, facts.StopIntended: Phase.STOPPING,
    facts.BackedOff: Phase.BACKOFF, facts.Requeued: Phase.QUEUED, facts.Gated: Phase.GATED, facts.Finished: Phase.DONE,
    facts.GaveUp: Phase.FATAL, facts.NotRestarted: Phase.EXITED, facts.StayedDown: Phase.STOPPED,
}  # fmt: skip


@dataclass(slots=True)
class Span:
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
    marks: list[Span] = field(default_factory=list)  # of no length


def merged(spans: Iterable[Span], part_s: float) -> list[Span]:
    """Merge neighbours that are both shorter than a part and less than a part apart."""
    found: list[Span] = []
    for each in spans:
        last = found[-1] if found else None
        length_s = each.to_s - each.from_s
        if last is not None and last.fields == each.fields and last.to_s == each.from_s:
            found[-1] = replace(last, to_s=each.to_s, count=last.count + each.count - 1, longest_s=each.to_s - last.from_s)
        elif last is not None and max(length_s, last.to_s - last.from_s, each.from_s - last.to_s) < part_s:
            keys, longest_s = (each.fields, length_s) if length_s > last.longest_s else (last.fields, last.longest_s)
            found[-1] = Span(last.from_s, max(last.to_s, each.to_s), keys, last.count + each.count, longest_s)
        else:
            found.append(replace(each, longest_s=length_s))
    return found


class LaneReading:
    """The fold."""

    def __init__(self) -> None:
        self._over: list[tuple[str, str, Span]] = []  # (lane, name, span); a mark is a span without a length
        self._old: list[tuple[str, str, Span]] = []  # merged
        self._merged_s = -1.0  # all of these are before this moment
        self._open: dict[tuple[str, str], tuple[float, Json]] = {}  # (lane, name) -> begin, further keys
        self._last_s: float | None = None
        self._rebooted_s: float | None = None

    def add(self, stamped: Stamped) -> None:
        self._add(stamped, stamped.fact)
        self._last_s = stamped.at_s

    def lanes(self, now_s: float, since_s: float, until_s: float) -> Lanes:
        """Everything between two moments. What goes on ends now."""
        live = [(lane, name, Span(at_s, max(at_s, now_s), keys)) for (lane, name), (at_s, keys) in self._open.items()]
        out = Lanes()
        for lane, name, span in (*(self._old if since_s <= self._merged_s else ()), *self._over, *live):
            if span.to_s >= since_s and span.from_s <= until_s:
                spans = out.programs.setdefault(name, []) if lane == "programs" else getattr(out, lane)
                spans.append(span)
        return out

    def merge(self, before_s: float) -> None:
        """Merge neighbours before a moment that are short."""
        older: dict[tuple[str, str], list[Span]] = {}
        newer: list[tuple[str, str, Span]] = []
        for lane, name, span in self._over:
            if lane != MARKS and span.to_s <= before_s:
                older.setdefault((lane, name if lane == "programs" else ""), []).append(span)
            else:
                newer.append((lane, name, span))
        self._old += [(*key, span) for key, spans in older.items() for span in merged(spans, _COARSE_S)]
        self._over, self._merged_s = newer, before_s

    def as_json(self) -> Json:
        """The fold as values for `json.dumps`."""
        going = [[*key, *value] for key, value in self._open.items()]
        over, old = ([[lane, name, *astuple(span)] for lane, name, span in spans] for spans in (self._over, self._old))
        plain = [self._last_s, self._rebooted_s, self._merged_s]
        return {"open": going, "over": over, "old": old, "plain": plain}

    @staticmethod
    def of_json(values: Mapping[str, Any]) -> LaneReading:
        out = LaneReading()
        out._over, out._old = ([(lane, name, Span(*span)) for lane, name, *span in values[key]] for key in ("over", "old"))
        out._open = {(lane, name): (at_s, keys) for lane, name, at_s, keys in values["open"]}
        out._last_s, out._rebooted_s, out._merged_s = values["plain"]
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
                # From a snapshot: earlier facts are no longer in the journal.
                state = of_text(State, text)
                at_s, climb = stamped.at_s, state.climb
                keys = {"level": state.level, "slots": state.slots, "trial": climb.trial, "by": "", "why": climb.why}
                self._begin("levels", "", at_s, keys | {"seq": stamped.seq})
                for name, program in state.programs.items():
                    self._begin("programs", name, at_s, {"phase": program.phase.value})
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
        self._over.append((MARKS, "", Span(stamped.at_s, stamped.at_s, keys)))

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
            case facts.ProgramConfigured(moved=False, level_only=False):
                self._mark(stamped, "settings", "settings changed", name)
            case facts.ProgramRemoved():
                self._end("programs", name, at_s)
            case facts.RolledBack():
                self._mark(stamped, "rollback", "rolled back", name)
            case facts.Finished():
                self._mark(stamped, "done", "finished", name)
        phase_now = _PHASES.get(type(fact))
        if phase_now is not None:
            self._begin("programs", name, at_s, {"phase": phase_now.value})
