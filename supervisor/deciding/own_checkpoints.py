"""Checkpoints that a program writes itself: which one an attempt starts from, and how old the newest one is."""

from __future__ import annotations

import re
from itertools import pairwise

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import Feature
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.inputs import CheckpointsFound, OwnCheckpoint, Sample
from supervisor.model.state import Attempt, Program
from supervisor.policy.worker import absence, newest_whole, unsaved
from supervisor.records import replace

_NUMBERS = re.compile(r"\d[\d,]*")  # another writer's newest file has another one at each look
_DISPLACED = "displaced"
_SAVES_KEPT = 8
_FACT_S = 600.0  # ten programs make 30,000 facts in three weeks, which are folded in less than a second


def on_found(context: DecisionContext, item: CheckpointsFound) -> None:
    """Record the checkpoint that an attempt starts from. The start does not wait for this record."""
    found = context.live(item.program, item.token)
    if found is None:
        return
    spec = context.settings.program(item.program)
    own = in_total(found[0], item.found, given=spec is not None and spec.takes_resume)
    torn = f"; {own.note}" if own.torn or (own.path and own.note and not own.sure) else ""
    if own.error:
        why = f"its checkpoints could not be looked at: {own.error}"
    elif own.path:
        copied = ", which was torn or gone and is put back from its copy" if own.put_back else ""
        why = f"starts with checkpoint {own.path}{_told(own)}{copied}{torn}"
    else:
        why = f"starts without a checkpoint{torn or (f': {own.note}' if own.note else '')}"
        if starts_over(found[0], own):
            path, number = found[0].ckpt.path, found[0].ckpt.step
            step = f" (step {number:,})" if path and number is not None else ""
            there_was = f"{path or own.torn or 'one that cannot be read'}{step}"
            why = f"begins again from nothing, although there was {there_was}; {why}"
    if item.left:
        why += f"; not set aside: {', '.join(item.left)}"
    why += "".join(f"; {said}" for said in (own.stale, own.odd) if said)
    context.record(
        facts.StartsFrom(
            why, item.program, item.token, own.path, own.step, _past(context, own.saved_at_s), own.size_bytes, own.torn,
            own.sure, item.left, own.error, own.spare, own.stale, own.odd,
        )
    )  # fmt: skip


def starts_over(before: Program, now: OwnCheckpoint | facts.StartsFrom) -> bool:
    """Whether a start finds no whole checkpoint although there was one, or is one that cannot be used."""
    torn = now.torn not in ("", before.suspicion.path) or not now.sure
    return not (now.path or now.error) and (torn or before.ckpt.path != "")


def _told(own: OwnCheckpoint) -> str:
    step = "" if own.step is None else f"step {own.step:,}, "
    return f" ({step}{(own.size_bytes or 0) / 1e6:,.1f} MB)"


def _past(context: DecisionContext, at_s: float | None) -> float | None:
    """Limit a file's time to the present: it may come from a clock that is ahead."""
    return None if at_s is None else min(context.now_s, at_s)


def begins_at(attempt: Attempt) -> int | None:
    """The step of the checkpoint with which an attempt surely starts; None: unknown, or there is none."""
    return attempt.from_step if attempt.from_path and attempt.from_sure else None


def in_total(program: Program, own: OwnCheckpoint, *, given: bool = False) -> OwnCheckpoint:
    """The checkpoint with its step in the whole training, if its name counts anew after a resume.

    Such a checkpoint of an earlier attempt has the step on record, or an unknown one. If it is newer than the one on record
    and yet not further, an attempt that ended soon has counted anew from that: known if that one was `given` to it.
    """
    if own.step is None:
        return own
    before, known = program.counting.steps_before, program.ckpt.step
    if before and (own.saved_at_s is None or own.saved_at_s < program.counting.since_s):
        return replace(own, step=known if own.path == program.ckpt.path else None)
    total = own.step + before
    if known is not None and own.path != program.ckpt.path and _is_newer(program, own) and total < known + bool(before):
        total = own.step + known
        return replace(own, step=total if given or before else None)
    return replace(own, step=total)


def first_steps(program: Program, attempt: Attempt, sample: Sample) -> tuple[int, ...]:
    """The first steps by its output, else by the names of checkpoints that it wrote below the one it began with."""
    own, began = sample.own, begins_at(attempt)
    if sample.first_steps or own is None or began is None or own.path == attempt.from_path:
        return sample.first_steps
    if own.step is None or own.saved_at_s is None or own.saved_at_s <= attempt.intended_at_s:
        return ()
    step = own.step - program.counting.steps_before
    return (step, 2 * step, 3 * step) if 0 < step < began else ()


def note_saved(context: DecisionContext, name: str, sample: Sample, own: OwnCheckpoint) -> None:
    """Record that a newer checkpoint was found, or that no checkpoint came for too long."""
    program, attempt = context.present(name)
    if own.odd and not own.error and (key := f"odd {_NUMBERS.sub('0', own.odd)}") not in attempt.reports:
        context.record(facts.CheckpointsOdd(own.odd, name, attempt.token, key))
    spec = context.settings.program(name)
    if own.displaced and spec is not None and _DISPLACED not in attempt.reports:
        why = f"its own checkpoints are removed in favour of {', '.join(own.displaced)} of an older experiment"
        said = f"{why}: these become .NAME.bad beside them"
        context.record(facts.CheckpointsOdd(said, name, attempt.token, _DISPLACED))
        context.command(commands.SetAside(spec, own.displaced))
    if own.error or attempt.ready_at_s is None or _waits_for_resume(program, attempt):
        return
    gap_s = _learn_gap(context, name, own)
    if _is_newer(program, own):
        if attempt.save_error or is_due(context, program, attempt):
            _see(context, name, own)
        return
    if attempt.save_error or attempt.stall is not None or attempt.stop is not None:
        return
    saved_at_s = own.saved_at_s if own.path else None
    since_s = attempt.ready_at_s if saved_at_s is None else max(attempt.ready_at_s, saved_at_s)
    pace = context.memory.watches[name].pace
    until_s = context.now_s if pace.step is None else pace.at_s  # what makes no steps has nothing to save
    age_s = until_s - absence.moved_on(since_s, context.memory.absences)
    error = unsaved.overdue_unasked(
        age_s, gap_s, steps=sample.steps, saved_step=own.step if own.path else None, note=own.note
    )
    if error:
        context.record(facts.CheckpointFailed(f"{error}; it trains on", name, attempt.token, error))


def is_due(context: DecisionContext, program: Program, attempt: Attempt) -> bool:
    """Whether a newer checkpoint is recorded now. An attempt's first always is: its last look may come within a write."""
    known_s = program.ckpt.at_s
    at_once = known_s is None or known_s <= attempt.intended_at_s or program.ckpt.quarantined
    return at_once or context.now_s - (known_s or 0.0) >= _FACT_S


def _learn_gap(context: DecisionContext, name: str, own: OwnCheckpoint) -> float | None:
    """The gap between two saves of this program with which a longer one is compared. Record the usual one."""
    (program, attempt), watch = context.present(name), context.memory.watches[name]
    saves_s = watch.saves_s
    if own.saved_at_s is not None and own.saved_at_s > (attempt.intended_at_s, *saves_s)[-1] + 1.0:
        saves_s = (*saves_s, own.saved_at_s)[-_SAVES_KEPT:]
        context.keep_observation(name, replace(watch, saves_s=saves_s))
    level, gap_s = program.pace_level(context.settings.level.name), newest_whole.usual_gap_s(saves_s)
    usual = program.at(level)
    if gap_s is not None and unsaved.is_new_gap(gap_s, usual.save_gap_s):
        why = f"it usually saves every {span(gap_s)}"
        context.record(facts.PaceLearned(why, name, level, usual.rate, gap_s))
    known = [each for each in (own.interval_s, usual.save_gap_s, gap_s) if each is not None]
    return max(*known, *(later - sooner for sooner, later in pairwise(saves_s)), 0.0) if known else None


def note_last(context: DecisionContext, name: str, own: OwnCheckpoint) -> None:
    """At the end of an attempt, record its newest checkpoint if that is not on record yet."""
    program, attempt = context.present(name)
    if not own.error and not _waits_for_resume(program, attempt) and _is_newer(program, own):
        _see(context, name, own)


def _see(context: DecisionContext, name: str, own: OwnCheckpoint) -> None:
    _, attempt = context.present(name)
    why, saved_at_s = f"checkpoint {own.path} is whole{_told(own)}", _past(context, own.saved_at_s)
    context.record(facts.CheckpointSeen(why, name, attempt.token, own.path, own.step, saved_at_s, own.size_bytes))


def _waits_for_resume(program: Program, attempt: Attempt) -> bool:
    """Whether the first step of this attempt is not on record yet. Until then the previous attempt's position counts."""
    return not is_first(program) and attempt.resumed_step is None and not attempt.resume_unknown


def is_first(program: Program) -> bool:
    """Whether no attempt has ended yet: the known steps are those of this one, and nothing can have been lost."""
    return not program.exit.cause


def _is_newer(program: Program, own: OwnCheckpoint) -> bool:
    if not own.path or program.ckpt.at_s is None or own.saved_at_s is None:
        return own.path not in ("", program.ckpt.path)
    return own.saved_at_s > program.ckpt.at_s + 1.0  # each look converts a file's time anew, so it may differ slightly


FEATURE = Feature(turn=40, inputs={CheckpointsFound: on_found})
