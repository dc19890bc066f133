"""How an attempt spends its time, counted from samples and recorded in few facts (`facts.Tallied`).

Samples are not facts, but they decide the account of each second: restoring, compiling, evaluating, saving. So the
deciding thread adds up its samples in memory and records the sums

* when the attempt becomes ready, stalls, is asked to exit or ends;
* every ten minutes, if more than 1 % of them differed from the default account; else every hour;
* at once, after a time without samples (the daemon was dead or suspended): how much of it the worker provably trained.

Time that equals the default (starting, then training) is not recorded. Seconds since the newest sign of progress are held
back until the next one: if none comes, they belong to the stall. When a daemon dies, at most one hour of small differences
is lost: those seconds count by the default.

Example: ready after 12 s, of them 5 s restoring: one fact at that moment, {starting 7, restoring 5}. Then 600 s with
twelve saves at 4 ms: 0.008 %, not recorded; after an hour {training 3600}, stall 0.29 s.
"""

from __future__ import annotations

from typing import Final

from supervisor.deciding.context import DecisionContext
from supervisor.formats import span
from supervisor.model import facts
from supervisor.model.inputs import Ending, Sample
from supervisor.model.memory import Away, Observation, Tally
from supervisor.model.settings import Progress
from supervisor.model.state import Attempt, Program
from supervisor.policy.upkeep.accounting import BLIND, STARTING, TRAINING, proven_s
from supervisor.records import replace

_RECORD_EVERY_S: Final = 600.0
_RECORD_QUIET_EVERY_S: Final = 3600.0
_WORTH: Final = 0.01
_LOOK_GAP_PERIODS: Final = 5.0
_LEAST_LOOK_GAP_S: Final = 5.0

Seconds = dict[str, float]


def on_sample(context: DecisionContext, name: str, before: Observation | None, watch: Observation) -> Observation:
    """Add one sample to the tally, record sums that are due, and return the new observation."""
    program, attempt = context.present(name)
    sample, tally = watch.sample, None if before is None else before.tally
    seen = _seen(sample, attempt, proves=not context.asks_witnesses(name, sample))
    default = STARTING if attempt.ready_at_s is None else TRAINING
    if attempt.stop is not None or attempt.stall is not None:
        return replace(watch, tally=_fresh(context, sample, seen, default))
    away = context.memory.away
    if tally is None:
        if away is None or attempt.intended_at_s >= away.until_s:
            began_s = attempt.intended_at_s
            first = _split(began_s, context.now_s, STARTING, seen, sample.phase_since_s)
            tally = replace(_fresh(context, sample, seen, default), from_s=began_s, saves=0, sure=_sum({}, first))
            return replace(watch, tally=tally)
        if sample.phase is None and not sample.ready:
            return watch  # an adopted worker without a report so far may still prove its training
        gap = _of_gap(context, program, attempt, sample, max(away.since_s, attempt.intended_at_s), away.steps.get(name))
    elif away is not None and tally.seen_s <= away.since_s:
        _record_if_notable(
            context, name, tally, sample, seconds=_sum(tally.sure, tally.open), until_s=tally.seen_s, least=0.0
        )
        gap = _of_gap(context, program, attempt, sample, tally.seen_s, tally.steps)
    else:
        spec = context.settings.program(name)
        moved = before is None or watch.moves > before.moves or (spec is not None and spec.progress is Progress.NONE)
        return replace(watch, tally=_counted(context, name, tally, watch, seen, moved=moved))
    from_s, seconds = gap
    _record(context, name, attempt.token, from_s, context.now_s, seconds, seen, sample)
    return replace(watch, tally=_fresh(context, sample, seen, seen))


def record_tally(context: DecisionContext, name: str, *, stalls: bool = False, least: float = 0.0) -> None:
    """Record the sums so far (before a stall: up to the newest progress), then begin to count again."""
    _, attempt = context.present(name)
    watch = context.memory.watch(name, attempt.token)
    if watch is None or watch.tally is None or attempt.stop is not None or attempt.stall is not None:
        return
    tally = watch.tally
    seconds = tally.sure if stalls else _sum(tally.sure, tally.open)
    until_s = tally.until_s if stalls else tally.seen_s
    recorded = _record_if_notable(context, name, tally, watch.sample, seconds=seconds, until_s=until_s, least=least)
    tally = _fresh(context, watch.sample, tally.doing, tally.doing if recorded else tally.default)
    context.keep_observation(name, replace(watch, tally=tally))


def record_start(context: DecisionContext, name: str) -> None:
    """Record the start phase; from then on the default account is training."""
    record_tally(context, name, least=_WORTH)
    watch = context.memory.watches[name]
    doing = _seen(watch.sample, context.present(name)[1], proves=True)
    counted = watch.tally and replace(watch.tally, default=TRAINING, doing=doing)
    context.keep_observation(name, replace(watch, tally=counted))


def record_end(
    context: DecisionContext, program: Program, attempt: Attempt, ending: Ending, ended_at_s: float | None
) -> None:
    """Record the sums of an ended attempt. Without samples its steps prove its training, without steps its exit record."""
    name = program.name
    if attempt.ready_at_s is None or attempt.stop is not None or attempt.stall is not None:
        record_tally(context, name)
        return
    watch = context.memory.watch(name, attempt.token)
    until_s = context.now_s if ended_at_s is None else ended_at_s
    if watch is not None and watch.tally is not None:
        record_tally(context, name)
        # A short time without a sample is no gap yet: the look that would have seen the end was under way.
        from_s, before, least_s = watch.tally.seen_s, watch.tally.steps, 2.0 * look_gap_s(context)
    else:
        away = context.memory.away or Away(context.now_s, context.now_s)
        from_s, least_s = max(away.since_s, attempt.intended_at_s), 0.0
        before, until_s = away.steps.get(name, program.steps), min(away.until_s, until_s)
    gap_s = until_s - from_s
    if gap_s <= least_s:
        return
    shown = None if ending.shown.steps is None else ending.shown.steps + attempt.steps_before
    steps = shown if ending.steps is None else ending.steps
    shown_s = proven_s(
        gap_s, steps_before=before, steps_after=steps, rate=context.memory.rates.get(name) or program.rate,
        progress_s=None if ended_at_s is None else gap_s,
    )  # fmt: skip
    seconds = _sum({TRAINING: shown_s}, {BLIND: gap_s - shown_s})
    _record(context, name, attempt.token, from_s, until_s, seconds, TRAINING, Sample(attempt.token, steps=steps))


def look_gap_s(context: DecisionContext) -> float:
    """After more seconds than this without samples, the loop counts as absent for that time."""
    return max(_LEAST_LOOK_GAP_S, _LOOK_GAP_PERIODS * context.settings.daemon.sample_period_s)


# --- counting ----------------------------------------------------------------------------------------------------------


def _seen(sample: Sample, attempt: Attempt, *, proves: bool) -> str:
    """The worker's present phase, as an account. `proves`: it reports its progress itself."""
    if sample.phase is None:
        return TRAINING if sample.ready or attempt.ready_at_s is not None else STARTING
    if sample.phase == TRAINING and not proves and attempt.ready_at_s is None:
        return STARTING  # only its log or files show progress: a warning of an import is no training yet
    return sample.phase


def _fresh(context: DecisionContext, sample: Sample, doing: str, default: str) -> Tally:
    now_s = context.now_s
    return Tally(
        from_s=now_s, until_s=now_s, seen_s=now_s, doing=doing, default=default, saves=sample.ckpt_count, steps=sample.steps
    )


def _counted(context: DecisionContext, name: str, tally: Tally, watch: Observation, doing: str, *, moved: bool) -> Tally:
    """Add one more sample, and record the fact that may be due. `moved`: these seconds can become no part of a stall."""
    sample, now_s = watch.sample, context.now_s
    open_ = _sum(tally.open, _split(tally.seen_s, now_s, tally.doing, doing, sample.phase_since_s))
    saved = max(0, sample.ckpt_count - tally.saves)
    tally = replace(
        tally, seen_s=now_s, doing=doing, open=open_, saves=tally.saves + saved,
        steps=tally.steps if sample.steps is None else sample.steps,
        stall_s=tally.stall_s + saved * (sample.ckpt_stall_s or 0.0),
    )  # fmt: skip
    if not moved:
        return tally
    tally = replace(tally, until_s=now_s, sure=_sum(tally.sure, open_), open={})
    length_s = now_s - tally.from_s
    if context.present(name)[1].ready_at_s is None or length_s < _RECORD_EVERY_S:
        return tally
    quiet = length_s >= _RECORD_QUIET_EVERY_S
    recorded = _record_if_notable(
        context, name, tally, sample, seconds=tally.sure, until_s=now_s, least=0.0 if quiet else _WORTH
    )
    if recorded or quiet:
        return _fresh(context, sample, doing, doing if recorded else tally.default)
    return tally


def _split(from_s: float, to_s: float, was: str, now: str, since_s: float | None) -> Seconds:
    """The time between two samples, split where the worker's phase began."""
    if was == now:
        return {now: to_s - from_s}
    change_s = to_s if since_s is None else max(from_s, min(to_s, since_s))
    return {was: change_s - from_s, now: to_s - change_s}


def _of_gap(
    context: DecisionContext, program: Program, attempt: Attempt, sample: Sample, from_s: float, steps_before: int | None
) -> tuple[float, Seconds]:
    """(Begin, seconds by account) of a time without samples: training as far as it can be proven, else BLIND."""
    now_s = context.now_s
    since_s = from_s if sample.phase_since_s is None else max(from_s, min(now_s, sample.phase_since_s))
    trains = sample.phase in {None, TRAINING}
    if attempt.ready_at_s is None:
        begin_s, end_s, rest = (since_s, now_s, {STARTING: since_s - from_s}) if trains else (now_s, now_s, {})
        steps_before = None
    else:
        begin_s, end_s, rest = from_s, now_s if trains else since_s, {}
    if not trains and sample.phase is not None:
        rest = {**rest, sample.phase: now_s - since_s}
        if attempt.ready_at_s is None:
            rest = _sum(rest, {STARTING: since_s - from_s})
    spec = context.settings.program(program.name)
    progress_s = None if sample.progress_at_s is None else sample.progress_at_s - begin_s
    if spec is not None and spec.progress is Progress.NONE:
        progress_s = end_s - begin_s
    shown_s = proven_s(
        end_s - begin_s, steps_before=program.steps if steps_before is None else steps_before, steps_after=sample.steps,
        rate=sample.steps_per_s or program.rate, progress_s=progress_s,
    )  # fmt: skip
    return from_s, _sum(rest, {TRAINING: shown_s, BLIND: end_s - begin_s - shown_s})


def _sum(one: Seconds, other: Seconds) -> Seconds:
    out = dict(one)
    for seen, seconds in other.items():
        if seconds > 0:
            out[seen] = out.get(seen, 0.0) + seconds
    return out


# --- recording ---------------------------------------------------------------------------------------------------------


def _record_if_notable(
    context: DecisionContext, name: str, tally: Tally, sample: Sample, *, seconds: Seconds, until_s: float, least: float
) -> bool:  # fmt: skip
    """Record the sums if more than a share `least` differs from the default account."""
    other_s = sum(value for seen, value in seconds.items() if seen != tally.default) + tally.stall_s
    if other_s <= least * (until_s - tally.from_s) or until_s <= tally.from_s:
        return False
    sample = replace(sample, steps=tally.steps)
    _record(context, name, sample.token, tally.from_s, until_s, seconds, tally.doing, sample, tally.stall_s)
    return True


def _record(
    context: DecisionContext, name: str, token: str, from_s: float, until_s: float, seconds: Seconds, doing: str,
    sample: Sample, stall_s: float = 0.0,
) -> None:  # fmt: skip
    rounded = {seen: round(value, 6) for seen, value in sorted(seconds.items()) if value > 0}
    text = ", ".join(f"{seen} {span(value)}" for seen, value in rounded.items())
    why = f"{span(until_s - from_s)}: {text or 'nothing seen'}" + (f"; {span(stall_s)} of it in saves" if stall_s else "")
    context.record(
        facts.Tallied(why, name, token, from_s, until_s, rounded, stall_s, doing, sample.steps, sample.steps_per_s)
    )  # fmt: skip
