"""`fold`, the only function that changes the state. What a fact changes in its program is in `program_fold.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from supervisor import wall_clock
from supervisor.model import codec, facts, program_fold
from supervisor.model.counts import advanced
from supervisor.model.facts import Stamped
from supervisor.model.lifecycle import IllegalTransition
from supervisor.model.state import (
    Box,
    Climb,
    ConfigFault,
    Damage,
    FormerBox,
    GpuRecord,
    LevelRecord,
    Pin,
    Reboot,
    State,
    Veto,
)
from supervisor.policy.box.box_identity import MACHINE
from supervisor.policy.box.foundations import MOST_RESTARTS
from supervisor.policy.box.lost_gpu import BY_WORKER
from supervisor.policy.worker.loss import furthest
from supervisor.records import replace

T = TypeVar("T")

_UPTIMES_KEPT: Final = 50
_REBOOTS_KEPT: Final = 200
_COSTS_KEPT: Final = 20
_BOXES_KEPT: Final = 10
_CLOCKS_KEPT: Final = 50


def fold_all(stamped: Iterable[Stamped], state: State | None = None) -> State:
    state = State() if state is None else state
    for item in stamped:
        state = fold(state, item)
    return state


def replay(stamped: Iterable[Stamped]) -> tuple[State, int]:
    """The state from a journal, and the number of facts that did not fit. Facts before the newest snapshot are not folded.

    In a complete journal every fact fits. If a damaged disk lost rows, an edge may lack the edge before it. That fact is
    skipped, because a daemon that refuses to start helps nobody.
    """
    items = list(stamped)
    first = next((n for n in reversed(range(len(items))) if isinstance(items[n].fact, facts.Snapshot)), 0)
    state, misfits = State(), 0
    for item in items[first:]:
        try:
            state = fold(state, item)
        except IllegalTransition:
            misfits += 1
    return state, misfits


def fold(state: State, stamped: Stamped) -> State:
    """The state after one more fact. Raises IllegalTransition for an edge that its phase does not allow."""
    fact = stamped.fact
    if isinstance(fact, facts.Snapshot):
        state = codec.of_text(State, fact.state)
    boots = state.boots + 1 if stamped.boot_id != state.boot_id else state.boots
    # A kind of `LATER` leaves an empty record of a feature as it is.
    later = [name for name in _LATER[type(fact)] if getattr(state, name) != RECORDS[name]()]
    records = {name: getattr(state, name).after(stamped) for name in (*_ALWAYS[type(fact)], *later)}
    state = replace(state, at_s=stamped.at_s, wall_s=stamped.wall_s, boot_id=stamped.boot_id, boots=boots, **records)
    if isinstance(fact, facts.Exited) and fact.oom_kills is not None:
        state = replace(state, oom_kills=fact.oom_kills)
    if isinstance(fact, facts.ProgramFact):
        return program_fold.with_program(state, stamped, fact)
    return _box(state, stamped, fact)


RECORDS: Final[dict[str, Any]] = {
    each.name: each.default_factory for each in dataclasses.fields(State) if hasattr(each.default_factory, "KINDS")
}


_KINDS: Final = [kind for kind in vars(facts).values() if isinstance(kind, type) and issubclass(kind, facts.Fact)]
_ALWAYS: Final = {kind: [name for name, of in RECORDS.items() if issubclass(kind, of.KINDS)] for kind in _KINDS}
_LATER: Final = {kind: [name for name, of in RECORDS.items() if issubclass(kind, of.LATER)] for kind in _KINDS}


def _box(state: State, stamped: Stamped, fact: facts.Fact) -> State:
    match fact:
        case facts.DaemonStarted(pid=pid, salt=salt):
            return replace(
                state, daemon_pid=pid, salt=salt, daemon_since_s=stamped.at_s, daemon_since_wall_s=stamped.wall_s,
                stopping=False, clean=False, config=None,
            )  # fmt: skip
        case facts.DaemonStopping(keep_workers=keep, by=by):
            restarts_s = (*state.restarts_s, stamped.at_s)[-MOST_RESTARTS:] if by == facts.ITSELF else state.restarts_s
            return replace(state, stopping=not keep, clean=True, restarts_s=restarts_s)  # clean also if time is short
        case facts.DaemonStopped():
            return replace(state, clean=True, daemon_pid=None, stopping=False)
        case facts.LevelChosen():
            return _level_chosen(state, stamped, fact)
        case facts.LadderLaid() | facts.Reviewed() | facts.RebootJudged() | facts.NodeFaultJudged() | facts.LevelSettled():
            return replace(state, climb=_climbed(state.climb, stamped, fact))
        case facts.LevelPinned() | facts.LevelUnpinned():
            climb = replace(state.climb, pin=None)
            if isinstance(fact, facts.LevelPinned):
                climb = replace(climb, pin=Pin(fact.level, fact.by, stamped.wall_s, fact.until_s))
                climb = replace(climb, load=fact.load, reviewed_at_s=stamped.at_s) if fact.load else climb
            return replace(state, climb=climb)
        case facts.RolledBackTo() | facts.RollbackFailed():
            programs = {
                name: replace(
                    program_fold.fresh(program), ckpt=replace(program.ckpt.wrote(fact.steps[name], None), roll_from=None),
                )
                for name, program in state.programs.items() if name in fact.steps
            }  # fmt: skip
            return replace(state, programs={**state.programs, **programs})
        case facts.Vetoed() | facts.VetoLifted():
            return _vetoed(state, stamped, fact)
        case _:
            return _host(state, stamped, fact)


def _host(state: State, stamped: Stamped, fact: facts.Fact) -> State:
    """The box itself, and faults of extralife's own files."""
    match fact:
        case facts.HostRebooted():
            return _rebooted(state, stamped, fact)
        case facts.BoxIdentified():
            return _identified(state, stamped, fact)
        case facts.ClockSet():
            return _clock_set(state, stamped, fact)
        case facts.ConfigRefused(errors=errors, in_use=in_use, by=by):
            return replace(state, config=ConfigFault(stamped.wall_s, errors, in_use, by))
        case facts.ConfigMended():
            return replace(state, config=None)
        case facts.JournalSalvaged():
            damage = Damage(stamped.wall_s, fact.error, fact.kept_as, fact.kept, fact.lost)
            return replace(state, damage=damage, gaps=state.gaps + (fact.lost != 0))
        case facts.GpusFound(another=True):
            state = _on_other_hardware(state, stamped.at_s, state.climb.pin)
    return replace(state, gpus=_gpus(state.gpus, stamped.at_s, fact))


def _gpus(gpus: GpuRecord, at_s: float, fact: facts.Fact) -> GpuRecord:
    match fact:
        case facts.GpusFound(count=count):
            models = {*fact.names, *(() if fact.another else gpus.models)} - {""}
            return replace(gpus, count=count, most=max(gpus.most, count), lost=(), models=tuple(sorted(models)))
        case facts.GpusUnknown():
            return replace(gpus, unknown_since_s=at_s)
        case facts.GpusKnown():
            return replace(gpus, unknown_since_s=None)
        case facts.GpuLost(gpu=gpu):
            return replace(gpus, lost=tuple(sorted({*gpus.lost, gpu})))
        case facts.GpuBack(gpu=gpu):
            return replace(gpus, lost=tuple(each for each in gpus.lost if each != gpu))
        case _:
            return gpus


def _vetoed(state: State, stamped: Stamped, fact: facts.Vetoed | facts.VetoLifted) -> State:
    vetoes = {rule: veto for rule, veto in state.vetoes.items() if rule != fact.rule}
    if isinstance(fact, facts.Vetoed):
        vetoes[fact.rule] = Veto(fact.rule, fact.cap, fact.why, stamped.at_s, stamped.wall_s)
    return replace(state, vetoes=vetoes)


def _level_chosen(state: State, stamped: Stamped, fact: facts.LevelChosen) -> State:
    """A change of level: the previous level's time in this boot is recorded, and the new level's time begins."""
    climb = replace(state.climb, trial=fact.trial, why=fact.why)
    if fact.level == state.level:
        return replace(state, slots=fact.slots, climb=climb)
    levels = state.levels
    if climb.level_since_s is not None:
        record = levels.get(state.level, LevelRecord())
        levels = {**levels, state.level: replace(record, up_s=record.up_s + stamped.at_s - climb.level_since_s)}
    climb = replace(
        climb, before=state.level, level_since_s=stamped.at_s, changed_at_s=stamped.at_s,
        changed_wall_s=stamped.wall_s,
    )  # fmt: skip
    return replace(state, level=fact.level, slots=fact.slots, levels=levels, climb=climb)


def _climbed(
    climb: Climb, stamped: Stamped,
    fact: facts.LadderLaid | facts.Reviewed | facts.RebootJudged | facts.NodeFaultJudged | facts.LevelSettled,
) -> Climb:  # fmt: skip
    match fact:
        case facts.LadderLaid():
            return replace(climb, load=fact.load, ladder=tuple(zip(fact.levels, fact.shapes, strict=False)))
        case facts.LevelSettled(cost_s=cost_s):
            return replace(climb, costs_s=(*climb.costs_s, cost_s)[-_COSTS_KEPT:])
        case _:
            return replace(climb, load=fact.load, said=fact.why, reviewed_at_s=stamped.at_s)


def _clock_set(state: State, stamped: Stamped, fact: facts.ClockSet) -> State:
    """Correct every wall-clock time of this boot, everywhere in the state."""
    steps = dict([*state.clock_steps.items(), (stamped.boot_id, fact.step_s)][-_CLOCKS_KEPT:])
    state = replace(with_times(state, lambda wall_s: wall_clock.mended(wall_s, fact.step_s)), clock_steps=steps)
    if fact.reboot_wall_s is None or not state.reboots:
        return state
    return replace(state, reboots=(*state.reboots[:-1], replace(state.reboots[-1], down_s=fact.down_s)))


def _rebooted(state: State, stamped: Stamped, fact: facts.HostRebooted) -> State:
    """Count the reboot against the level that it happened at, unless it was an orderly one."""
    since_s, last_s = state.climb.level_since_s, fact.last_sign_s
    if fact.up_s is not None and since_s is not None and last_s is not None:  # the level may have begun within that boot
        fact = replace(fact, up_s=min(fact.up_s, max(0.0, last_s - since_s)))
    climb = replace(state.climb, level_since_s=stamped.at_s)
    reboot = Reboot(stamped.at_s, stamped.wall_s, fact.cause, fact.down_s, fact.up_s, fact.level, fact.last_sign_wall_s)
    record = state.levels.get(fact.level, LevelRecord())
    unclean = fact.cause == "unclean"
    uptimes = record.uptimes_s + ((fact.up_s,) if unclean and fact.up_s is not None else ())
    record = LevelRecord(
        up_s=record.up_s + (fact.up_s or 0.0), reboots=record.reboots + (1 if unclean else 0),
        uptimes_s=uptimes[-_UPTIMES_KEPT:],
    )  # fmt: skip
    by_cause = state.reboots_by_cause
    if fact.cause != "moved":
        by_cause = {**by_cause, fact.cause: by_cause.get(fact.cause, 0) + 1}
    programs = {}
    for name, program in state.programs.items():
        steps = furthest(program.steps, fact.steps.get(name))  # of the last sign of life
        lost = "" if program.gpu_lost == BY_WORKER else program.gpu_lost  # only a start can show whether it still is
        counts = advanced(program.counts, program.steps, steps)
        programs[name] = replace(program, steps=steps, counts=counts, gpu_lost=lost)
    return replace(
        state, levels={**state.levels, fact.level: record}, climb=climb,
        reboots=(*state.reboots, reboot)[-_REBOOTS_KEPT:], reboots_total=state.reboots_total + (fact.cause != "moved"),
        reboots_by_cause=by_cause, box=state.box and replace(state.box, outlived=state.box.outlived + 1),
        programs=programs,
    )  # fmt: skip


def _identified(state: State, stamped: Stamped, fact: facts.BoxIdentified) -> State:
    """The same box with other witnesses, or another box: then the record of levels, reboots and hardware begins anew.

    The measured memory of programs and their lowered batches belong to the other hardware, so they go. The pin goes too.
    """
    before = state.box
    same_machine = before is not None and before.witnesses.get(MACHINE) == fact.witnesses.get(MACHINE)
    box = Box(fact.hostname, fact.witnesses, stamped.at_s, stamped.wall_s, before.outlived if before and same_machine else 0)
    if not fact.another:
        if before is not None:
            box = replace(box, since_s=before.since_s, since_wall_s=before.since_wall_s)
        return replace(state, box=box)
    former = FormerBox(
        before.hostname if before else "", before.since_wall_s if before else stamped.wall_s, stamped.wall_s,
        state.reboots_total, state.levels,
    )  # fmt: skip
    return replace(
        _on_other_hardware(state, stamped.at_s), box=box, former_boxes=(*state.former_boxes, former)[-_BOXES_KEPT:],
        reboots=(), reboots_total=0, gpus=GpuRecord(), oom_kills=None,
    )  # fmt: skip


def _on_other_hardware(state: State, at_s: float, pin: Pin | None = None) -> State:
    """The state without what was measured on other hardware: levels, vetoes, and the memory of programs."""
    programs = {name: replace(program, by_level={}) for name, program in state.programs.items()}
    return replace(state, levels={}, climb=Climb(level_since_s=at_s, pin=pin), vetoes={}, programs=programs)


# --- wall-clock times in a state: every field whose name ends in `wall_s`, at any depth -----------------------------------


def with_times(value: T, change: Callable[[float], float]) -> T:
    """The same value with each known wall-clock time changed. It finds fields by name, so a new field needs no line here."""
    changed: Any = value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        new = {name: _changed(name, item, change) for name, item in fields.items()}
        changed = dataclasses.replace(value, **new) if new != fields else value
    elif isinstance(value, dict):
        changed = {key: with_times(item, change) for key, item in value.items()}
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        changed = tuple(with_times(item, change) for item in value)
    return changed  # type: ignore[no-any-return]


def _changed(name: str, value: Any, change: Callable[[float], float]) -> Any:
    if name.endswith("wall_s") and isinstance(value, float):
        return change(value)
    return with_times(value, change)
