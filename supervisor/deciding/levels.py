"""Which level is in force: that of the config, of the operator's pin, or of the load rule (`policy/level/load.py`).

With `mode = "climb"` every sample adds to the measurement of the level in force: training time, steps made and kept. Ten
minutes of training make a fact (`Reviewed`), after which the rule decides; it also decides after a reboot of the host
(`RebootJudged`). A change of level (`LevelChosen`) asks only those programs to save and exit whose settings change; the
others train on.

* A pin overrides the rule and its vetoes, over restarts and reboots, until it is ended or runs out. The measurements
  continue, and the rule resumes from the pinned level.
* Time without samples or without training does not count: a suspended host does not pass a trial.
* A script that takes nothing of the level tells nothing of it: its time and its steps are in no measurement, and a reboot
  at which only such scripts ran counts against no level.
* On a cluster a node that fails under the level counts as its share of a reboot (`NodeFaultJudged`).
* An operator's request or a worker's crash does not count against the level; a crash only lowers the kept steps.

Example: light since 20 min, 96,000 steps kept a minute: `Reviewed`, `LevelChosen(3x32, trial)`; the two that train at
light have the same environments and batch at 3x32 and are left alone, a third one starts.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from supervisor.deciding import time_spent
from supervisor.deciding.reconcile import reconcile
from supervisor.deciding.turn import Turn
from supervisor.model import commands, facts
from supervisor.model.codes import BAD_NAME, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, Verb
from supervisor.model.level_memory import costs, known
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Mark, Tenure
from supervisor.model.settings import Progress
from supervisor.model.snapshot import encoded
from supervisor.policy.level import load
from supervisor.policy.level.attribution import attribute
from supervisor.policy.level.load import Cap, LoadState, LoadVerdict
from supervisor.records import replace

_SETTLES_S: Final = 600.0  # a level that does not fill its slots by then is measured as it is
_LEAST_WINDOW: Final = 0.5  # share of a review: shorter ones say nothing about speed
_SURE_DOWN_S: Final = 1800.0  # on a box that was down for longer, the daemon may have died long before
_OUT: Final = frozenset({Phase.DONE, Phase.STOPPED, Phase.FATAL})


# --- what is known -------------------------------------------------------------------------------------------------------


def names(turn: Turn) -> tuple[str, ...]:
    return tuple(rung.level.name for rung in turn.settings.rungs)


def cap(turn: Turn) -> Cap:
    """The highest level without a veto of its memory budget or of a pre-check. The lowest level is never vetoed.

    A level above a vetoed one is vetoed, too.
    """
    rungs = turn.settings.rungs
    caps = [(len(rungs) - 1, "")]
    caps += [(place - 1, rung.veto) for place, rung in enumerate(rungs) if rung.veto and place]
    checked = turn.state.cap(names(turn))
    return Cap(*min([*caps, *([checked] if checked is not None else [])]))


# --- a start, an update ---------------------------------------------------------------------------------------------------


def settle_in(turn: Turn) -> None:
    """After a start or an update: set up the ladder, and take the settings of the level that is to be in force."""
    pin = turn.state.climb.pin
    if pin is not None and turn.settings.place(pin.level) is None:
        why = f"the pin ends: the config no longer has level {pin.level}"
        turn.record(facts.LevelUnpinned(why, pin.level, "the config"))
    if turn.settings.climbs:
        _lay(turn)
    turn.settings = turn.settings.at(_wanted(turn))


def _wanted(turn: Turn) -> str:
    """The name of the level that is to be in force."""
    pin, remembered = turn.state.climb.pin, known(turn.state)
    if pin is not None:
        return pin.level
    if turn.settings.climbs and remembered is not None:
        return names(turn)[remembered.level]
    return turn.settings.start


def _lay(turn: Turn) -> None:
    """Begin the record of a new ladder, and keep the measurements of levels that the previous ladder had, too."""
    rungs, before = turn.settings.rungs, turn.state.climb.ladder
    ladder = tuple((rung.level.name, rung.level.shape) for rung in rungs)
    old = known(turn.state)
    pin = turn.state.climb.pin
    pinned = turn.settings.place(pin.level) if pin is not None else None
    if ladder == before and old is not None and pinned in {None, old.level}:
        return
    start = pinned if old is None else turn.settings.place(turn.state.level)
    start = turn.settings.place(turn.settings.start) if start is None else start
    fresh = load.begin(len(rungs), start or 0, at_s=turn.now_s)
    shared = 0
    if old is not None:
        places = {level: place for place, level in enumerate(before)}
        shared = sum(level in places for level in ladder)
        pairs = zip(ladder, fresh.known, strict=True)
        record = (old.known[places[level]] if level in places else new for level, new in pairs)
        speeds = old.speeds if ladder == before else fresh.speeds
        fresh = fresh._replace(known=tuple(record), speeds=speeds, recent_s=old.recent_s)
    told = f", {shared} of them known from the previous ladder" if shared else ""
    why = f"a ladder of {len(rungs)} levels{told}, starting at {rungs[start or 0].level.name}"
    shapes = tuple(shape for _, shape in ladder)
    turn.record(facts.LadderLaid(why, tuple(name for name, _ in ladder), shapes, encoded(fresh)))


# --- a look --------------------------------------------------------------------------------------------------------------


def on_look(turn: Turn) -> None:
    """Add one sample to the measurement of the level in force; after enough training, ask the rule."""
    if not turn.settings.climbs or turn.state.stopping or turn.memory.ended:
        return
    tenure = _seen(turn, _tenure(turn))
    turn.memory = replace(turn.memory, tenure=tenure)
    if tenure.up_s >= turn.settings.load.review_s:
        _review(turn, tenure)


def _training(turn: Turn) -> list[str]:
    """The programs that train now, undisturbed."""
    return [
        name
        for name, program in turn.state.live.items()
        if program.phase is Phase.RUNNING
        and program.attempt is not None
        and program.attempt.stall is None
        and not program.service
    ]


def _marks(turn: Turn, training: list[str]) -> dict[str, Mark]:
    """Where those of them are that count for the level, if they say so."""
    watches = turn.memory.watches
    found = {name: watches[name] for name in training if name in watches and turn.state.programs[name].takes_level}
    return {
        name: Mark(watch.sample.steps, watch.token) for name, watch in found.items() if watch.sample.steps is not None
    }  # fmt: skip


def _gained(turn: Turn, before: dict[str, Mark], marks: dict[str, Mark]) -> int:
    """Steps made and kept since the look before. A resume goes back to its checkpoint, which lowers the sum.

    Beats count over all attempts. A script without them may count from 0 again, so its first look says nothing.
    """
    return sum(
        mark.steps - before[name].steps
        for name, mark in marks.items()
        if name in before and (before[name].token == mark.token or _beats(turn, name))
    )


def _beats(turn: Turn, name: str) -> bool:
    spec = turn.spec(name)
    return spec is not None and spec.source(turn.memory.watches[name].sample.source) is Progress.BEAT


def _seen(turn: Turn, tenure: Tenure) -> Tenure:
    """The tenure with one more sample. Time without samples does not count."""
    gap_s = turn.now_s - tenure.seen_s
    blind = turn.memory.blind_until_s is not None and turn.now_s < turn.memory.blind_until_s
    if blind or gap_s > time_spent.look_gap_s(turn):
        return replace(tenure, seen_s=turn.now_s, marks={})
    training = _training(turn)
    trainings = [program for program in turn.state.programs.values() if not program.service]
    wanted = sum(program.wanted and program.phase not in _OUT for program in trainings)
    full = len(training) >= min(turn.settings.level.slots, wanted)
    tells = any(turn.state.programs[name].takes_level for name in training)
    up_s = tenure.up_s + (gap_s if tells else 0.0)
    if not tenure.settled:
        return _settling(turn, replace(tenure, seen_s=turn.now_s, up_s=up_s), len(training), gap_s, full=full)
    marks = _marks(turn, training)
    return replace(
        tenure, seen_s=turn.now_s, up_s=up_s, window_s=tenure.window_s + gap_s,
        gained=tenure.gained + _gained(turn, tenure.marks, marks), marks={**tenure.marks, **marks},
    )  # fmt: skip


def _settling(turn: Turn, tenure: Tenure, training: int, gap_s: float, *, full: bool) -> Tenure:
    """Measure the cost of a change of level until every slot trains. Speed is measured from then on."""
    before = tenure.ran_before
    lost_s = tenure.lost_s + (gap_s * max(0, before - training) / before if before else 0.0)
    after_s = turn.now_s - tenure.from_s
    if not full and after_s < _SETTLES_S:
        return replace(tenure, lost_s=lost_s)
    if before and full:
        why = f"level {tenure.level} trains in every slot {after_s:.0f} s after the change: {lost_s:.0f} s of training lost"
        turn.record(facts.LevelSettled(why, tenure.level, after_s, lost_s))
    return replace(tenure, lost_s=lost_s, settled=True)


def _reading(turn: Turn, tenure: Tenure) -> float | None:
    """Kept steps per minute; None: unknown."""
    if tenure.gained <= 0 or tenure.window_s < _LEAST_WINDOW * turn.settings.load.review_s:
        return None
    return tenure.gained / (tenure.window_s / 60.0)


def _review(turn: Turn, tenure: Tenure) -> None:
    """Give the measurement to the rule, and carry out its verdict."""
    remembered = known(turn.state)
    if remembered is None:
        return
    reading = _reading(turn, tenure)
    rule = turn.settings.load.rule(names(turn))
    if turn.state.climb.pin is not None:
        after = load.pinned(remembered, at_s=turn.now_s, up_s=tenure.up_s, reading=reading)
        verdict = LoadVerdict(
            after.level, trial=False, why=f"{tenure.level} is pinned: extralife measures it and tries no other level"
        )
    else:
        after, verdict = load.reviewed(
            rule, costs(turn.state), remembered, at_s=turn.now_s, up_s=tenure.up_s, reading=reading, cap=cap(turn)
        )
    turn.record(facts.Reviewed(verdict.why, tenure.level, tenure.up_s, reading, encoded(after)))
    turn.memory = replace(turn.memory, tenure=replace(tenure, up_s=0.0, window_s=0.0, gained=0))
    _go(turn, names(turn)[verdict.level], verdict.why, "the rule", trial=verdict.trial)


def _go(turn: Turn, level: str, why: str, by: str, *, trial: bool = False) -> None:
    """Put another level in force (or end its trial): programs whose settings change move, the others train on."""
    before = turn.state.level
    if (before, turn.state.climb.trial) == (level, trial):
        return
    ran = len(_training(turn))
    turn.settings = turn.settings.at(level)
    chosen = facts.LevelChosen(why, level, turn.settings.level.slots, trial, before, by)
    if level == before:
        turn.record(chosen)
        return
    reconcile(turn, f"level {level}", chosen=chosen)
    turn.memory = replace(turn.memory, tenure=Tenure(level, turn.now_s, turn.now_s, ran_before=ran))


# --- a reboot ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran when the host went down, as far as the journal knows."""

    workers: int
    since_s: float | None  # training since then is not in the record yet; None: there was none
    changed_at_s: float | None = None  # of the last change of level in that boot; None: there was none


def ran(turn: Turn) -> Ran:
    """What ran before a reboot. Call it before the reboot is recorded."""
    climb = turn.state.climb
    trainings = [program for program in turn.state.live.values() if not program.service and program.takes_level]
    attempts = [program.attempt for program in trainings if program.attempt is not None]
    trained = [attempt.ready_at_s for attempt in attempts if attempt.ready_at_s is not None]
    marks = [at_s for at_s in (climb.reviewed_at_s, climb.level_since_s) if at_s is not None]
    since_s = max([min(trained), *marks]) if trained else None
    # A change in the first turn of a boot does not count: nothing ran at the old level in that boot.
    begun_s = [reboot.at_s for reboot in turn.state.reboots[-1:]] + ([turn.state.box.since_s] if turn.state.box else [])
    changed_at_s = climb.changed_at_s
    if changed_at_s is not None and begun_s and changed_at_s <= max(begun_s):
        changed_at_s = None
    return Ran(sum(attempt.pid is not None for attempt in attempts), since_s, changed_at_s)


def on_reboot(turn: Turn, reboot: facts.HostRebooted, before: Ran) -> None:
    """Charge a reboot to a level and choose the next level. `before` is the result of `ran` before the reboot."""
    remembered, climb = known(turn.state), turn.state.climb
    place = turn.settings.place(reboot.level)
    if not turn.settings.climbs or remembered is None or place is None:
        return
    last_s = reboot.last_sign_s
    up_s = 0.0 if last_s is None or before.since_s is None else max(0.0, last_s - before.since_s)
    sure = reboot.down_s is not None and reboot.down_s <= _SURE_DOWN_S
    left = turn.settings.place(climb.before)
    change_s = None if last_s is None or before.changed_at_s is None else last_s - before.changed_at_s
    found = attribute(
        reboot.cause, workers=before.workers, sign_age_s=turn.settings.daemon.alive_period_s if sure else None,
        since_change_s=change_s, stepped_down=left is not None and left > place,
    )  # fmt: skip
    charged = left if found.left and left is not None else place
    rule = turn.settings.load.rule(names(turn))
    after, verdict = load.rebooted(
        rule, costs(turn.state), remembered, at_s=turn.now_s, up_s=up_s, weight=found.weight, charged=charged, cap=cap(turn)
    )
    pin = turn.state.climb.pin
    if pin is not None:
        after = load.placed(after, place)
        verdict = LoadVerdict(place, trial=False, why=f"{pin.level} stays: it is pinned")
    why = f"{found.why}; {verdict.why}"
    turn.record(facts.RebootJudged(why, names(turn)[charged], found.weight, up_s, encoded(after)))
    _go(turn, names(turn)[verdict.level], verdict.why, "the rule", trial=verdict.trial)


# --- a node of a cluster --------------------------------------------------------------------------------------------------


def on_node_faults(turn: Turn) -> None:
    """Charge the jobs that nodes have lost in this turn to the level in force, and choose the next level."""
    for fault in [fact for fact in turn.facts if isinstance(fact, facts.NodeFaulted)]:
        remembered, place = known(turn.state), turn.settings.place(turn.state.level)
        if fault.weight and turn.settings.climbs and remembered is not None and place is not None:
            _judge_fault(turn, fault, remembered, place)


def _judge_fault(turn: Turn, fault: facts.NodeFaulted, remembered: LoadState, place: int) -> None:
    tenure, rule, pin = _tenure(turn), turn.settings.load.rule(names(turn)), turn.state.climb.pin
    after, verdict = load.rebooted(
        rule, costs(turn.state), remembered, at_s=turn.now_s, up_s=tenure.up_s, weight=fault.weight, cap=cap(turn)
    )
    if pin is not None:
        after = load.placed(after, place)
        verdict = LoadVerdict(place, trial=False, why=f"{pin.level} stays: it is pinned")
    level = names(turn)[place]
    told = f"{fault.weight:.2g} of a reboot counts" if fault.weight < 1.0 else "it counts as a reboot"
    why = f"node {fault.node} was lost under {level}: {told} against it; {verdict.why}"
    turn.record(facts.NodeFaultJudged(why, fault.node, level, fault.weight, tenure.up_s, encoded(after)))
    turn.memory = replace(turn.memory, tenure=replace(tenure, up_s=0.0))
    _go(turn, names(turn)[verdict.level], verdict.why, "the rule", trial=verdict.trial)


# --- the operator --------------------------------------------------------------------------------------------------------


def on_deadlines(turn: Turn) -> None:
    """End a pin that has run out; leave a vetoed level at once."""
    if turn.state.stopping or turn.memory.ended:
        return
    pin = turn.state.climb.pin
    if pin is not None and pin.until_s is not None and pin.until_s <= turn.now_s:
        _unpin(turn, f"the pin on {pin.level} has run out", "the clock")
    place = turn.settings.place(turn.state.level)
    if turn.settings.climbs and turn.state.climb.pin is None and place is not None and place > cap(turn).level:
        _review(turn, _tenure(turn))


def _tenure(turn: Turn) -> Tenure:
    tenure, level = turn.memory.tenure, turn.state.level
    return tenure if tenure is not None and tenure.level == level else Tenure(level, turn.now_s, turn.now_s)


def on_asked(turn: Turn, item: Asked) -> None:
    """`level pin` and `level unpin`."""
    level = item.names[0] if item.names else turn.state.level
    if turn.state.stopping:
        _answer(turn, item, level, SHUTDOWN_STATE, "extralife is shutting down")
    elif item.verb is Verb.UNPIN:
        pin = turn.state.climb.pin
        if pin is not None:
            _asked(turn, item, "")
            _unpin(turn, f"{item.by} ended the pin on {pin.level}", item.by)
        told = f"the pin on {pin.level} is ended" if pin is not None else "nothing was pinned"
        _answer(turn, item, turn.state.level, SUCCESS, told)
    elif turn.settings.place(level) is None:
        near = difflib.get_close_matches(level, names(turn), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names(turn))}"
        _answer(turn, item, level, BAD_NAME, f"no such level: {level}; {hint}")
    else:
        _asked(turn, item, level)
        _answer(turn, item, level, SUCCESS, _pin(turn, item, level))


def _asked(turn: Turn, item: Asked, level: str) -> None:
    told = (level, *((f"{item.for_s:g} s",) if item.for_s is not None else ())) if level else ()
    why = f"{item.by} requested {item.verb.value} {level}".rstrip()
    turn.record(facts.OperatorAsked(why, item.verb.value, told, item.uid))


def _pin(turn: Turn, item: Asked, level: str) -> str:
    """Pin a level. Returns the answer to the request."""
    place, remembered = turn.settings.place(level), known(turn.state)
    for_how = "until further notice" if item.for_s is None else f"for {item.for_s / 3600:.3g} h"
    text = ""
    if turn.settings.climbs and remembered is not None and place is not None:
        tenure = _tenure(turn)
        remembered = load.learned(remembered, at_s=turn.now_s, up_s=tenure.up_s, reading=None)
        text = encoded(load.placed(remembered, place))
        turn.memory = replace(turn.memory, tenure=replace(tenure, up_s=0.0))
    until_s = None if item.for_s is None else turn.now_s + item.for_s
    why = f"{item.by} pinned level {level} {for_how}"
    turn.record(facts.LevelPinned(why, level, item.by, until_s, text))
    _go(turn, level, why, item.by)
    against = cap(turn) if turn.settings.climbs else None
    although = f", although {against.why}" if against is not None and place is not None and place > against.level else ""
    return f"pinned {for_how}{although}"


def _unpin(turn: Turn, why: str, by: str) -> None:
    """The rule goes on from the level that was pinned; a config without one is in force again."""
    turn.record(facts.LevelUnpinned(why, turn.state.level, by))
    _go(turn, _wanted(turn), why, by)


def _answer(turn: Turn, item: Asked, level: str, code: int, text: str) -> None:
    turn.command(commands.Reply(item.request_id, ((level, code, text),)))
