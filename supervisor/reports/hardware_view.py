"""Views of GPUs and vetoes. None is "not known", also for a figure that the driver does not report."""

from __future__ import annotations

from typing import Any

from supervisor.model.codec import as_fields
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.policy.box.readings import Gpu, Gpus

Json = dict[str, Any]


def gpu_view(gpus: Gpus | None, state: State) -> Json:
    """The GPUs. The key `gpus` is None while they are unknown; `error` then says why, if the reason is known."""
    known = gpus is not None and gpus.gpus is not None
    return {
        "known": known,
        "error": "" if gpus is None or gpus.absent else gpus.error,
        "gpus": [_one(gpu) for gpu in gpus.gpus] if gpus is not None and gpus.gpus is not None else None,
        "count": state.gpus.count,
    }


def _one(gpu: Gpu) -> Json:
    shown: Json = as_fields(gpu)
    del shown["free_by_second"]
    return shown


def vetoes_view(state: State, settings: Settings | None) -> list[Json]:
    """The vetoes in force, the oldest first. `cap`: the highest level that it allows; `forbids`: others are above."""
    vetoes = sorted(state.vetoes.values(), key=lambda veto: (veto.since_s, veto.rule))
    top = "" if settings is None else settings.rungs[-1].level.name
    return [
        {"rule": v.rule, "cap": v.cap, "why": v.why, "since_wall_s": v.since_wall_s, "forbids": v.cap != top} for v in vetoes
    ]
