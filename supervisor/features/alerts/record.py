"""The alerts in the journal's record: sent ones, ones that wait for a target, and held ones."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Final

from supervisor.features.alerts.rules import Gone, same
from supervisor.model import facts
from supervisor.policy.upkeep.alarm import CRITICAL
from supervisor.records import Record, replace

_DELIVERIES_KEPT: Final = 20
_KEYS_KEPT: Final = 500


class Queued(Record):
    """A sent alert, until each of its targets has accepted it (`owed`: targets that have not accepted it yet)."""

    id: str
    kind: str
    severity: str
    program: str
    text: str
    at_s: float
    wall_s: float
    more: int
    owed: tuple[str, ...]


class Holding(Record):
    """Held alerts of one kind and program, which will be sent as one alert."""

    kind: str
    program: str
    severity: str
    count: int
    since_s: float
    newest: str


class Delivery(Record):
    """A target has accepted an alert, `after_s` after it was raised."""

    id: str
    kind: str
    program: str
    target: str
    wall_s: float
    after_s: float


class Failing(Record):
    """A target that does not accept its alerts."""

    error: str
    since_wall_s: float


class AlertRecord(Record):
    queue: tuple[Queued, ...] = ()  # oldest first
    total: int = 0
    gone: Gone = field(default_factory=Gone)
    held: dict[str, Holding] = field(default_factory=dict)  # by `policy.alerting.same`
    deliveries: tuple[Delivery, ...] = ()  # the newest
    failing: dict[str, Failing] = field(default_factory=dict)  # by target
    dropped: dict[str, int] = field(default_factory=dict)  # by target: number of dropped alerts, for its next alert
    report_due_wall_s: float | None = None  # the newest time of the daily report for which a report was made

    KINDS: ClassVar = (facts.AlertFact,)
    LATER: ClassVar = ()

    def after(self, stamped: facts.Stamped) -> AlertRecord:
        match fact := stamped.fact:
            case facts.AlertRaised():
                key = same(fact.alert, fact.program)
                queued = Queued(
                    fact.id, fact.alert, fact.severity, fact.program, fact.text or fact.why, stamped.at_s, stamped.wall_s,
                    fact.more, fact.targets,
                )  # fmt: skip
                last_s, critical_s = _noted(self.gone.last_s, key, stamped.at_s), self.gone.critical_s
                if fact.severity == CRITICAL:
                    critical_s = _noted(critical_s, key, stamped.at_s)
                return replace(
                    self, queue=(*self.queue, queued), total=self.total + 1,
                    gone=Gone(fact.tokens, stamped.at_s, last_s, critical_s),
                    # A critical one goes before held ones.
                    held={k: v for k, v in self.held.items() if k != key or not fact.more},
                )  # fmt: skip
            case facts.AlertHeld(alert=kind, program=program, severity=severity):
                key = same(kind, program)
                before = self.held.get(key)
                count, since_s = (1, stamped.at_s) if before is None else (before.count + 1, before.since_s)
                holding = Holding(kind, program, severity, count, since_s, fact.why)
                return replace(self, held={**self.held, key: holding})
            case facts.AlertDelivered(id=id_, target=target):
                sent = next((each for each in self.owed(target) if each.id == id_), None)
                if sent is None:
                    return self
                took_s = max(0.0, stamped.at_s - sent.at_s)
                delivery = Delivery(id_, sent.kind, sent.program, target, stamped.wall_s, took_s)
                return replace(
                    _without(self, (id_,), target), deliveries=(*self.deliveries, delivery)[-_DELIVERIES_KEPT:],
                    failing={k: v for k, v in self.failing.items() if k != target},
                    dropped={k: v for k, v in self.dropped.items() if k != target},
                )  # fmt: skip
            case facts.AlertsDropped(target=target, ids=ids):
                dropped = {**self.dropped, target: self.dropped.get(target, 0) + len(ids)}
                return replace(_without(self, ids, target), dropped=dropped)
            case facts.ReportMade(due_wall_s=due_wall_s):
                return replace(self, report_due_wall_s=due_wall_s)
            case facts.AlertTargetFailing(target=target, error=error):
                return replace(self, failing={**self.failing, target: Failing(error, stamped.wall_s)})
            case _:
                return self

    def metrics(self) -> list[tuple[str, str, float, bool]]:
        """Its metrics: name, meaning, value, and whether it is a count that never falls."""
        return [
            ("alerts", "alerts raised", self.total, True),
            ("alerts_waiting", "alerts that not every target has taken yet", float(len(self.queue)), False),
            ("alert_targets_failing", "targets that do not accept their alerts", float(len(self.failing)), False),
        ]

    def owed(self, target: str) -> tuple[Queued, ...]:
        """The alerts that wait for a target, oldest first."""
        return tuple(each for each in self.queue if target in each.owed)


def _noted(last_s: dict[str, float], key: str, at_s: float) -> dict[str, float]:
    noted = {k: v for k, v in last_s.items() if k != key} | {key: at_s}
    return dict(list(noted.items())[-_KEYS_KEPT:])


def _without(record: AlertRecord, ids: tuple[str, ...], target: str) -> AlertRecord:
    left = [
        replace(each, owed=tuple(name for name in each.owed if name != target)) if each.id in ids else each
        for each in record.queue
    ]
    return replace(record, queue=tuple(each for each in left if each.owed))


class DeliveryState(Record):
    """The delivery to one target of alerts: an alert is being sent, or the next try is at `retry_at_s`."""

    sending: str = ""  # id of the alert that is being sent
    failures: int = 0
    retry_at_s: float | None = None


class Delivering(Record):
    reaching: dict[str, DeliveryState] = field(default_factory=dict)  # by target of alerts


RECORDS: Final = {"alerts": AlertRecord}
MEMORY: Final = {"delivering": Delivering}
