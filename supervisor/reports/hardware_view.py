"""GPUs and vetoes as people are shown them. None is "not known"; a figure that the driver does not tell is None too."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from supervisor.model.state import State
from supervisor.policy.box.readings import Gpu, Gpus

Json = dict[str, Any]


def gpu_view(gpus: Gpus | None, state: State) -> Json:
    """`gpus` is None while nobody knows; then `error` says why, once that is known."""
    known = gpus is not None and gpus.gpus is not None
    return {
        "known": known,
        "error": "" if gpus is None or gpus.absent else gpus.error,
        "gpus": [_one(gpu) for gpu in gpus.gpus] if gpus is not None and gpus.gpus is not None else None,
        "count": state.gpus.count,
    }


def _one(gpu: Gpu) -> Json:
    shown = asdict(gpu)
    del shown["free_by_second"]
    shown["by_phase"] = list(shown["by_phase"])
    return {**shown, "reasons": None if gpu.reasons is None else list(gpu.reasons)}


def vetoes_view(state: State) -> list[Json]:
    """Every veto in force, the oldest first: no level above `cap`, and why."""
    vetoes = sorted(state.vetoes.values(), key=lambda veto: (veto.since_s, veto.rule))
    return [{"rule": v.rule, "cap": v.cap, "why": v.why, "since_wall_s": v.since_wall_s} for v in vetoes]
