"""The page `alerts`: each target, the queued alerts, the held alerts, and the deliveries.

For `supervisorctl alerts` and /api/v1/alerts; from a dead daemon's journal too. Targets appear by name, which discloses no
part of a URL. Unknown is None.
"""

from __future__ import annotations

from dataclasses import asdict

from supervisor.features.alerts.record import AlertRecord, Delivering, DeliveryState
from supervisor.features.alerts.settings import AlertSettings
from supervisor.model.memory import Memory
from supervisor.model.state import State
from supervisor.reports.added import Added
from supervisor.reports.sources import Json, Sources


def alerts(sources: Sources) -> Json:
    """The targets, the queued alerts, and the deliveries. Without settings, the targets of the record."""
    state, settings, memory, now_s = sources.state, sources.settings, sources.memory, sources.now_s
    record = state.of(AlertRecord)
    named = settings.of(AlertSettings).targets if settings is not None else ()
    failing = record.failing if settings is None else ()  # with settings, failures of removed targets are not shown
    known = [*named, *(name for each in record.queue for name in each.owed), *failing]
    return {
        "targets": [_target(state, name, memory, now_s, configured=name in named) for name in dict.fromkeys(known)],
        "queue": [
            {
                "id": each.id, "kind": each.kind, "severity": each.severity, "program": each.program or None,
                "text": each.text, "wall_s": each.wall_s, "more": each.more, "owed": list(each.owed),
            }
            for each in record.queue
        ],
        "held": [
            {"kind": each.kind, "program": each.program or None, "count": each.count, "since_s": now_s - each.since_s}
            for each in record.held.values()
        ],
        "deliveries": [asdict(each) | {"program": each.program or None} for each in record.deliveries],
        "total": record.total,
    }  # fmt: skip


def _target(state: State, name: str, memory: Memory, now_s: float, *, configured: bool) -> Json:
    record = state.of(AlertRecord)
    failing, reaching = record.failing.get(name), memory.of(Delivering).reaching.get(name, DeliveryState())
    return {
        "name": name,
        "configured": configured,
        "state": "failing" if failing is not None else "sending" if reaching.sending else "idle",
        "waiting": len(record.owed(name)),
        "error": "" if failing is None else failing.error,
        "failing_since_wall_s": None if failing is None else failing.since_wall_s,
        "retry_in_s": None if reaching.retry_at_s is None else max(0.0, reaching.retry_at_s - now_s),
        "last_wall_s": next((each.wall_s for each in reversed(record.deliveries) if each.target == name), None),
        "dropped": record.dropped.get(name, 0),
    }


def _needs_you(sources: Sources, _: Json) -> list[str]:
    record = sources.state.of(AlertRecord)
    targets = record.failing if sources.settings is None else sources.settings.of(AlertSettings).targets
    failing = {target: each for target in targets if (each := record.failing.get(target))}
    return [f"alerts do not reach {target}: {each.error}" for target, each in failing.items()]


ADDED = Added(needs_you=_needs_you)
