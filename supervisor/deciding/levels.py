"""Which level is in force: that of the config, of the operator's pin, or of the load rule (`policy/level/load.py`).

With `mode = "climb"` every sample adds to the measurement of the level in force: training time, steps made and kept. Ten
minutes of training make a fact (`Reviewed`), after which the rule decides; it also decides after a reboot of the host
(`RebootJudged`). A change of level (`LevelChosen`) asks only those programs to save and exit whose settings change; the
others train on.

* A pin overrides the rule and its vetoes, over restarts and reboots, until it is ended or runs out. The measurements
  continue, and the rule resumes from the pinned level.
* Time without samples or without training does not count: a suspended host does not pass a trial.
* A script that ignores the level's settings is no evidence about the level. Its time and its steps are in no measurement,
  and a reboot while only such scripts run counts against no level.
* The record belongs to the GPU: with another model the ladder begins anew, at the level of the configuration.
* An operator's request or a worker's crash does not count against the level; a crash only lowers the kept steps.

Example: level light is in force for 20 min, with 96,000 kept steps per minute: `Reviewed`, `LevelChosen(3x32, trial)`.
The two programs of light have the same environments and batch at 3x32, so they train on, and a third program starts.
"""

from __future__ import annotations

import difflib
from typing import Final

from supervisor.deciding import time_spent
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.reconcile import reconcile
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.codec import as_text
from supervisor.model.codes import BAD_NAME, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, Verb
from supervisor.model.level_memory import costs, known
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Mark, Tenure
from supervisor.policy.box.reboot_cause import CONTAINER
from supervisor.policy.level import load
from supervisor.policy.level.attribution import attribute, beyond
from supervisor.policy.level.load import Cap, LoadState, LoadVerdict
from supervisor.records import Record, replace

_SETTLES_S: Final = 600.0  # a level that has not filled its slots by then is measured as it is
_LEAST_WINDOW: Final = 0.5  # share of a review period: a shorter measurement says nothing about speed
_SURE_DOWN_S: Final = 1800.0  # on a box that was down for longer, the daemon may have died long before
_OUT: Final = frozenset({Phase.DONE, Phase.STOPPED, Phase.FATAL, Phase.EXITED})


# --- the ladder and its cap ----------------------------------------------------------------------------------------------


def names(context: DecisionContext) -> tuple[str, ...]:
    return tuple(rung.level.name for rung in context.settings.rungs)


def cap(context: DecisionContext) -> Cap:
    """The highest level without a veto of its memory budget or of a pre-check. The lowest level is never vetoed.

    A level above a vetoed one is vetoed, too.
    """
    rungs = context.settings.rungs
    caps = [(len(rungs) - 1, "")]
    caps += [(place - 1, rung.veto) for place, rung in enumerate(rungs) if rung.veto and place]
    checked = context.state.cap(names(context))
    return Cap(*min([*caps, *([checked] if checked is not None else [])]))


# --- a start, an update ---------------------------------------------------------------------------------------------------


def apply_level(context: DecisionContext) -> None:
    """After a start or an update: set up the ladder, and apply the settings of the wanted level."""
    pin = context.state.climb.pin
    if pin is not None and context.settings.place(pin.level) is None:
        why = f"the pin ends: the config no longer has level {pin.level}"
        context.record(facts.LevelUnpinned(why, pin.level, "the config"))
    if context.settings.climbs:
        _begin_ladder(context)
    context.settings = context.settings.at(_wanted(context))


def _wanted(context: DecisionContext) -> str:
    """The name of the wanted level: that of the pin, of the load rule, or of the config."""
    pin, remembered = context.state.climb.pin, known(context.state)
    if pin is not None:
        return pin.level
    if context.settings.climbs and remembered is not None:
        return names(context)[remembered.level]
    return context.settings.start


def _begin_ladder(context: DecisionContext) -> None:
    """Begin the record of a new ladder, and keep the measurements of the levels that the previous ladder also had."""
    rungs, before = context.settings.rungs, context.state.climb.ladder
    ladder = tuple((rung.level.name, rung.level.shape) for rung in rungs)
    old = known(context.state)
    pin = context.state.climb.pin
    pinned = context.settings.place(pin.level) if pin is not None else None
    if ladder == before and old is not None and pinned in {None, old.level}:
        return
    start = pinned if old is None else context.settings.place(context.state.level)
    start = context.settings.place(context.settings.start) if start is None else start
    fresh = load.begin(len(rungs), start or 0, at_s=context.now_s)
    shared = 0
    if old is not None:
        places = {level: place for place, level in enumerate(before)}
        shared = sum(level in places for level in ladder)
        pairs = zip(ladder, fresh.known, strict=True)
        record = (old.known[places[level]] if level in places else new for level, new in pairs)
        speeds = old.speeds if ladder == before else fresh.speeds
        fresh = fresh._replace(known=tuple(record), speeds=speeds)
    reused = f", {shared} of them known from the previous ladder" if shared else ""
    why = f"a ladder of {len(rungs)} levels{reused}, starting at {rungs[start or 0].level.name}"
    shapes = tuple(shape for _, shape in ladder)
    context.record(facts.LadderLaid(why, tuple(name for name, _ in ladder), shapes, as_text(fresh)))


# --- a sample ------------------------------------------------------------------------------------------------------------


def on_sample(context: DecisionContext) -> None:
    """Add one sample to the measurement of the level in force; after enough training, ask the rule."""
    if context.state.stopping or context.memory.ended:
        return
    if any(isinstance(fact, facts.GpusFound) and fact.another for fact in context.facts):
        _begin_ladder(context)
        _change_level(context, _wanted(context), "another GPU: the record of levels begins anew", "the rule")
    tenure = _with_sample(context, _tenure(context))
    context.memory = replace(context.memory, tenure=tenure)
    if tenure.up_s >= context.settings.load.review_s:
        _review(context, tenure)


def _training(context: DecisionContext) -> list[str]:
    """The programs that train now without a stall; services are not among them."""
    return [
        name
        for name, program in context.state.live.items()
        if program.phase is Phase.RUNNING
        and program.attempt is not None
        and program.attempt.stall is None
        and not program.service
    ]


def _marks(context: DecisionContext, training: list[str]) -> dict[str, Mark]:
    """The positions of the training programs that use the level's settings, if they report their steps."""
    watches = context.memory.watches
    found = {name: watches[name] for name in training if name in watches and context.state.programs[name].takes_level}
    return {
        name: Mark(watch.sample.steps, f"{watch.token} {watch.steps_before}")
        for name, watch in found.items() if watch.sample.steps is not None
    }  # fmt: skip


def _gained(context: DecisionContext, before: dict[str, Mark], marks: dict[str, Mark]) -> int:
    """Steps made and kept since the previous sample. A resume goes back to its checkpoint, which lowers the sum.

    Beats count steps over all attempts. A script without beats may count from 0 in each attempt, so the first sample of an
    attempt is not compared with the previous one.
    """
    return sum(
        mark.steps - before[name].steps
        for name, mark in marks.items()
        if name in before and (before[name].token == mark.token or context.beats(name, context.memory.watches[name].sample))
    )


def _with_sample(context: DecisionContext, tenure: Tenure) -> Tenure:
    """The tenure with one more sample. Time without samples does not count."""
    gap_s = context.now_s - tenure.seen_s
    if context.blind or gap_s > time_spent.look_gap_s(context):
        return replace(tenure, seen_s=context.now_s, marks={})
    training = _training(context)
    trainings = [program for program in context.state.programs.values() if not program.service]
    wanted = sum(program.wanted and program.phase not in _OUT for program in trainings)
    full = len(training) >= min(context.settings.level.slots, wanted)
    counts = any(context.state.programs[name].takes_level for name in training)
    up_s = tenure.up_s + (gap_s if counts else 0.0)
    if not tenure.settled:
        return _settling(context, replace(tenure, seen_s=context.now_s, up_s=up_s), len(training), gap_s, full=full)
    marks = _marks(context, training)
    return replace(
        tenure, seen_s=context.now_s, up_s=up_s, window_s=tenure.window_s + gap_s,
        gained=tenure.gained + _gained(context, tenure.marks, marks), marks={**tenure.marks, **marks},
    )  # fmt: skip


def _settling(context: DecisionContext, tenure: Tenure, training: int, gap_s: float, *, full: bool) -> Tenure:
    """Measure the cost of a change of level until every slot trains. Speed is measured from then on."""
    before = tenure.ran_before
    lost_s = tenure.lost_s + (gap_s * max(0, before - training) / before if before else 0.0)
    after_s = context.now_s - tenure.from_s
    if not full and after_s < _SETTLES_S:
        return replace(tenure, lost_s=lost_s)
    if before and full:
        why = f"level {tenure.level} trains in every slot {span(after_s)} after the change: {span(lost_s)} of training lost"
        context.record(facts.LevelSettled(why, tenure.level, after_s, lost_s))
    return replace(tenure, lost_s=lost_s, settled=True)


def _review(context: DecisionContext, tenure: Tenure) -> None:
    """Give the measurement to the rule, and carry out its verdict."""
    remembered = known(context.state)
    if remembered is None:
        return
    long_enough = tenure.window_s >= _LEAST_WINDOW * context.settings.load.review_s
    reading = tenure.gained / (tenure.window_s / 60.0) if tenure.gained > 0 and long_enough else None  # kept in a minute
    rule = replace(context.settings.load, names=names(context))
    if context.state.climb.pin is not None:
        after = load.learned(remembered, at_s=context.now_s, up_s=tenure.up_s, reading=reading)
        verdict = LoadVerdict(
            after.level, trial=False, why=f"{tenure.level} is pinned: extralife measures it and tries no other level"
        )
    else:
        after, verdict = load.reviewed(
            rule, costs(context.state), remembered, at_s=context.now_s, up_s=tenure.up_s, reading=reading, cap=cap(context)
        )
    context.record(facts.Reviewed(verdict.why, tenure.level, tenure.up_s, reading, as_text(after)))
    context.memory = replace(context.memory, tenure=replace(tenure, up_s=0.0, window_s=0.0, gained=0))
    _change_level(context, names(context)[verdict.level], verdict.why, "the rule", trial=verdict.trial)


def _change_level(context: DecisionContext, level: str, why: str, by: str, *, trial: bool = False) -> None:
    """Put another level in force (or end its trial): programs whose settings change restart, the others train on."""
    before = context.state.level
    if (before, context.state.climb.trial) == (level, trial):
        return
    ran = len(_training(context))
    context.settings = context.settings.at(level)
    chosen = facts.LevelChosen(why, level, context.settings.level.slots, trial, before, by)
    if level == before:
        context.record(chosen)
        return
    reconcile(context, f"level {level}", chosen=chosen)
    context.memory = replace(context.memory, tenure=Tenure(level, context.now_s, context.now_s, ran_before=ran))


# --- a reboot ------------------------------------------------------------------------------------------------------------


class RunningBefore(Record):
    """The workers that ran when the host went down, as far as the journal knows."""

    workers: int
    since_s: float | None  # the record lacks the training since then; None: there was none
    changed_at_s: float | None = None  # last change of level in that boot; None: there was none
    began_s: float | None = None  # when the first of them began to train at this level; None: there was none


def running_before(context: DecisionContext) -> RunningBefore:
    """The workers that ran before a reboot. Call this before the reboot is recorded."""
    climb = context.state.climb
    trainings = [program for program in context.state.live.values() if not program.service and program.takes_level]
    attempts = [program.attempt for program in trainings if program.attempt is not None]
    trained = [attempt.ready_at_s for attempt in attempts if attempt.ready_at_s is not None]
    marks = [at_s for at_s in (climb.reviewed_at_s, climb.level_since_s) if at_s is not None]
    since_s = max([min(trained), *marks]) if trained else None
    began_s = max(min(trained), climb.level_since_s or 0.0) if trained else None
    # A change in the first turn of a boot does not count: nothing ran at the old level in that boot.
    begun_s = [reboot.at_s for reboot in context.state.reboots[-1:]] + (
        [context.state.box.since_s] if context.state.box else []
    )
    changed_at_s = climb.changed_at_s
    if changed_at_s is not None and begun_s and changed_at_s <= max(begun_s):
        changed_at_s = None
    return RunningBefore(sum(attempt.pid is not None for attempt in attempts), since_s, changed_at_s, began_s)


def on_reboot(context: DecisionContext, reboot: facts.HostRebooted, before: RunningBefore) -> None:
    """Charge a reboot to a level and choose the next level. `before` is the result of `running_before` before the reboot."""
    remembered, climb = known(context.state), context.state.climb
    place = context.settings.place(reboot.level)
    if not context.settings.climbs or remembered is None or place is None:
        return
    last_s = reboot.last_sign_s
    up_s = 0.0 if last_s is None or before.since_s is None else max(0.0, last_s - before.since_s)
    sure = reboot.down_s is not None and reboot.down_s <= _SURE_DOWN_S
    left = context.settings.place(climb.before)
    change_s = None if last_s is None or before.changed_at_s is None else last_s - before.changed_at_s
    found = attribute(
        reboot.cause, workers=before.workers, sign_age_s=context.settings.daemon.alive_period_s if sure else None,
        since_change_s=change_s, stepped_down=left is not None and left > place,
        ran_s=None if last_s is None or before.began_s is None else last_s - before.began_s,
        share=_beyond(context, remembered, place, up_s) if reboot.end == CONTAINER else None,
    )  # fmt: skip
    charged = left if found.left and left is not None else place
    rule = replace(context.settings.load, names=names(context))
    after, verdict = load.rebooted(
        rule, costs(context.state), remembered, at_s=context.now_s, up_s=up_s, weight=found.weight, charged=charged,
        cap=cap(context),
    )  # fmt: skip
    pin = context.state.climb.pin
    if pin is not None:
        after = load.placed(after, place)
        verdict = LoadVerdict(place, trial=False, why=f"{pin.level} stays: it is pinned")
    why = f"{found.why}; {verdict.why}"
    context.record(facts.RebootJudged(why, names(context)[charged], found.weight, up_s, as_text(after)))
    _change_level(context, names(context)[verdict.level], verdict.why, "the rule", trial=verdict.trial)


def _beyond(context: DecisionContext, remembered: LoadState, place: int, up_s: float) -> float:
    """How much more often this level ends without an order than those below it; the present end is in the record already."""
    records = [context.state.levels.get(name) for name in names(context)[: place + 1]]
    ends = [0 if record is None else record.reboots for record in records]
    ran_s = [level.up_s for level in remembered.known[: place + 1]]
    return beyond((ends[place], ran_s[place] + up_s), (sum(ends[:place]), sum(ran_s[:place])))


# --- the operator --------------------------------------------------------------------------------------------------------


def on_deadlines(context: DecisionContext) -> None:
    """End a pin that has run out; leave a vetoed level at once."""
    if context.state.stopping or context.memory.ended:
        return
    pin = context.state.climb.pin
    if pin is not None and pin.until_s is not None and pin.until_s <= context.now_s:
        _unpin(context, f"the pin on {pin.level} has run out", "the clock")
    place = context.settings.place(context.state.level)
    if context.settings.climbs and context.state.climb.pin is None and place is not None and place > cap(context).level:
        _review(context, _tenure(context))


def _tenure(context: DecisionContext) -> Tenure:
    tenure, level = context.memory.tenure, context.state.level
    return tenure if tenure is not None and tenure.level == level else Tenure(level, context.now_s, context.now_s)


def on_asked(context: DecisionContext, item: Asked) -> None:
    """`level pin` and `level unpin`."""
    level = item.names[0] if item.names else context.state.level
    if context.state.stopping:
        _answer(context, item, level, SHUTDOWN_STATE, "extralife is shutting down")
    elif item.verb is Verb.UNPIN:
        pin = context.state.climb.pin
        if pin is not None:
            _asked(context, item, "")
            _unpin(context, f"{item.by} ended the pin on {pin.level}", item.by)
        message = f"the pin on {pin.level} is ended" if pin is not None else "nothing was pinned"
        _answer(context, item, context.state.level, SUCCESS, message)
    elif context.settings.place(level) is None:
        near = difflib.get_close_matches(level, names(context), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names(context))}"
        _answer(context, item, level, BAD_NAME, f"no such level: {level}; {hint}")
    else:
        _asked(context, item, level)
        _answer(context, item, level, SUCCESS, _pin(context, item, level))


def _asked(context: DecisionContext, item: Asked, level: str) -> None:
    arguments = (level, *((span(item.for_s),) if item.for_s is not None else ())) if level else ()
    why = f"{item.by} requested {item.verb.value} {level}".rstrip()
    context.record(facts.OperatorAsked(why, item.verb.value, arguments, item.uid))


def _pin(context: DecisionContext, item: Asked, level: str) -> str:
    """Pin a level. Returns the answer to the request."""
    place, remembered = context.settings.place(level), known(context.state)
    for_how = "until further notice" if item.for_s is None else f"for {span(item.for_s)}"
    text = ""
    if context.settings.climbs and remembered is not None and place is not None:
        tenure = _tenure(context)
        remembered = load.learned(remembered, at_s=context.now_s, up_s=tenure.up_s, reading=None)
        text = as_text(load.placed(remembered, place))
        context.memory = replace(context.memory, tenure=replace(tenure, up_s=0.0))
    until_s = None if item.for_s is None else context.now_s + item.for_s
    why = f"{item.by} pinned level {level} {for_how}"
    context.record(facts.LevelPinned(why, level, item.by, until_s, text))
    _change_level(context, level, why, item.by)
    against = cap(context) if context.settings.climbs else None
    although = f", although {against.why}" if against is not None and place is not None and place > against.level else ""
    return f"pinned {for_how}{although}"


def _unpin(context: DecisionContext, why: str, by: str) -> None:
    """End the pin. The load rule continues from the pinned level; without the rule, the config's level is in force again."""
    context.record(facts.LevelUnpinned(why, context.state.level, by))
    _change_level(context, _wanted(context), why, by)


def _answer(context: DecisionContext, item: Asked, level: str, code: int, text: str) -> None:
    context.command(commands.Reply(item.request_id, ((level, code, text),)))
