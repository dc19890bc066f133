"""The record of an end of the work (`deciding/when_done.py`)."""

from __future__ import annotations

from typing import Any

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.policy.upkeep import offsite
from supervisor.policy.upkeep import when_done as rule
from supervisor.policy.upkeep.when_done import EndRecord, Step
from supervisor.records import replace

RecordedFact = facts.WhenDoneStep | facts.OffsiteAsked | facts.OffsiteCopied | facts.HostRebooted | facts.DaemonStarted


def recorded(record: EndRecord, stamped: Stamped, fact: RecordedFact) -> EndRecord:
    match fact:
        case facts.WhenDoneStep():
            return _stepped(record, stamped.at_s, fact)
        case facts.OffsiteAsked(cause=offsite.DONE):
            return replace(record, asked_s=stamped.at_s)
        case facts.OffsiteCopied(verified=True) if record.asked_s is not None and fact.as_of_s >= record.asked_s:
            return replace(record, copied_s=fact.as_of_s, refused="")
        case facts.HostRebooted():
            return replace(record, off_s=record.off_s + (fact.down_s or 0.0))
        case facts.DaemonStarted():  # a command that ran before has not ended this box
            lived = record.ordered_s is not None
            return _anew(_failed(record, stamped.at_s, "this box was started again") if lived else record)
        case _:
            return record


def _stepped(record: EndRecord, at_s: float, fact: facts.WhenDoneStep) -> EndRecord:
    changes: dict[str, dict[str, Any]] = {
        Step.BEGIN: {"cause": fact.cause, "since_s": at_s, "announced": fact.cause},
        rule.NOW: {"cancelled": False, "now": True, "not_before_s": None, "waived": record.refused != ""},
        Step.LEAVE: {"left_s": at_s},
        Step.REFUSE: {"refused": fact.error},
        Step.REPORT: {"reported_s": at_s},
        Step.RUN: {"ordered_s": at_s, "succeeded_s": None, "now": False},
    }
    if fact.step == Step.CALL_OFF:
        return EndRecord(not_before_s=record.not_before_s, off_s=record.off_s)
    if fact.step in {rule.CANCEL, rule.DELAY}:
        cancelled, same = fact.step == rule.CANCEL, replace(_anew(record), cause=record.cause, since_s=record.since_s)
        return replace(same, cancelled=cancelled, not_before_s=record.not_before_s if cancelled else fact.until_s)
    if fact.step != Step.ENDED:
        return replace(record, **changes[fact.step])
    if record.ordered_s is None:  # a command of an earlier end
        return record
    return _failed(record, at_s, fact.error) if fact.error else replace(record, succeeded_s=at_s, error="")


def _anew(record: EndRecord) -> EndRecord:
    """The record of the same end before its first step."""
    kept = ("announced", "not_before_s", "cancelled", "failures", "failed_s", "error", "off_s")
    return EndRecord(**{name: getattr(record, name) for name in kept})


def _failed(record: EndRecord, at_s: float, error: str) -> EndRecord:
    failures = record.failures + 1
    return replace(record, ordered_s=None, succeeded_s=None, failures=failures, failed_s=at_s, error=error)
