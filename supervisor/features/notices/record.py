"""The record of notices that this box ends (`decide.py`)."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Final

from supervisor.features.notices import rules as rule
from supervisor.features.notices.messages import EndNotice
from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.records import Record, replace


class Announced(Record):
    """A notice in force, since when, and when the programs leave because of it (None: never)."""

    notice: EndNotice
    at_s: float
    wall_s: float
    leave_at_s: float | None


class NoticeRecord(Record):
    """Notices by id. `spent`: the time has passed, or the box has rebooted, but the source still reports the notice."""

    standing: dict[str, Announced] = field(default_factory=dict)
    spent: dict[str, EndNotice] = field(default_factory=dict)

    KINDS: ClassVar = (facts.EndAnnounced, facts.EndCalledOff)
    LATER: ClassVar = (facts.HostRebooted,)

    def after(self, stamped: Stamped) -> NoticeRecord:
        if isinstance(stamped.fact, facts.EndAnnounced | facts.EndCalledOff):
            fact = stamped.fact
            others = {id_: each for id_, each in self.standing.items() if id_ != fact.id}
            spent = {id_: each for id_, each in self.spent.items() if id_ != fact.id}
            if isinstance(fact, facts.EndAnnounced):
                notice = EndNotice(fact.id, fact.source, rule.END if fact.sure else rule.RISK, fact.what, fact.until_s)
                return NoticeRecord(
                    {**others, fact.id: Announced(notice, stamped.at_s, stamped.wall_s, fact.leave_at_s)}, spent
                )
            if fact.passed and fact.id in self.standing:
                spent[fact.id] = self.standing[fact.id].notice
            return replace(self, standing=others, spent=spent)
        return NoticeRecord({}, self.spent | {id_: each.notice for id_, each in self.standing.items()})

    def keeps_down(self, now_s: float) -> bool:
        """Whether no program may start: the box ends before the program could save and be copied again."""
        return any(each.leave_at_s is not None and each.leave_at_s <= now_s for each in self.standing.values())

    def end(self) -> Announced | None:
        """The earliest announced end; None: none is announced."""
        ends = [each for each in self.standing.values() if each.notice.kind == rule.END]
        return min(ends, key=lambda each: (each.notice.until_s is None, each.notice.until_s or 0.0), default=None)

    def explanation(self, last_sign_s: float) -> EndNotice | None:
        """The notice that explains the end of a boot with this last sign of life; None: there is none."""
        found = (
            each.notice
            for each in self.standing.values()
            if rule.explains(each.notice, announced_s=each.at_s, last_sign_s=last_sign_s)
        )
        return next(found, None)


class Rescue(Record):
    """The saves and the copy that were started because of a notice that this box ends (`decide.py`)."""

    since_s: float
    saving: tuple[tuple[str, str], ...] = ()  # (program, token) of the attempts that were asked to save
    then: tuple[str, ...] = ()  # programs to ask when those have saved
    copy_by_s: float | None = None  # None: a copy was requested already, or none is wanted


class Leaving(Record):
    """What this daemon has done because of the standing notices."""

    rescues: dict[str, Rescue] = field(default_factory=dict)  # by the id of a notice
    end_sent: dict[str, float | None] = field(default_factory=dict)  # by token: the time of the box's end that it was sent
    errors: dict[str, str] = field(default_factory=dict)  # sources of notices that cannot be read


RECORDS: Final = {"notices": NoticeRecord}
MEMORY: Final = {"leaving": Leaving}
