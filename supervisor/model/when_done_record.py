"""The record of an end of the work (`deciding/when_done.py`)."""

from __future__ import annotations

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.policy.upkeep import offsite
from supervisor.policy.upkeep import when_done as rule
from supervisor.policy.upkeep.when_done import EndRecord, Step
from supervisor.records import replace

RecordedFact = facts.WhenDoneStep | facts.OffsiteAsked | facts.OffsiteCopied | facts.HostRebooted | facts.DaemonStarted


def recorded(record: EndRecord, stamped: Stamped, fact: RecordedFact) -> EndRecord:
    """The record after one more fact."""
    match fact:
        case facts.WhenDoneStep():
            return _stepped(record, stamped.at_s, fact)
        case facts.OffsiteAsked(cause=offsite.DONE):
            return replace(record, asked_s=stamped.at_s)
        case facts.OffsiteCopied(verified=True) if record.asked_s is not None and fact.as_of_s >= record.asked_s:
            return replace(record, copied_s=fact.as_of_s, refused="")
        case facts.HostRebooted() if record.ordered_s is not None or record.failures:
            return replace(record, off_s=record.off_s + (fact.down_s or 0.0))
        case facts.DaemonStarted():  # the steps begin anew, and a command that ran before has not ended this box
            if record.ordered_s is not None:
                record = _failed(record, stamped.at_s, "this box was started again")
            return _anew(record, cancelled=record.cancelled)
        case _:
            return record


def _stepped(record: EndRecord, at_s: float, fact: facts.WhenDoneStep) -> EndRecord:
    match fact.step:
        case Step.BEGIN:
            return replace(record, cause=fact.cause, since_s=at_s)
        case Step.CALL_OFF:
            return EndRecord(not_before_s=record.not_before_s, off_s=record.off_s)
        case rule.CANCEL:
            return replace(_anew(record, cancelled=True), cause=record.cause, since_s=record.since_s)
        case rule.DELAY:
            return replace(record, not_before_s=fact.until_s, now=False)
        case rule.NOW:
            return replace(record, cancelled=False, now=True, waived=record.refused != "")
        case Step.LEAVE:
            return replace(record, left_s=at_s)
        case Step.REFUSE:
            return replace(record, refused=fact.error)
        case Step.REPORT:
            return replace(record, reported_s=at_s)
        case Step.RUN:
            return replace(record, ordered_s=at_s, succeeded_s=None, now=False)
        case _:  # the end of the command, unless it is that of a command of an earlier end
            if record.ordered_s is None:
                return record
            return _failed(record, at_s, fact.error) if fact.error else replace(record, succeeded_s=at_s, error="")


def _anew(record: EndRecord, *, cancelled: bool) -> EndRecord:
    """The same end before its first step."""
    return EndRecord(
        not_before_s=record.not_before_s, cancelled=cancelled, failures=record.failures, failed_s=record.failed_s,
        error=record.error, off_s=record.off_s,
    )  # fmt: skip


def _failed(record: EndRecord, at_s: float, error: str) -> EndRecord:
    return replace(
        record, ordered_s=None, succeeded_s=None, failures=record.failures + 1, failed_s=at_s, error=error
    )  # fmt: skip
