"""The page `offsite`, which is also the part of `status` about copies off the box. None is "not known"."""

from __future__ import annotations

from supervisor.features.offsite.record import Copying, OffsiteRecord
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model.memory import Memory
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.reports.added import Added, Gauge
from supervisor.reports.sources import Json, Sources


def offsite(sources: Sources) -> Json:
    """Copies off the box: the newest one, the work in progress, the fence. Without a repository only {"on": false}."""
    found = offsite_view(sources.state, sources.settings, sources.memory, now_s=sources.now_s)
    return {"on": False} if found is None else {"on": True, **found}


def offsite_view(state: State, settings: Settings | None, memory: Memory, *, now_s: float) -> Json | None:
    """The newest copy, the work in progress, the box that has taken over. None: no repository is configured.

    `age_s` counts from the moment at which the files of the newest copy were collected. `late_s` is the limit of [offsite].
    """
    if settings is None or not settings.of(OffsiteSettings).on:
        return None
    record = state.of(OffsiteRecord)
    copied = record.copied
    return {
        "age_s": None if copied is None else now_s - copied.at_s,
        "late": record.late,
        "late_s": settings.of(OffsiteSettings).late_s,
        "every_s": settings.of(OffsiteSettings).every_s,
        "copied": None if copied is None else {
            "snapshot": copied.snapshot, "cause": copied.cause, "wall_s": copied.wall_s, "steps": copied.steps,
            "size_bytes": copied.size_bytes, "sent_bytes": copied.sent_bytes, "took_s": copied.took_s,
            "missed": copied.missed,
        },
        "doing": memory.of(Copying).doing,
        "asked": record.asked,
        "error": record.error,
        "failures": record.failures,
        "generation": record.generation or None,
        "after": {"box": record.lost, "lost_s": record.lost_s} if record.lost else None,
        "fence": None if record.fence is None else {"box": record.fence.box, "since_wall_s": record.fence.since_wall_s},
        "tended": {
            task: {"wall_s": each.wall_s, "error": each.error, "read_percent": each.read_percent}
            for task, each in sorted(record.tended.items())
        },
        "ends": record.ends,
        "ended": record.ended,
        "ended_well": record.ended_well,
    }  # fmt: skip


def trouble(offsite: Json | None) -> str:
    """The reason why the copies are of no use now, in one sentence; empty: there is none."""
    if offsite is None:
        return ""
    if offsite["fence"] is not None:
        return f"box {offsite['fence']['box']} has taken over these trainings, so no program runs here"
    if offsite["late"]:
        error = f": {offsite['error']}" if offsite["error"] else ""
        return f"the newest copy off the box is too old{error}"
    check = offsite["tended"].get("check")
    return f"the repository of copies: {check['error']}" if check and check["error"] else ""


def _status(sources: Sources) -> Json | None:
    return offsite_view(sources.state, sources.settings, sources.memory, now_s=sources.now_s)


def _troubles(daemon: Json) -> list[str]:
    found = trouble(daemon["offsite"])
    return [found] if found else []


def _needs_you(sources: Sources, daemon: Json) -> list[str]:
    missing = sources.memory.of(Copying).missing.values()
    missed = ((daemon["offsite"] or {}).get("copied") or {}).get("missed") or {}
    return [*missing, *(f"the newest copy off the box lacks {name}: {why}" for name, why in missed.items())]


def _gauges(sources: Sources) -> list[Gauge]:
    """Without a repository they have no values."""
    found = _status(sources) or {}
    copied, failures = found.get("copied") or {}, found.get("failures")
    late = float(found["late"]) if found else None
    fenced = float(found["fence"] is not None) if found else None
    return [
        ("offsite_copy_age_seconds", "since the files of the newest copy off the box", found.get("age_s")),
        ("offsite_copy_size_bytes", "of the newest copy off the box", copied.get("size_bytes")),
        ("offsite_copy_late", "1 while the newest copy off the box is older than [offsite] late_s", late),
        ("offsite_failures", "attempts to copy off the box that have failed since the newest copy", failures),
        ("offsite_fenced", "1 while another box has taken over: no program runs here", fenced),
    ]


ADDED = Added(status=lambda sources: {"offsite": _status(sources)}, troubles=_troubles, needs_you=_needs_you, gauges=_gauges)
