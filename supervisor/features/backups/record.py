"""The backups in progress and the rollbacks in the journal's record. Which backups exist is read from the disk."""

from __future__ import annotations

from typing import ClassVar, Final

from supervisor.features.backups import rules as rule
from supervisor.model import facts
from supervisor.records import Record, replace

_ENDS_KEPT: Final = 20


class Making(Record):
    """A backup that was intended, and whose outcome is not recorded yet."""

    name: str
    label: str
    cause: str
    programs: tuple[str, ...]


class Rollback(Record):
    """A rollback to a backup, from intent to end. `begun`: the backup was verified; `programs` stop or are stopped."""

    backup: str
    programs: tuple[str, ...]
    kept_as: str
    by: str
    begun: bool = False


class BackupEnd(Record):
    """The outcome of a backup, or of a rollback. A rollback's `name` is the backup of the state before it (`kept_as`)."""

    name: str
    ok: bool
    text: str


class BackupRecord(Record):
    making: tuple[Making, ...] = ()
    rollback: Rollback | None = None
    ends: tuple[BackupEnd, ...] = ()  # the newest
    due_wall_s: float | None = None  # the newest calendar time for which a backup was intended
    tried: tuple[str, ...] = ()  # labels of complete backups before a level: the next trial of that level needs no other

    KINDS: ClassVar = (facts.BackupFact,)
    LATER: ClassVar = (facts.LadderLaid,)

    def after(self, stamped: facts.Stamped) -> BackupRecord:
        match fact := stamped.fact:
            case facts.LadderLaid():  # a new ladder may have other levels with the same names: each has a first trial again
                return replace(self, tried=())
            case facts.BackupIntended():
                making = Making(fact.name, fact.label, fact.cause, fact.programs)
                due_wall_s = self.due_wall_s if fact.due_wall_s is None else fact.due_wall_s
                return replace(self, making=(*self.making, making), due_wall_s=due_wall_s)
            case facts.BackedUp(name=name) | facts.BackupFailed(name=name):
                rest = tuple(each for each in self.making if each.name != name)
                made = isinstance(fact, facts.BackedUp)
                whole = isinstance(fact, facts.BackedUp) and not fact.missed
                labels = {each.label for each in self.making if each.name == name and each.cause == rule.LEVEL and made}
                tried = tuple(sorted({*self.tried, *labels}))
                return _ended(replace(self, making=rest, tried=tried), name, ok=whole, text=fact.why)
            case facts.RollbackIntended():
                return replace(self, rollback=Rollback(fact.backup, fact.programs, fact.kept_as, fact.by))
            case facts.RollbackBegun(programs=programs) if self.rollback is not None:
                return replace(self, rollback=replace(self.rollback, programs=programs, begun=True))
            case facts.RolledBackTo() | facts.RollbackFailed() if self.rollback is not None:
                ok, kept_as = isinstance(fact, facts.RolledBackTo), self.rollback.kept_as
                return _ended(replace(self, rollback=None), kept_as, ok=ok, text=fact.why)
            case _:
                return self

    def metrics(self) -> list[tuple[str, str, float | None, bool]]:
        """Its metric: name, meaning, value, and whether it is a count that never falls."""
        ended = float(self.ends[-1].ok) if self.ends else None
        return [("backup_ok", "1 when the newest backup or rollback ended well", ended, False)]

    def holds(self, program: str) -> bool:
        """Whether a program must not start now: its checkpoints are being replaced."""
        return self.rollback is not None and self.rollback.begun and program in self.rollback.programs

    @property
    def names(self) -> tuple[str, ...]:
        """Names that are in use or were used recently."""
        rollback = () if self.rollback is None else (self.rollback.kept_as,)
        return (*(each.name for each in self.making), *(end.name for end in self.ends), *rollback)


def _ended(record: BackupRecord, name: str, *, ok: bool, text: str) -> BackupRecord:
    return replace(record, ends=(*record.ends, BackupEnd(name, ok, text))[-_ENDS_KEPT:])


class Begun(Record):
    names: frozenset[str] = frozenset()  # of the backups that the backup thread has been given


RECORDS: Final = {"backups": BackupRecord}
MEMORY: Final = {"backups_begun": Begun}
