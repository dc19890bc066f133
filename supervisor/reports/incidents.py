"""Group the facts of a journal into incidents: each is one trouble with its evidence, decisions and losses.

One grouping for the page `incidents`, for `report` and for `explain`. The rules:

* A *trouble* begins an incident and names its cause: a stall, a death, a reboot, an illness, a failed save ...
* Later facts of the same program join it, until the next trouble: evidence, decisions, the end of the attempt, lost work.
  A stall of another class, another damaged checkpoint of the same start, and the death that a trouble leads to join too.
* A reboot is one incident of the box. The ends and the resumes of the programs that ran join it.
* A request of a person is no trouble. An attempt that ends on request also ends the open incident of its program.

Worked example. Stalled (no progress for 32 s), Examined, StopIntended, Exited (stalled), BackedOff, SpawnIntended, Resumed
(500 steps lost), BecameReady: one incident "stall (hang)". Its outage is the 32 s plus the time up to BecameReady. A later
Exited (crash) begins the next incident.

Why not a fact that `decide` writes: it would record no decision, and a better grouping could never apply to old facts.

Older incidents of one day, cause and program are one row (`Grouping.merge`), with the facts of the newest one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from supervisor.model import facts
from supervisor.model.codec import of_text
from supervisor.model.facts import Stamped
from supervisor.model.state import State
from supervisor.policy.box.reboot_cause import CONTAINER

Facts = Callable[[Sequence[int]], Mapping[int, Stamped]]  # the facts of these numbers that the journal still has

_ROWS: Final = 100  # of old incidents that are read at once
_VARIES: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")  # parts of an error's text that differ from one crash to the next
_MOST_ATTEMPTS: Final = 1000  # whose numbers are known: later facts name a recent attempt
# Causes of death in plain words. Stalls, divergences and illnesses have facts of their own.
_DEATHS: Final = {
    "crash": "crash", "killed": "killed from outside", "lost": "ended unseen", "left": "left on someone else's request",
    "fenced": "fenced off", "config": "a configuration that cannot work", "out_of_memory": "out of host memory",
    "cuda_out_of_memory": "out of GPU memory", "oom_killed": "killed by the OOM killer",
    "job_preempted": "job preempted", "node_failed": "job lost with its node", "timeout": "job killed at its time limit",
    "cancelled": "job deleted",
}  # fmt: skip
_TROUBLES: Final = {
    "Diverged": "losses were not finite", "SpawnFailed": "a start failed", "CheckpointBad": "damaged checkpoint",
    "CheckpointFailed": "a checkpoint was not written", "Slowed": "much slower than usual",
    "FoundationLost": "file trouble", "JournalSalvaged": "damaged journal", "JournalRestored": "the journal was moved",
    "JournalStalled": "the journal could not be written", "XidReported": "GPU error", "GpuLost": "a GPU was lost",
    "GpusUnknown": "the GPUs could not be read", "BackupFailed": "a backup failed", "RollbackFailed": "a rollback failed",
    "ClusterUnreachable": "the cluster did not answer",
    "ConfigRefused": "configuration refused", "AlertTargetFailing": "alerts could not be delivered",
}  # fmt: skip
# Causes that an earlier fact reports. These words are for an end whose earlier fact was lost.
_TOLD_BEFORE: Final = {"stalled": "stall", "diverged": "losses were not finite", "sick": "unhealthy training"}
_OTHER_ENDS: Final = {"reboot": "reboot of the host", "stopped": "stopped on request", "done": "finished", "": "unknown"}
# Facts that begin an incident only if no other fact has begun it.
_IF_ALONE: Final = {"KillIntended": "did not leave in time", "GaveUp": "given up", "Reported": "out of memory"}
_FOLLOWS: Final = frozenset({
    "Examined", "Revived", "PaceRegained", "Healed", "RolledBack", "BatchLowered", "StopIntended", "KillIntended",
    "NotEnded", "Quiet", "ChildHalted", "StartsFrom",
    "BackedOff", "CheckpointQuarantined", "Requeued", "Resumed", "Reported", "GaveUp", "NotRestarted", "ResumeUnknown",
    "CheckpointsPutBack",
    "FirstStepShown",
})  # fmt: skip
_LAST_WORDS: Final = frozenset({"out_of_memory"})  # reports of a worker just before it exits
_OUR_REASONS: Final = frozenset({"stall", "diverged", "sick", "slow"})  # of stops that extralife decides on by itself
_IN_ORDER: Final = frozenset({"stopped", "done", "time_limit"})  # causes of ends that are no trouble
_OVER: Final = {  # a fact about the box -> the trouble that it ends
    "FoundationRestored": "FoundationLost", "GpuBack": "GpuLost", "GpusKnown": "GpusUnknown",
    "ConfigMended": "ConfigRefused", "ClusterReached": "ClusterUnreachable",
}  # fmt: skip


def cause_in_words(cause: str) -> str:
    """The cause of an attempt's end (`Exited.cause`) in plain words. Example: `oom_killed`, killed by the OOM killer."""
    return _DEATHS.get(cause) or _TOLD_BEFORE.get(cause) or _OTHER_ENDS.get(cause, cause)


@dataclass(slots=True)
class Incident:
    """One trouble. `cause` is the fact that names it; `program` is empty for a trouble of the box."""

    what: str
    program: str
    cause: Stamped
    level: str
    token: str = ""
    attempt: int | None = None
    began_s: float = 0.0  # journal time: the last sign of progress, or of life
    over_s: float | None = None  # when training continued; None: not yet, or it did not stop
    rows: list[Stamped] = field(default_factory=list)
    awaited: set[str] = field(default_factory=set)  # of a reboot: programs whose end is not recorded yet
    settled: bool = False  # the trouble is over: the next one of its kind begins a new incident
    goes_on: bool = False  # its program does not train yet, or its file or GPU is still missing
    number: int = 0  # incidents are in the order in which they began
    count: int = 1  # of one day, merged into this newest one
    before_outage_s: float = 0.0  # of those before it
    before_lost_steps: int | None = None

    def programs(self) -> tuple[str, ...]:
        fact = self.cause.fact
        if isinstance(fact, facts.HostRebooted) and not self.program:
            return tuple(sorted(fact.programs))
        return (self.program,) if self.program else ()

    @property
    def error(self) -> str:
        """The text of a crash's error without its numbers: crashes of one error are one cause. Empty: no crash, or no text.

        Example: "exit code 1: OSError: [Errno 28] at 0x7f3a" is "OSError: [Errno #] at #".
        """
        return _VARIES.sub("#", self.cause.fact.why.partition(": ")[2]) if self.what == "crash" else ""

    @property
    def outage_s(self) -> float | None:
        """From its beginning until training continued; None: it did not stop, or is still down."""
        return None if self.over_s is None else max(0.0, self.over_s - self.began_s)

    @property
    def lost_steps(self) -> int | None:
        """Known steps that have to be computed again because of it; None: no number is known."""
        return _sum(getattr(row.fact, "lost_steps", None) for row in self.rows)

    def after(self, other: Incident | None) -> Incident:
        """This incident, merged with an earlier one of its day."""
        if other is None:
            return self
        return replace(
            self, count=self.count + other.count, before_outage_s=other.before_outage_s + (other.outage_s or 0.0),
            before_lost_steps=_sum((other.before_lost_steps, other.lost_steps)),
        )  # fmt: skip

    def of(self, program: str | None) -> Incident:
        """The part that concerns one program: its own facts and those of the box. None: the whole."""
        rows = [row for row in self.rows if program in {None, getattr(row.fact, "program", program)}]
        return replace(self, program=program or self.program, rows=rows)


def _sum(steps: Iterable[int | None]) -> int | None:
    known = [each for each in steps if each is not None]
    return sum(known) if known else None


def incidents(journal: Iterable[Stamped], program: str | None = None) -> list[Incident]:
    """All incidents of a journal, in the order in which they began; with a program, its part of its own."""
    grouping = Grouping()
    for stamped in journal:
        grouping.add(stamped)
    found = grouping.between(float("-inf"), float("inf"), lambda _: {}, program)
    return sorted(found(), key=lambda each: each.number)


class Grouping:
    """The fold behind `incidents`, for a journal that grows."""

    def __init__(self) -> None:
        self.found: list[Incident] = []
        self._old: list[list[Any]] = []  # merged by day, as JSON values
        self._merged_s = -1.0  # all of these are before this moment
        self._count = 0
        # The incidents that a later fact may change: ("open", program), the newest one; ("down", program, number), until it
        # trains; ("box", kind, name), until it is over; ("reboot",), the newest one.
        self._held: dict[tuple[str, ...], Incident] = {}
        self._judged_s: float | None = None
        self._attempts: dict[str, int] = {}  # by token
        self._level = ""

    def add(self, stamped: Stamped) -> None:
        reboot = self._held.get(("reboot",))
        match stamped.fact:
            case facts.ProgramFact() as fact:
                self._program(stamped, fact)
            case facts.HostRebooted() as fact:
                more = f" ({fact.end})" if fact.end not in {"", fact.cause, CONTAINER} else ""
                what = "restart of the container" if fact.end == CONTAINER else "reboot of the host"
                found = self._held["reboot",] = self._begin(f"{what}, {fact.cause}{more}", stamped)
                found.level = fact.level or self._level
                found.began_s = stamped.at_s - (fact.down_s or 0.0) if fact.last_sign_s is None else fact.last_sign_s
                found.awaited.update(fact.programs)
                for name in fact.programs:
                    self._held["open", name] = found
                    self._stopped(found, name)
            case facts.RebootJudged() if reboot is not None:
                reboot.rows.append(stamped)
                self._judged_s = stamped.at_s
            case facts.LevelChosen(level=level):
                if reboot is not None and self._judged_s == stamped.at_s:
                    reboot.rows.append(stamped)
                self._level = level
            case facts.Snapshot(state=text) if not self._level:
                # From a snapshot: the state before the journal's first fact.
                state = of_text(State, text)
                self._level = state.level
                for program in state.programs.values():
                    if program.attempt is not None:
                        self._attempts[program.attempt.token] = program.attempt.number
            case fact:
                self._box(stamped, fact)

    def between(
        self, since_s: float, until_s: float, facts_of: Facts, program: str | None = None
    ) -> Callable[[], Iterator[Incident]]:  # fmt: skip
        """The incidents that begin, or whose cause was recorded, between two moments; with a program, its part of its own.

        Reading the facts of the old ones takes long, so the caller does it.
        """
        going = {each.number for key, each in self._held.items() if key[0] in {"box", "down"} and program in {None, key[1]}}
        live = (each for each in self.found if program is None or program in each.programs())
        live = (each for each in live if _overlaps(_span(each), since_s, until_s))
        newest = [replace(each.of(program), goes_on=each.number in going) for each in live]
        older = [item for item in self._old if _overlaps(item[:2], since_s, until_s)] if since_s <= self._merged_s else []
        older = [item for item in older if program is None or program in item[3]]

        def read() -> Iterator[Incident]:
            for place in range(0, len(older), _ROWS):
                items = older[place : place + _ROWS]
                rows = facts_of([seq for item in items for seq in item[-1]])
                yield from (_of_json(item, rows).of(program) for item in items if item[2] in rows)
            yield from newest

        return read

    def merge(self, bounds: Sequence[float]) -> None:
        """Merge the incidents before the last bound that no later fact can change: one a day, cause and program."""
        over = {each.number for each in self.found if _span(each)[1] <= bounds[-1]}
        over -= {each.number for each in self._held.values()}
        by_day: dict[tuple[Any, ...], Incident] = {}
        for each in sorted((each for each in self.found if each.number in over), key=lambda each: each.number):
            key = bisect_right(bounds, each.cause.at_s), each.what, each.error, each.programs(), each.level
            by_day[key] = each.after(by_day.get(key))
        self._old += map(_as_json, by_day.values())
        self._merged_s = bounds[-1]
        self.found = [each for each in self.found if each.number not in over]
        self._attempts = dict([*self._attempts.items()][-_MOST_ATTEMPTS:])

    def as_json(self) -> dict[str, Any]:
        """The fold as values for `json.dumps`."""
        return {
            "found": [[_as_json(each), sorted(each.awaited), each.settled] for each in self.found],
            "held": [[*key, each.number] for key, each in self._held.items()],
            "old": self._old, "attempts": self._attempts,
            "plain": [self._count, self._judged_s, self._level, self._merged_s],
        }  # fmt: skip

    @staticmethod
    def of_json(values: Mapping[str, Any], facts_of: Facts) -> Grouping:
        out = Grouping()
        rows = facts_of([seq for item, _, _ in values["found"] for seq in item[-1]])
        for item, names, over in values["found"]:
            if item[2] in rows:  # else it is archived
                out.found.append(replace(_of_json(item, rows), awaited=set(names), settled=over))
        by_number = {each.number: each for each in out.found}
        out._held = {tuple(key): by_number[number] for *key, number in values["held"] if number in by_number}
        out._old, out._attempts = values["old"], values["attempts"]
        out._count, out._judged_s, out._level, out._merged_s = values["plain"]
        return out

    def _begin(self, what: str, stamped: Stamped, *, program: str = "", token: str = "") -> Incident:
        attempt, self._count = self._attempts.get(token), self._count + 1
        began = Incident(
            what, program, stamped, self._level, token, attempt, stamped.at_s, rows=[stamped], number=self._count
        )  # fmt: skip
        self.found.append(began)
        return began

    # --- the box -----------------------------------------------------------------------------------------------------

    def _box(self, stamped: Stamped, fact: facts.Fact) -> None:
        kind = type(fact).__name__
        if kind in _OVER:
            ended = self._held.pop(("box", _OVER[kind], _name_of(fact)), None)
            if ended is not None:
                ended.rows.append(stamped)
                ended.over_s = stamped.at_s
        elif isinstance(fact, facts.DaemonStarted):
            for key in [key for key in self._held if key[:2] == ("box", "FoundationLost")]:
                if not getattr(self._held[key].cause.fact, "troubled", True):  # the daemon has restarted itself for it
                    self._held.pop(key).over_s = stamped.at_s
            reboot = self._held.get(("reboot",))
            with_host = reboot is not None and reboot.cause.at_s == stamped.at_s
            if not (fact.clean or with_host or fact.last_sign_s is None):
                self._close_past(self._begin("the daemon ended without notice", stamped), fact.last_sign_s)
        elif isinstance(fact, facts.JournalStalled):
            self._close_past(self._begin(_TROUBLES[kind], stamped), stamped.at_s - fact.for_s)
        elif kind in _TROUBLES:
            began = self._begin(_TROUBLES[kind], stamped)
            if kind in _OVER.values():
                self._held["box", kind, _name_of(fact)] = began

    @staticmethod
    def _close_past(found: Incident, began_s: float) -> None:
        """Close an incident that is already over when its fact is recorded."""
        found.began_s, found.over_s = began_s, found.cause.at_s

    # --- programs ----------------------------------------------------------------------------------------------------

    def _program(self, stamped: Stamped, fact: facts.ProgramFact) -> None:
        name = fact.program
        match fact:
            case facts.SpawnIntended(token=token, attempt=attempt):
                self._attempts[token] = attempt
            case facts.BecameReady():
                for each in self._no_longer_down(name):
                    each.over_s = stamped.at_s
            case facts.Recovered():
                self._held.pop(("open", name), None)
            case facts.StayedDown() | facts.Finished():
                self._no_longer_down(name)  # it is not expected to train any more
            case facts.Exited():
                self._exited(stamped, fact)
            case facts.StopIntended(reason=reason) if reason not in _OUR_REASONS:
                pass
            case _:
                self._of_program(stamped, fact, fact.token if isinstance(fact, facts.AttemptFact) else "")

    def _of_program(self, stamped: Stamped, fact: facts.ProgramFact, token: str) -> None:
        name, kind = fact.program, type(fact).__name__
        match fact:
            case facts.Stalled(stall=stall, age_s=age_s):
                self._trouble(f"stall ({stall})", stamped, name, token).began_s = stamped.at_s - age_s
            case facts.Sickened(illness=illness):
                self._trouble(f"unhealthy training ({illness})", stamped, name, token)
            case facts.CommandGone(background=background):
                what = "work in the background" if background else "processes left behind were ended"
                self._trouble(what, stamped, name, token)
            case facts.Gated(lost=lost) if lost:
                self._stopped(self._trouble("its GPU was missing", stamped, name, token))
            case facts.SpawnFailed():
                self._stopped(self._trouble(_TROUBLES[kind], stamped, name, token))
            case _ if kind in _TROUBLES:
                self._trouble(_TROUBLES[kind], stamped, name, token)
            case _ if kind in _FOLLOWS:
                self._follows(stamped, fact, token)

    def _stopped(self, found: Incident, program: str = "") -> None:
        """Note that this incident keeps a program from training, its own if none is named."""
        self._held["down", program or found.program, str(found.number)] = found

    def _no_longer_down(self, program: str) -> list[Incident]:
        return [self._held.pop(key) for key in list(self._held) if key[:2] == ("down", program)]

    def _trouble(self, what: str, stamped: Stamped, name: str, token: str) -> Incident:
        """Add a trouble to the open incident that it belongs to, else begin a new one. Returns that incident."""
        open_ = self._held.get(("open", name))
        if open_ is not None and open_.token == token and not open_.settled and _same(open_, stamped.fact):
            open_.rows.append(stamped)
            if type(open_.cause.fact).__name__ in _IF_ALONE:
                open_.what, open_.cause = what, stamped
            return open_
        began = self._held["open", name] = self._begin(what, stamped, program=name, token=token)
        return began

    def _follows(self, stamped: Stamped, fact: facts.ProgramFact, token: str) -> None:
        open_ = self._held.get(("open", fact.program))
        title = _IF_ALONE.get(type(fact).__name__, "")
        if isinstance(fact, facts.Reported) and fact.kind not in _LAST_WORDS:
            title = ""
        if title and (open_ is None or (token and open_.token != token)):
            self._held["open", fact.program] = self._begin(title, stamped, program=fact.program, token=token)
        elif open_ is not None:
            open_.rows.append(stamped)
            if isinstance(fact, facts.Revived | facts.PaceRegained | facts.Healed) and open_.token == token:
                open_.settled, open_.over_s = True, stamped.at_s

    def _exited(self, stamped: Stamped, fact: facts.Exited) -> None:
        name, before = fact.program, self._held.get(("open", fact.program))
        if before is not None and name in before.awaited:  # it ended with the host
            before.awaited.discard(name)
            before.rows.append(stamped)
        elif fact.cause in _IN_ORDER or (fact.cause == "ended" and not fact.counted):
            if before is not None and before.token == fact.token:
                before.rows.append(stamped)
            self._held.pop(("open", name), None)  # later facts do not belong to it
        elif before is not None and before.token == fact.token and fact.cause in _TOLD_BEFORE:
            before.rows.append(stamped)
            self._stopped(before)
        else:
            self._stopped(self._trouble(cause_in_words(fact.cause), stamped, name, fact.token))


def _span(found: Incident) -> tuple[float, float]:
    """From its beginning to the record of its cause."""
    return min(found.began_s, found.cause.at_s), max(found.began_s, found.cause.at_s)


def _overlaps(span: Sequence[float], since_s: float, until_s: float) -> bool:
    return span[0] <= until_s and span[1] >= since_s


def _as_json(each: Incident) -> list[Any]:
    plain = each.number, each.what, each.program, each.level, each.token, each.attempt, each.began_s, each.over_s
    before = each.count, each.before_outage_s, each.before_lost_steps
    return [*_span(each), each.cause.seq, each.programs(), *plain, *before, [row.seq for row in each.rows]]


def _of_json(item: list[Any], rows: Mapping[int, Stamped]) -> Incident:
    _, _, cause, _, number, what, program, level, token, attempt, began_s, over_s, count, outage_s, lost_steps, seqs = item
    return Incident(
        what, program, rows[cause], level, token, attempt, began_s, over_s, [rows[seq] for seq in seqs if seq in rows],
        number=number, count=count, before_outage_s=outage_s, before_lost_steps=lost_steps,
    )  # fmt: skip


def _same(open_: Incident, new: facts.Fact) -> bool:
    """Whether a new trouble of an attempt is part of its open one."""
    old = open_.cause.fact
    if type(old).__name__ in _IF_ALONE:
        return True
    if isinstance(new, facts.Exited):  # the end of an attempt that was in trouble
        return isinstance(old, facts.Stalled | facts.Diverged | facts.Sickened)
    return type(old) is type(new) and isinstance(new, facts.Stalled | facts.CheckpointBad)


def _name_of(fact: facts.Fact) -> str:
    """What distinguishes two incidents of one kind: the file, or the GPU."""
    name: str = getattr(fact, "name", "") or getattr(fact, "uuid", "")
    return name
