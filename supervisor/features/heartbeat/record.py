"""What the heartbeat remembers: whether this box is about to be stopped, and its newest ping."""

from __future__ import annotations

from typing import ClassVar, Final

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.records import Record

_ORDERED, _CALLED_OFF = "run", "call off"  # steps of an end of the work


class HeartbeatRecord(Record):
    ends: str = ""  # why this box is about to be stopped; empty: it is not

    KINDS: ClassVar = (facts.WhenDoneStep, facts.DaemonStarted)
    LATER: ClassVar = ()

    def after(self, stamped: Stamped) -> HeartbeatRecord:
        match stamped.fact:
            case facts.WhenDoneStep(step=step, why=why) if step == _ORDERED:
                return HeartbeatRecord(why)
            case facts.WhenDoneStep(step=step) if step != _CALLED_OFF:
                return self
            case _:
                return HeartbeatRecord()


class Beating(Record):
    at_s: float = 0.0
    word: str = ""


RECORDS: Final = {"heartbeat": HeartbeatRecord}
MEMORY: Final = {"beating": Beating}
