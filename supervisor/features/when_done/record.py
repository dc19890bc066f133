"""The record of an end of the work (`decide.py`)."""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Final

from supervisor.features.when_done.settings import BUDGET
from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.policy.upkeep import copies
from supervisor.records import Record, replace

CANCEL, DELAY, NOW = "cancel", "delay", "now"
ACTIONS: Final = (CANCEL, DELAY, NOW)


class Step(enum.StrEnum):
    """The next action, as it is written in the journal."""

    WAIT = "wait"
    BEGIN = "begin"
    CALL_OFF = "call off"
    LEAVE = "leave"  # every process saves and exits
    COPY = "copy"
    REFUSE = "refuse"  # something is not saved, or no copy is verified
    REPORT = "report"
    RUN = "run"
    ENDED = "ended"  # the command has ended, or the box was still there long after its success


class EndRecord(Record):
    """An end and its steps so far. Times are journal time; None: not yet."""

    cause: str = ""  # empty: there is no end
    since_s: float = 0.0
    announced: str = ""  # the cause whose beginning was an alert: a restart does not repeat it
    not_before_s: float | None = None  # the operator's delay ...
    cancelled: bool = False
    now: bool = False  # ... and wish not to wait ...
    waived: bool = False  # ... nor, after a refusal, for saves and a copy
    left_s: float | None = None  # all programs were asked to exit
    asked_s: float | None = None  # a verified copy was requested, after the last process had exited
    copied_s: float | None = None  # such a copy has the files of this moment
    refused: str = ""  # why no copy is verified, or what is not saved; an alert has reported it
    reported_s: float | None = None
    ordered_s: float | None = None  # the command was started
    succeeded_s: float | None = None  # the command has succeeded
    failures: int = 0  # in a row
    failed_s: float | None = None
    error: str = ""  # of the newest try, if that failed
    off_s: float = 0.0  # how long the box was off: nobody paid for this time

    over_budget: bool = False  # the operator has cancelled an end by the budget, and there was work since: it counts no more
    restarts: bool = False  # the daemon restarts itself

    KINDS: ClassVar = (
        facts.WhenDoneStep, facts.OffsiteAsked, facts.OffsiteCopied, facts.HostRebooted, facts.DaemonStarted,
        facts.DaemonStopping,
    )  # fmt: skip
    LATER: ClassVar = ()

    def after(self, stamped: Stamped) -> EndRecord:
        match fact := stamped.fact:
            case facts.WhenDoneStep():
                return _stepped(self, stamped.at_s, fact)
            case facts.OffsiteAsked(cause=copies.DONE):
                return replace(self, asked_s=stamped.at_s)
            case facts.OffsiteCopied(verified=True) if self.asked_s is not None and fact.as_of_s >= self.asked_s:
                return replace(self, copied_s=fact.as_of_s, refused="")
            case facts.HostRebooted():
                return replace(self, off_s=self.off_s + (fact.down_s or 0.0))
            case facts.DaemonStopping(by=facts.ITSELF):
                return replace(self, restarts=True)
            case facts.DaemonStarted() if self.restarts:  # only its process is another
                return replace(self, restarts=False)
            case facts.DaemonStarted():  # a command that ran before has not ended this box
                lived = self.ordered_s is not None
                return _anew(_failed(self, stamped.at_s, "this box was started again") if lived else self)
            case _:
                return self

    @property
    def runs(self) -> bool:
        return self.ordered_s is not None and self.succeeded_s is None

    @property
    def begun(self) -> bool:
        return self.cause != "" or self.failures > 0 or self.cancelled

    @property
    def keeps_down(self) -> bool:
        """Whether no program may start."""
        return self.left_s is not None and not self.cancelled


def _stepped(record: EndRecord, at_s: float, fact: facts.WhenDoneStep) -> EndRecord:
    changes: dict[str, dict[str, Any]] = {
        Step.BEGIN: {"cause": fact.cause, "since_s": at_s, "announced": fact.cause},
        NOW: {"cancelled": False, "now": True, "not_before_s": None, "waived": record.refused != ""},
        Step.LEAVE: {"left_s": at_s},
        Step.REFUSE: {"refused": fact.error},
        Step.REPORT: {"reported_s": at_s},
        Step.RUN: {"ordered_s": at_s, "succeeded_s": None, "now": False},
    }
    if fact.step == Step.CALL_OFF:
        over_budget = fact.cause != "" and (record.over_budget or (record.cancelled and fact.cause == BUDGET))
        return EndRecord(not_before_s=record.not_before_s, off_s=record.off_s, over_budget=over_budget)
    if fact.step in {CANCEL, DELAY}:
        cancelled, same = fact.step == CANCEL, replace(_anew(record), cause=record.cause, since_s=record.since_s)
        return replace(same, cancelled=cancelled, not_before_s=record.not_before_s if cancelled else fact.until_s)
    if fact.step != Step.ENDED:
        return replace(record, **changes[fact.step])
    if record.ordered_s is None:  # a command of an earlier end
        return record
    return _failed(record, at_s, fact.error) if fact.error else replace(record, succeeded_s=at_s, error="")


def _anew(record: EndRecord) -> EndRecord:
    """The record of the same end before its first step."""
    kept = ("announced", "not_before_s", "cancelled", "failures", "failed_s", "error", "off_s", "over_budget")
    return EndRecord(**{name: getattr(record, name) for name in kept})


def _failed(record: EndRecord, at_s: float, error: str) -> EndRecord:
    failures = record.failures + 1
    return replace(record, ordered_s=None, succeeded_s=None, failures=failures, failed_s=at_s, error=error)


RECORDS: Final = {"when_done": EndRecord}
