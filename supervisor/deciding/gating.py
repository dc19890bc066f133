"""Decide whether a program may start now: whether its GPU is there (`policy/box/lost_gpu.py`) and has memory (`gate.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.hardware import gpu_of, held_gpu_bytes
from supervisor.model import facts
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import ProgramSpec
from supervisor.model.state import Program
from supervisor.policy.box import gate, lost_gpu
from supervisor.policy.box.gate import MB, Answer, Verdict, Wish
from supervisor.policy.box.lost_gpu import Claim
from supervisor.policy.box.readings import Gpus
from supervisor.policy.box.visible import hides_all
from supervisor.printable import printable

_FIRST_LOOK_S: Final = 5.0  # the gate does not wait longer for a driver to show its GPUs


def waits_for_gpu(context: DecisionContext, program: Program, spec: ProgramSpec) -> bool:
    """Whether the program waits because its GPU is lost; then it takes no slot. Records why, once for each reason."""
    claim = _claim(context, program, spec)
    if claim.why and not context.settings.remote and (gpus := _gpus(context)) is not None:
        why = printable(lost_gpu.lost(claim, gpus, most_gpus=context.state.gpus.most))
        if why and (program.gpu_lost, program.why) != (lost_gpu.BY_BOX, why):
            context.record(facts.Gated(why, program.name, gpu_of(context, spec), 0, None, lost_gpu.BY_BOX))
        if why:
            return True
    found = program.waits_for_gpu and program.gpu_lost == lost_gpu.BY_WORKER
    return found and context.now_s - program.since_s < lost_gpu.RETRY_S


def knows_gpus(context: DecisionContext) -> bool:
    return _gpus(context) is not None


def gpu_is_back(context: DecisionContext, program: Program) -> bool:
    """Whether the box shows the GPU again for which the program waits. What its worker found, only a start can show."""
    spec, gpus = context.settings.program(program.name), context.memory.gpus
    if spec is None or gpus is None or program.gpu_lost != lost_gpu.BY_BOX:
        return False
    return not lost_gpu.lost(_claim(context, program, spec), gpus, most_gpus=context.state.gpus.most)


def when_no_gpu(context: DecisionContext, program: Program, spec: ProgramSpec) -> str:
    """What its worker does if it finds no GPU; empty: it decides itself, as on a box without GPUs."""
    if context.settings.may_use_cpu(spec):
        return lost_gpu.CPU
    return lost_gpu.WAIT if _claim(context, program, spec).why else ""


def _claim(context: DecisionContext, program: Program, spec: ProgramSpec) -> Claim:
    """Why the program needs a GPU, by its settings and by the record."""
    if context.settings.may_use_cpu(spec):
        return Claim()
    asks, place = context.settings.asks_gpu(spec), 0 if spec.gpu is None else spec.gpu
    as_others = spec.builtin and any(each.gpus is not None for each in context.state.programs.values())
    if not asks and program.gpus is None and not as_others:
        return Claim()
    return Claim(
        asks=asks, used=program.gpus, as_others=as_others, gpu=gpu_of(context, spec),
        free_choice=spec.gpu is None and spec.visible is None,
        hides=spec.visible if hides_all(spec.visible, place, context.memory.gpus) else None,
    )  # fmt: skip


def _gpus(context: DecisionContext) -> Gpus | None:
    """The newest readings of the GPUs; None: the daemon has just started and has not looked yet."""
    if context.memory.gpus is None and context.now_s - (context.state.daemon_since_s or 0.0) >= _FIRST_LOOK_S:
        return Gpus(None, "no reading yet")
    return context.memory.gpus


def admit(context: DecisionContext, program: Program, spec: ProgramSpec, waiting: Mapping[int | None, str]) -> Verdict:
    """The gate's verdict. Records waiting and giving up. `waiting`: the programs that wait already, by GPU.

    A cluster gives each job the GPUs that it requests, so the GPUs of this host do not matter there.
    """
    if context.settings.remote:
        return Verdict(Answer.START)
    wish, gpus = _wish(context, program, spec, waiting), _gpus(context)
    shared = wish.gpu is not None and gpus is not None and gpus.gpus
    verdict = gate.check(wish, gpus, reserved_bytes=_reserved_bytes(context, program.name, wish.gpu) if shared else 0)
    name, gated = program.name, program.phase is Phase.GATED and not program.gpu_lost
    if verdict.answer is Answer.WAIT and not gated and wish.gpu is not None:  # no program waits for an unknown GPU
        context.record(facts.Gated(verdict.why, name, wish.gpu, wish.need_bytes, verdict.free_bytes))
    elif verdict.answer is Answer.SOON and program.phase is Phase.BACKOFF:
        context.record(facts.Requeued("its restart is due and waits for the first reading of the GPUs", name))
    elif verdict.answer is Answer.GIVE_UP:
        context.give_up(name, verdict.why)
    return verdict


def _wish(context: DecisionContext, program: Program, spec: ProgramSpec, waiting: Mapping[int | None, str]) -> Wish:
    settings, held, index = context.settings.gate, program.at(context.state.level), gpu_of(context, spec)
    fallback = context.settings.gate.fallback_batch if spec.fallback_batch is None else spec.fallback_batch
    batch_size = program.at(context.state.level).batch_size or spec.batch_size
    return Wish(
        gpu=index, pinned=spec.gpu is not None, claimed=_claim(context, program, spec).why != "",
        configured_bytes=context.settings.min_free_mb(spec) * MB, learned_bytes=held.gpu_bytes,
        poll_s=settings.poll_s if spec.gate_poll_s is None else spec.gate_poll_s,
        timeout_s=settings.timeout_s if spec.gate_timeout_s is None else spec.gate_timeout_s,
        on_timeout=settings.on_timeout,
        fallback_batch=None if fallback is None or (batch_size is not None and fallback >= batch_size) else fallback,
        waited_s=context.now_s - program.since_s if program.phase is Phase.GATED and not program.gpu_lost else None,
        behind=waiting.get(index, ""),
    )  # fmt: skip


def _reserved_bytes(context: DecisionContext, but: str, gpu: int | None) -> int:
    """Memory that other programs, now starting on this GPU, need but do not hold yet."""
    reserved = 0
    for name, program in context.state.live.items():
        spec = context.settings.program(name)
        if name == but or spec is None or gpu_of(context, spec) != gpu or program.phase is not Phase.STARTING:
            continue
        need_bytes = _wish(context, program, spec, {}).need_bytes
        reserved += max(0, need_bytes - (held_gpu_bytes(context, program, spec) or 0))
    return reserved
