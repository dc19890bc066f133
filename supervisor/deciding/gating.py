"""Decide whether a program with a slot may start now, by the free memory of its GPU (`policy/box/gate.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.hardware import gpu_of, held_gpu_bytes
from supervisor.model import facts
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import ProgramSpec
from supervisor.model.state import Program
from supervisor.policy.box import gate
from supervisor.policy.box.gate import MB, Answer, Verdict, Wish
from supervisor.policy.box.readings import Gpus

_FIRST_LOOK_S: Final = 5.0  # the gate does not wait longer for a driver to show its GPUs


def admit(context: DecisionContext, program: Program, spec: ProgramSpec, waiting: Mapping[int | None, str]) -> Verdict:
    """The gate's verdict. Records waiting and giving up. `waiting`: the programs that wait already, by GPU.

    A cluster gives each job the GPUs that it requests, so the GPUs of this host do not matter there.
    """
    if context.settings.launcher.remote:
        return Verdict(Answer.START)
    wish = _wish(context, program, spec, waiting)
    gpus = context.memory.gpus
    if gpus is None and context.now_s - (context.state.daemon_since_s or 0.0) >= _FIRST_LOOK_S:
        gpus = Gpus(None)
    reserved_bytes = _reserved_bytes(context, program.name, wish.gpu)
    verdict = gate.check(wish, gpus, reserved_bytes=reserved_bytes, most_gpus=context.state.gpus.most)
    name, gated = program.name, program.phase is Phase.GATED
    if verdict.answer is Answer.WAIT and not gated and wish.gpu is not None:  # no program waits for an unknown GPU
        context.record(facts.Gated(verdict.why, name, wish.gpu, wish.need_bytes, verdict.free_bytes))
    elif verdict.answer is Answer.SOON and program.phase is Phase.BACKOFF:
        context.record(facts.Requeued("its restart is due and waits for the first reading of the GPUs", name))
    elif verdict.answer is Answer.GIVE_UP:
        context.record(
            facts.GaveUp(f"{verdict.why}; it starts again after a change of its config or `supervisorctl start`", name)
        )
    return verdict


def _wish(context: DecisionContext, program: Program, spec: ProgramSpec, waiting: Mapping[int | None, str]) -> Wish:
    settings, held, index = context.settings.gate, program.held(context.state.level), gpu_of(context, spec)
    least_mb = settings.min_free_mb if spec.min_free_mb is None else spec.min_free_mb
    return Wish(
        gpu=index,
        pinned=spec.gpu is not None,
        configured_bytes=least_mb * MB,
        learned_bytes=held.gpu_bytes,
        poll_s=settings.poll_s if spec.gate_poll_s is None else spec.gate_poll_s,
        timeout_s=settings.timeout_s if spec.gate_timeout_s is None else spec.gate_timeout_s,
        on_timeout=settings.on_timeout,
        fallback_batch=_fallback(context, program, spec),
        waited_s=context.now_s - program.since_s if program.phase is Phase.GATED else None,
        behind=waiting.get(index, ""),
    )


def _fallback(context: DecisionContext, program: Program, spec: ProgramSpec) -> int | None:
    """The program's fallback batch, else the gate's; None if it is not smaller than the batch of the next start."""
    fallback = context.settings.gate.fallback_batch if spec.fallback_batch is None else spec.fallback_batch
    batch_size = program.batch_size(context.state.level) or spec.batch_size
    return None if fallback is None or (batch_size is not None and fallback >= batch_size) else fallback


def _reserved_bytes(context: DecisionContext, but: str, gpu: int | None) -> int:
    """Memory that other programs, now starting on this GPU, need but do not hold yet."""
    reserved = 0
    for name, program in context.state.live.items():
        spec = context.spec(name)
        if name == but or spec is None or gpu_of(context, spec) != gpu or program.phase is not Phase.STARTING:
            continue
        need_bytes = _wish(context, program, spec, {}).need_bytes
        reserved += max(0, need_bytes - (held_gpu_bytes(context, program, spec) or 0))
    return reserved
