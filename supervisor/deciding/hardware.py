"""Turn readings of the GPUs and the host into incidents, learned memory needs and vetoes of levels.

A missing reading has no effect. A driver that hangs, a GPU that falls off the bus and an Xid are recorded once each;
training continues, and any effect on a worker shows as its own stall or crash.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from supervisor.deciding.context import DecisionContext
from supervisor.formats import span
from supervisor.model import facts
from supervisor.model.inputs import Sampled
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import ProgramSpec, Settings
from supervisor.model.state import Program
from supervisor.policy.box import prechecks
from supervisor.policy.box.prechecks import BoxReadings, Need, Rung
from supervisor.policy.box.readings import Gpus
from supervisor.policy.box.visible import gpu_seen
from supervisor.policy.worker import health, slowness
from supervisor.records import replace

_LEARN_AFTER_S: Final = 60.0  # a worker that has just started does not hold all its memory yet
_LEARN_EVERY_S: Final = 600.0
_GROWTH: Final = 1.1
_XID_AGAIN_S: Final = 600.0  # a GPU that reports the same error a hundred times a second must not fill the journal
_MB: Final = 2**20


def on_hardware(context: DecisionContext, item: Sampled) -> None:
    """Process one sample of GPUs and host; unchanged readings are skipped."""
    if item.gpus is context.memory.gpus and item.host is context.memory.host:
        return
    context.memory = replace(context.memory, gpus=item.gpus, host=item.host)
    xids = () if item.gpus is None else _record_changes(context, item.gpus)
    _note_gpus(context)
    _note_off_gpu(context)
    _learn_needs(context)
    _precheck(context, xids)


# --- incidents -----------------------------------------------------------------------------------------------------------


def _record_changes(context: DecisionContext, gpus: Gpus) -> tuple[int, ...]:
    """Record changes of the GPUs since the last sample. Returns the codes of new Xids."""
    unknown_since_s = context.state.gpus.unknown_since_s
    if gpus.gpus is None:
        if unknown_since_s is None:
            why = f"the GPUs cannot be read ({gpus.error}): decisions ignore them until they can"
            context.record(facts.GpusUnknown(why, gpus.error, gpus.hung_s))
        return _record_xids(context, gpus)
    if unknown_since_s is not None:
        after_s = context.now_s - unknown_since_s
        context.record(facts.GpusKnown(f"the GPUs can be read again, after {span(after_s)}", after_s))
    count, before, models = len(gpus.gpus), context.state.gpus.count, context.state.gpus.models
    names = tuple(gpu.name for gpu in gpus.gpus)
    another = bool(models and set(names) - {*models, ""})
    if count != (before or 0) or another:
        found = "no GPU" if not count else f"{count} GPU{'' if count == 1 else 's'} ({', '.join(dict.fromkeys(names))})"
        why = f"this box has {found}" + ("" if before is None else f"; it had {before} before")
        if another:
            why = f"this box has {found} instead of {', '.join(models)}: its levels and memory needs are measured anew"
        context.record(facts.GpusFound(why, count, names, tuple(gpu.uuid for gpu in gpus.gpus), another))
    for gpu in gpus.gpus:
        lost = gpu.index in context.state.gpus.lost
        if gpu.lost and not lost:
            why = f"GPU {gpu.index} no longer answers: {gpu.lost}; a reboot of the box may bring it back"
            context.record(facts.GpuLost(why, gpu.index, gpu.uuid, gpu.lost))
        elif lost and not gpu.lost:
            context.record(facts.GpuBack(f"GPU {gpu.index} answers again", gpu.index, gpu.uuid))
    return _record_xids(context, gpus)


def _record_xids(context: DecisionContext, gpus: Gpus) -> tuple[int, ...]:
    recorded_at_s, codes = dict(context.memory.xids_at_s), []
    new = [xid for xid in gpus.xids if xid.number > context.memory.xids_recorded]
    for xid in new:
        codes.append(xid.code)
        key = (xid.gpu, xid.code)
        if key in recorded_at_s and context.now_s - recorded_at_s[key] < _XID_AGAIN_S:
            continue
        recorded_at_s[key] = context.now_s
        gpu, grave = gpus.of(xid.gpu), xid.code not in prechecks.HARMLESS_XIDS
        kind = "an error of the GPU or its driver" if grave else "a faulty program, or killing one, can cause it too"
        why = f"the driver reported Xid {xid.code} on GPU {xid.gpu}: {kind}"
        context.record(facts.XidReported(why, xid.gpu, "" if gpu is None else gpu.uuid, xid.code, grave))
    if new:
        context.memory = replace(context.memory, xids_recorded=new[-1].number, xids_at_s=recorded_at_s)
    return tuple(codes)


# --- memory that programs hold -------------------------------------------------------------------------------------------


def gpu_of(context: DecisionContext, spec: ProgramSpec) -> int | None:
    """The index of the GPU that a program uses: its pinned GPU, else the first one visible to it; None: unknown."""
    return gpu_seen(spec.visible, 0 if spec.gpu is None else spec.gpu, context.memory.gpus)


def _note_gpus(context: DecisionContext) -> None:
    """Record on which GPUs an attempt holds memory: its next start needs them (`policy/box/lost_gpu.py`)."""
    seen = context.memory.gpus
    known = () if seen is None or context.settings.remote else seen.gpus or ()
    for name, program in sorted(context.state.live.items()):
        spec, (_, attempt) = context.settings.program(name), context.present(name)
        watch, pids = context.memory.watch(name, attempt.token), _pids(context, program)
        used = {gpu.index for gpu in known if any(pid in pids for pid, _ in gpu.processes or ())}
        if not used and spec is not None and watch is not None and (watch.sample.cuda_bytes or watch.sample.uses_cuda):
            index = gpu_of(context, spec)
            used = {gpu.index for gpu in known if gpu.index == index}
            if not used and program.gpus is None:
                context.record(facts.GpuUsed("uses a GPU that NVML does not show", name, ()))
        if used - set(attempt.gpus):
            gpus = tuple(sorted({*used, *attempt.gpus}))
            named = f"GPU{'' if len(gpus) == 1 else 's'} {', '.join(map(str, gpus))}"
            context.record(facts.GpuUsed(f"holds memory on {named}", name, gpus))


def _note_off_gpu(context: DecisionContext) -> None:
    """Report an attempt that holds no GPU memory although earlier ones did (`policy/worker/health.py`)."""
    after_s = slowness.after_s(context.settings.stall, anew=True)
    for name, program in sorted(context.state.live.items()):
        spec, (_, attempt) = context.settings.program(name), context.present(name)
        if attempt.gpus:
            if health.OFF_GPU in attempt.illnesses:
                context.record(facts.Healed("it holds GPU memory", name, attempt.token, health.OFF_GPU))
        elif (
            spec is not None and program.phase is Phase.RUNNING and health.OFF_GPU not in attempt.illnesses
            and context.now_s - (attempt.ready_at_s or context.now_s) >= after_s
            and (before := program.gpu_bytes(context.state.level)) and _is_off_gpu(context, program, spec)
        ):  # fmt: skip
            held = f"{before / _MB:,.0f} MiB"
            why = f"holds no GPU memory; earlier attempts held {held}, and the GPU answers: it trains on"
            context.record(facts.Sickened(why, name, attempt.token, health.OFF_GPU, health.TELL, None, {}))


def _is_off_gpu(context: DecisionContext, program: Program, spec: ProgramSpec) -> bool:
    """Whether its GPU answers, and none of its processes holds memory there."""
    seen, index, watch = context.memory.gpus, gpu_of(context, spec), context.memory.observed(program)
    gpu = None if seen is None or index is None or context.settings.remote else seen.of(index)
    uses = watch is None or watch.sample.cuda_bytes or watch.sample.uses_cuda
    return not uses and gpu is not None and not gpu.lost and gpu.processes is not None


def _pids(context: DecisionContext, program: Program) -> frozenset[int | None]:
    """The processes of its tree; None stands for a worker whose pid is not known."""
    attempt, watch = program.attempt, context.memory.observed(program)
    return frozenset((None if attempt is None else attempt.pid, *(() if watch is None else watch.sample.pids)))


def held_gpu_bytes(context: DecisionContext, program: Program, spec: ProgramSpec) -> int | None:
    """GPU memory that the process tree holds now, from the driver's list, else from its own report; None: unknown."""
    index = gpu_of(context, spec)
    gpu = None if context.memory.gpus is None or index is None else context.memory.gpus.of(index)
    pids, watch = _pids(context, program), context.memory.observed(program)
    held = [size_bytes for pid, size_bytes in (() if gpu is None else gpu.processes or ()) if pid in pids]
    if held:
        known = [size_bytes for size_bytes in held if size_bytes is not None]
        return sum(known) if len(known) == len(held) else None
    return None if watch is None else watch.sample.cuda_bytes


def _learn_needs(context: DecisionContext) -> None:
    """Learn how much memory a program holds in steady training. Its next start at this level needs as much."""
    for name, program in sorted(context.state.live.items()):
        spec, (_, attempt) = context.settings.program(name), context.present(name)
        watch = context.memory.watch(name, attempt.token)
        if spec is None or watch is None or program.phase is not Phase.RUNNING:
            continue
        if context.now_s - (attempt.ready_at_s or context.now_s) < _LEARN_AFTER_S:
            continue
        learned_at_s = context.memory.needs_at_s.get(name)
        if learned_at_s is not None and context.now_s - learned_at_s < _LEARN_EVERY_S:
            continue
        known = program.at(context.state.level)
        gpu_bytes, more_gpu = _grown(known.gpu_bytes, held_gpu_bytes(context, program, spec))
        host_bytes, more_host = _grown(known.host_bytes, watch.sample.rss_bytes)
        if more_gpu or more_host:
            both = ((gpu_bytes, "the GPU"), (host_bytes, "memory"))
            shown = [f"{size / _MB:,.0f} MiB of {place}" for size, place in both if size]
            why = f"holds {' and '.join(shown)} at level {context.state.level}"
            context.memory = replace(context.memory, needs_at_s={**context.memory.needs_at_s, name: context.now_s})
            context.record(facts.NeedLearned(why, name, context.state.level, gpu_bytes, host_bytes))


def _grown(known: int | None, seen: int | None) -> tuple[int | None, bool]:
    """The larger of the two, and whether the growth is worth a fact."""
    if not seen:
        return known, False
    return max(seen, known or 0), seen > _GROWTH * (known or 0)


# --- pre-checks ----------------------------------------------------------------------------------------------------------


def rungs(settings: Settings) -> tuple[Rung, ...]:
    """The ladder in the form that the pre-checks use, the lightest level first."""
    budgets = [(rung.level, rung.level.memory_mb) for rung in settings.rungs]
    return tuple(Rung(level.name, level.slots, None if mb is None else mb * 10**6) for level, mb in budgets)


def _precheck(context: DecisionContext, xids: tuple[int, ...]) -> None:
    ladder = rungs(context.settings)
    names = [rung.name for rung in ladder]
    present = names.index(context.state.level) if context.state.level in names else 0
    box = _box(context, ladder, present, xids)
    found = prechecks.objections(context.settings.prechecks, box)
    vetoes = {rule: names.index(veto.cap) for rule, veto in context.state.vetoes.items() if veto.cap in names}
    changes, held = prechecks.weigh(
        context.settings.prechecks, found, present=present, now_s=context.now_s, vetoes=vetoes,
        held=context.memory.objections, unseen=prechecks.unseen(box), blind=prechecks.blind(box),
    )  # fmt: skip
    context.memory = replace(context.memory, objections=held)
    for change in changes:
        if change.cap is None:
            after_s = context.now_s - context.state.vetoes[change.rule].since_s
            context.record(facts.VetoLifted(change.why, change.rule, after_s))
        else:
            context.record(facts.Vetoed(change.why, change.rule, names[change.cap], context.state.level))


def _box(context: DecisionContext, ladder: tuple[Rung, ...], present: int, xids: tuple[int, ...]) -> BoxReadings:
    needs: list[Need] = []
    ours_gpu: dict[int, int | None] = {}
    ours_host = 0
    for name, program in context.state.programs.items():
        spec = context.settings.program(name)
        if spec is None:
            continue
        index = gpu_of(context, spec)
        peaks = [program.at(rung.name) for rung in ladder]  # a level needs the most at it or at a lighter one
        gpu = tuple(accumulate((each.gpu_bytes for each in peaks), _larger))
        needs.append(Need(index, gpu, tuple(accumulate((each.host_bytes for each in peaks), _larger))))
        if program.attempt is None:
            continue
        watch = context.memory.watch(name, program.attempt.token)
        ours_host += (watch.sample.rss_bytes or 0) if watch is not None else 0
        if index is None:
            continue
        held, known = held_gpu_bytes(context, program, spec), ours_gpu.get(index, 0)
        uses_it = any(needs[-1].gpu_bytes)
        ours_gpu[index] = None if known is None or (held is None and uses_it) else known + (held or 0)
    errors = [program.attempt.save_error for program in context.state.live.values() if program.attempt is not None]
    return BoxReadings(
        ladder, present, context.memory.gpus, context.memory.host, tuple(needs), ours_gpu, ours_host, xids,
        next(filter(prechecks.is_full, errors), ""),
    )  # fmt: skip


def _larger(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
