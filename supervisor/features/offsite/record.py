"""The record of copies off the box, and of the holder of their repository."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Final

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.policy.upkeep import copies
from supervisor.records import Record, replace


class Copied(Record):
    """The newest copy. `at_s` and `wall_s` are the moment at which its files were collected."""

    snapshot: str
    cause: str
    at_s: float
    wall_s: float
    steps: dict[str, int | None]
    size_bytes: int
    sent_bytes: int
    took_s: float
    missed: dict[str, str]
    then: str = ""  # what it says of the next one


class Tended(Record):
    """The newest removal of old copies, or check. `due_wall_s`: the calendar time for which it was made."""

    wall_s: float
    error: str = ""
    due_wall_s: float | None = None
    read_percent: int | None = None


class Fence(Record):
    """The box that has taken over, and since when."""

    box: str
    since_wall_s: float
    token: str = ""
    place: str = ""  # name of the repository that it took over


class OffsiteRecord(Record):
    asked: str = ""  # the reason that waits for a copy
    asked_at_s: float = 0.0
    copied: Copied | None = None
    failures: int = 0  # in a row
    failed_s: float | None = None
    error: str = ""  # of the newest attempt, if that failed
    late: bool = False
    tended: dict[str, Tended] = field(default_factory=dict)  # by `forget` and `check`
    token: str = ""  # of the lease that this box holds ...
    place: str = ""  # ... in the repository of this name
    generation: int = 0
    moved: bool = False  # this is other hardware than the box that wrote that lease
    fence: Fence | None = None
    lost: str = ""  # the box whose trainings this one continued last ...
    lost_s: float | None = None  # ... and the time from its last known sign of life to this box's lease
    ends: int = 0  # number of copies and take-overs that have ended
    ended: str = ""  # the outcome of the newest of them, and ...
    ended_well: bool = True  # ... whether it was a success

    KINDS: ClassVar = (facts.OffsiteFact, facts.RolledBackTo)
    LATER: ClassVar = (facts.LevelChosen, facts.BoxIdentified)

    def after(self, stamped: Stamped) -> OffsiteRecord:
        match fact := stamped.fact:
            case facts.RolledBackTo():
                return wanting(self, copies.ROLLBACK, stamped.at_s)
            case facts.LevelChosen(level=level, before=before) if before not in {"", level}:
                return wanting(self, copies.LEVEL, stamped.at_s)
            case facts.BoxIdentified(another=True):
                return replace(self, moved=True)
            case facts.OffsiteAsked(cause=cause):
                return wanting(self, cause, stamped.at_s)
            case facts.OffsiteCopied():
                return _copied(self, stamped, fact)
            case facts.OffsiteFailed(what="forget" | "check" as what, error=error, due_wall_s=due_wall_s):
                return _tended(self, what, Tended(stamped.wall_s, error, due_wall_s))
            case facts.OffsiteFailed(what="take-over"):
                return _ended(self, fact.why, well=False)
            case facts.OffsiteFailed(error=error) if fact.what != "code":  # that is the end of no work
                return _failed(self, stamped, fact.cause, error)
            case facts.OffsiteTended(what=what, due_wall_s=due_wall_s, read_percent=read_percent):
                return _tended(self, what, Tended(stamped.wall_s, "", due_wall_s, read_percent))
            case facts.OffsiteLate():
                return replace(self, late=True)
            case facts.OffsiteFenced() | facts.OffsiteReleased() | facts.OffsiteHeld():
                return _leased(self, stamped, fact)
            case _:
                return self

    def keeps_down(self, *, on: bool) -> bool:
        """Whether no program may start, because another box continues them. `on`: a repository is configured."""
        return on and self.fence is not None


def wanting(record: OffsiteRecord, cause: str, at_s: float) -> OffsiteRecord:
    """The record with one more reason for a copy. An urgent reason is not replaced by one that is not urgent."""
    if record.asked in copies.URGENT and cause not in copies.URGENT:
        return record
    if cause == copies.DONE:  # its first try does not wait for an earlier failure
        record = replace(record, failures=0, failed_s=None)
    return replace(record, asked=cause, asked_at_s=at_s)


def _leased(
    record: OffsiteRecord, stamped: Stamped, fact: facts.OffsiteFenced | facts.OffsiteReleased | facts.OffsiteHeld
) -> OffsiteRecord:  # fmt: skip
    match fact:
        case facts.OffsiteFenced(box=box, since_wall_s=since_wall_s, token=token, place=place):
            return _ended(replace(record, fence=Fence(box, since_wall_s, token, place)), fact.why, well=False)
        case facts.OffsiteHeld(token=token, generation=generation, place=place):
            record = replace(record, token=token, generation=generation, place=place, moved=False)
            if fact.after:
                lost_s = None if fact.since_s is None else stamped.at_s - fact.since_s
                record = replace(record, lost=fact.after, lost_s=lost_s)
    return _ended(replace(record, fence=None), fact.why, well=True)


def _copied(record: OffsiteRecord, stamped: Stamped, fact: facts.OffsiteCopied) -> OffsiteRecord:
    copied = Copied(
        fact.snapshot, fact.cause, fact.as_of_s, fact.as_of_wall_s, fact.steps, fact.size_bytes, fact.sent_bytes,
        fact.took_s, fact.missed, fact.then,
    )  # fmt: skip
    record = replace(record, copied=copied, late=False)
    if fact.cause == copies.DONE and not fact.verified:
        return _failed(record, stamped, fact.cause, "; ".join(f"not copied: {n}: {why}" for n, why in fact.missed.items()))
    answered = record.asked_at_s <= fact.as_of_s  # a reason that arrived later needs another copy
    record = replace(record, failures=0, failed_s=None, error="", asked="" if answered else record.asked)
    return _ended(record, fact.why, well=True)


def _failed(record: OffsiteRecord, stamped: Stamped, cause: str, error: str) -> OffsiteRecord:
    asked = "" if cause == copies.OPERATOR == record.asked else record.asked
    failed = replace(record, failures=record.failures + 1, failed_s=stamped.at_s, error=error, asked=asked)
    return _ended(failed, stamped.fact.why, well=False)


def _tended(record: OffsiteRecord, what: str, tended: Tended) -> OffsiteRecord:
    if tended.due_wall_s is None and what in record.tended:
        tended = replace(tended, due_wall_s=record.tended[what].due_wall_s)
    return replace(record, tended={**record.tended, what: tended})


def _ended(record: OffsiteRecord, text: str, *, well: bool) -> OffsiteRecord:
    return replace(record, ends=record.ends + 1, ended=text, ended_well=well)


class Copying(Record):
    """The work of the thread for copies off the box."""

    doing: str = ""  # its present task; empty: none
    cause: str = ""  # of the copy that is being made
    looked: str = ""  # the repository (`OffsiteSettings.place`) whose lease this daemon has requested ...
    looked_s: float = 0.0  # ... and when
    asked: tuple[str, ...] = ()  # tasks that the operator or the calendar requested and that have not begun yet
    missing: dict[str, str] = field(default_factory=dict)  # by program: the code that this box lacks, in a sentence
    first_look_s: float | None = None  # no program starts before the lease is read, or before this moment


RECORDS: Final = {"offsite": OffsiteRecord}
MEMORY: Final = {"copying": Copying}
