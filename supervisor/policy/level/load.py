"""Which level to run at: the rule keeps a home level, and now and then tries the next level up.

The rule wants the level with the greatest *worth* (`policy/level/worth.py`: speed, times the share that reboots leave of
it). The speed and the reboot rate of a level are unknown until it has run. So:

1. **Try** the next level up from home when it promises to be faster (by measurement, or by the usual gain of a step up).
   A trial begins after some undisturbed minutes at home, once the level's cool-down is over and no pre-check vetoes it.
   Never two levels at once.
2. A trial lasts `trial_s`, or `climb_s` while no reboot has ever counted against the load on this box. It **passes** when
   the level is then worth more than home. It ends early when the level turns out no faster. It continues while the
   level's recorded reboots outweigh its speed: if the record predicts three reboots and none happens, the record is
   refuted.
3. A **reboot in a trial** ends it: back home. The level rests for two hours, then 4, 8, 16, and so on up to a day.
4. A **reboot at home** steps back only when a lower level is *worth* more. One reboot in six hours costs less than a level.
5. **The box changes**: two quick reboots at a level with a clean record outweigh the record (a CUSUM on eight times its
   rate).
6. **Look down**: a level below that may be worth more is tried in the same way, at most every four hours. Where readings
   scatter (`policy/level/speeds.py`), the level above has its trial before the level below.

Worked example, a box that reboots after 17 min at heavy: it starts at light and climbs a level every 20 min. It tries heavy
and reboots: back to the level below, heavy rests 2 h, is tried again, reboots, rests 4 h ... If the fault of the box is
repaired, the next of those trials shows it, within a day.

Why not "stop at the first reboot": that is a ratchet. Every box has reboots that the load does not cause, and each would
cost a level for ever. Why not a randomized bandit: it keeps the same amount of work, with twice the reboots.

The rule is pure and deterministic: time is an argument (journal time, which never steps), and all state is in
`LoadState`. A level is its index on the ladder, 0 the lightest. While the operator has pinned a level, the core calls
only `learned`, and `placed` when the pin ends: measurements continue, and the rule decides nothing.

Why no separate record for bad hours of the day: it keeps 0.2 % more work on ten simulated boxes, one of which reboots in the
same ten hours of each day, and under 0.1 % more on boxes drawn at random (`bench/load.py`). Why no step to the lowest level
after several reboots in a row: it keeps no more work, because two quick reboots outweigh a record already.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from supervisor.formats import span
from supervisor.keys import key
from supervisor.policy.level import speeds as pace
from supervisor.policy.level.speeds import Speeds
from supervisor.policy.level.worth import Costs, kept, reboot_rate
from supervisor.records import Record

FIXED: Final = "fixed"
CLIMB: Final = "climb"
DEFAULT_NAMES: Final = ("light", "3", "medium", "5", "6", "heavy")
_MOST_DOUBLINGS: Final = 40
_LOOK_S: Final = 4 * 3600.0  # between two trials of the level below
_MARGIN: Final = 0.02


class LoadSettings(Record):
    """`[load]` in the config, and the names of the ladder's levels."""

    mode: str | None = key(
        None, "`fixed`: the configured level; `climb`: the level that keeps the most work on this box, found by trials",
        choices=(FIXED, CLIMB), unset="`climb` where the file has [levels], else `fixed`",
    )  # fmt: skip
    start: str | None = key(
        None, 'level that a new box begins with; with `mode = "fixed"`: the level that it keeps', unset="the lowest"
    )
    rotation_h: float = key(
        0.0, "hours after which a program gives its slot to an equal one that has waited as long; 0: never", low=0, high=8784
    )
    stagger_s: float = key(
        2.0, "time between two starts after a change of level, so that games are built one by one; not for jobs",
        low=0, high=600,
    )  # fmt: skip
    review_s: float = key(600.0, "time of training between two reviews of the level in force")
    reboot_penalty_min: float = key(
        7.0,
        "minutes of training that a reboot costs you, beside downtime and lost work: your preference",
        low=0, high=1440,
    )  # fmt: skip
    dwell_s: float = key(1200.0, "time without change or reboot before the next higher level is tried")
    trial_s: float = key(1800.0, "least time of a trial")
    climb_s: float = key(600.0, "least time of a trial on a box that has never rebooted under load")
    cool_s: float = key(
        7200.0, "wait before a level whose trial ended in a reboot is tried again; doubled after each further one",
        up_to="cool_max_s",
    )  # fmt: skip
    cool_max_s: float = key(24 * 3600.0, "longest wait before a level whose trial ended in a reboot is tried again")
    rest_s: float = key(2 * 3600.0, "wait before a level that was not faster is tried again")
    names: tuple[str, ...] = DEFAULT_NAMES

    @property
    def penalty_s(self) -> float:
        return self.reboot_penalty_min * 60.0


class Cap(Record):
    """The highest level that the pre-checks allow now, and why no higher one."""

    level: int
    why: str = ""


class LevelKnown(NamedTuple):
    up_s: float = 0.0
    reboots: float = 0.0  # sum of weights; belongs to the present record, as `up_s` does
    reboots_ever: float = 0.0
    failures: int = 0  # trials that ended in a reboot since the level last passed one
    next_trial_s: float = 0.0
    next_look_s: float = 0.0  # earliest trial from the level above (`_look_down`)
    shortest_s: float | None = None  # the shortest run at this level that a reboot has ended


class RebootCluster(NamedTuple):
    """Reboots in quick succession at a level whose record predicted fewer."""

    level: int = 0
    alarm: float = 0.0
    reboots: float = 0.0
    up_s: float = 0.0


class LoadState(NamedTuple):
    known: tuple[LevelKnown, ...]
    speeds: Speeds
    home: int = 0
    trial: int | None = None
    stretch_s: float = 0.0  # training since the last reboot or change of level
    at_s: float = 0.0
    cluster: RebootCluster = RebootCluster()

    @property
    def level(self) -> int:
        """The level in force."""
        return self.home if self.trial is None else self.trial


class LoadVerdict(NamedTuple):
    """The level to run at from now on, whether it is on trial, and the reason."""

    level: int
    trial: bool
    why: str


Step = tuple[LoadState, LoadVerdict]


def begin(levels: int, start: int = 0, *, at_s: float = 0.0) -> LoadState:
    """The state for a new box."""
    return LoadState(known=(LevelKnown(),) * levels, speeds=pace.unread(levels), home=start, at_s=at_s)


def learned(state: LoadState, *, at_s: float, up_s: float, reading: float | None) -> LoadState:
    """The state after `up_s` seconds of training at the level in force; the rule decides nothing."""
    every, speeds, home, trial, stretch_s, before_s, cluster = state
    level = home if trial is None else trial
    now_s = max(before_s, at_s)
    for_s = now_s - before_s
    speeds = pace.read(speeds, level, reading, for_s) if reading and reading > 0.0 else pace.aged(speeds, for_s)
    known = every[level]
    if cluster.alarm > 0.0 and cluster.level == level:
        alarm = max(0.0, cluster.alarm - 7.0 * up_s * reboot_rate(known.reboots, known.up_s))
        cluster = RebootCluster(level, alarm, cluster.reboots, cluster.up_s + up_s) if alarm > 0.0 else RebootCluster()
    ran = LevelKnown(known.up_s + up_s, *known[1:])
    levels = list(every)
    levels[level] = ran
    every, stretch_s = tuple(levels), stretch_s + up_s
    return LoadState(every, speeds, home, trial, stretch_s, now_s, cluster)


def placed(state: LoadState, level: int) -> LoadState:
    """Home is `level` from now on, because a pin begins or ends. No level is charged."""
    if level == state.home and state.trial is None:
        return state
    return state._replace(home=level, trial=None, stretch_s=0.0)


def reviewed(
    settings: LoadSettings, costs: Costs, state: LoadState, *, at_s: float, up_s: float, reading: float | None, cap: Cap
) -> Step:
    """The level to continue at, after some minutes of training.

    `up_s` is the time that workers trained at the level in force since the last call of `reviewed` or `rebooted`.
    `reading` is the kept throughput in that time (None: not known). `cap` is the highest level that the pre-checks allow.
    """
    state = learned(state, at_s=at_s, up_s=up_s, reading=reading)
    if state.level > cap.level:
        state = state._replace(home=min(state.home, cap.level), trial=None, stretch_s=0.0)
        return _say(state, f"down to {settings.names[cap.level]}: {cap.why}")
    if state.trial is None:
        return _at_home(settings, costs, state, cap)
    home = state.home
    state, verdict = _in_trial(settings, costs, state, state.trial)
    if state.home == home:
        return state, verdict
    state, onward = _at_home(settings, costs, state, cap)
    return state, onward if not onward.trial else onward._replace(why=f"{verdict.why}; {onward.why}")


def rebooted(
    settings: LoadSettings, costs: Costs, state: LoadState, *, at_s: float, up_s: float, weight: float,
    charged: int | None = None, cap: Cap | None = None,
) -> Step:  # fmt: skip
    """The level to continue at, after a reboot of the host.

    `weight` is the share of the reboot that counts against the load (`policy/level/attribution.py`). `charged` is the level
    that it counts against (None: the level in force). `up_s` is as in `reviewed`. `reviewed` handles vetoes; here `cap` can
    only lower the level.
    """
    level = state.level if charged is None else charged
    ran_s = state.stretch_s + up_s
    state = learned(state, at_s=at_s, up_s=up_s, reading=None)._replace(stretch_s=0.0)
    if weight <= 0.0:
        why = f"{settings.names[state.level]} stays: the reboot does not count"
        return _capped(settings, cap, *_say(state, why))
    state = _charged(state, level, weight, ran_s)
    # The first run at a new home ends in a reboot within `trial_s`: then its short trial proved too little.
    if (
        state.trial is None
        and level == state.home
        and state.home > 0
        and ran_s < settings.trial_s
        and state.known[state.home].up_s <= ran_s
    ):
        state = state._replace(home=level - 1)
    if state.trial is not None or level > state.home:
        return _capped(settings, cap, *_failed(settings, state, level, at_s, ran_s))
    return _capped(settings, cap, *_step_back(settings, costs, state, at_s))


# --- what is known -------------------------------------------------------------------------------------------------------


def rate(state: LoadState, level: int) -> float:
    """Reboots per second of training at a level."""
    known = state.known[level]
    return reboot_rate(known.reboots, known.up_s)


def advantage(settings: LoadSettings, costs: Costs, state: LoadState, level: int, than: int, doubt: float = 0.0) -> float:
    """How much more `level` is worth than `than`, as a logarithm; the speed ratio counts `doubt` standard errors better."""
    mean, error = pace.gain(state.speeds, level, than)
    safe = _safe(settings, costs, state, level) - _safe(settings, costs, state, than)
    return mean + doubt * error + safe


class LevelShown(NamedTuple):
    """A level relative to the home level. None: unknown."""

    speed: float | None
    speed_error: float | None
    worth: float
    next_trial_s: float | None


def shown(settings: LoadSettings, costs: Costs, state: LoadState) -> tuple[LevelShown, ...]:
    """The ladder, as `level show` prints it beside what is known of each level."""
    lines = []
    for level, known in enumerate(state.known):
        mean, error = pace.gain(state.speeds, level, state.home)
        worth = math.exp(advantage(settings, costs, state, level, state.home))
        next_s = known.next_trial_s if level > state.home and known.next_trial_s > state.at_s else None
        readings = state.speeds.readings[level]
        lines.append(LevelShown(math.exp(mean) if readings else None, error if readings else None, worth, next_s))
    return tuple(lines)


# --- at a review ---------------------------------------------------------------------------------------------------------


def _in_trial(settings: LoadSettings, costs: Costs, state: LoadState, level: int) -> Step:
    known, name = state.known[level], settings.names[level]
    needed_s = settings.trial_s if any(each.reboots_ever for each in state.known) else settings.climb_s
    ran = span(state.stretch_s)
    if state.stretch_s < needed_s:
        return _say(state, f"{name} on trial for {ran}, {span(needed_s)} are needed")
    mean, error = pace.gain(state.speeds, level, state.home)
    if mean + error < _MARGIN:
        state = _with(state, level, known._replace(next_trial_s=state.at_s + settings.rest_s))
        state = state._replace(trial=None, stretch_s=0.0)
        gain, rest = f"{100 * math.expm1(mean):+.0f} %", span(settings.rest_s)
        return _say(state, f"back to {settings.names[state.home]}: {name} is no faster ({gain}); tried again in {rest}")
    doubt = 0.0 if known.failures else 1.0
    better = advantage(settings, costs, state, level, state.home, doubt)
    refuted = rate(state, level) * state.stretch_s > 3.0
    if better <= _MARGIN and not refuted:
        return _say(state, f"{name} on trial for {ran}: its reboots so far still outweigh its speed")
    if refuted:
        known = known._replace(reboots=0.0, up_s=state.stretch_s)
    state = _with(state, level, known._replace(failures=0))
    state = state._replace(home=level, trial=None)
    return _say(state, f"{name} passed its trial: {ran} without a reboot")


def _at_home(settings: LoadSettings, costs: Costs, state: LoadState, cap: Cap) -> Step:
    home, name = state.home, settings.names[state.home]
    if _settles(settings, state):
        return _say(state, f"{name} stays: too soon after a change or a reboot for a trial")
    bar = state.speeds.mean[home] + _MARGIN + _safe(settings, costs, state, home)
    lower = _best_lower(settings, costs, state, bar)
    if lower is not None:
        known = state.known[lower + 1]
        state = _with(state, lower + 1, known._replace(next_trial_s=max(known.next_trial_s, state.at_s + settings.rest_s)))
        state = state._replace(home=lower, stretch_s=0.0)
        return _say(state, f"back to {settings.names[lower]}: by all measurements it is worth more than {name}")
    higher = home + 1
    if higher >= len(state.known):
        return _look_down(settings, costs, state, bar, f"{name} stays: it is the highest level")
    if higher > cap.level:
        return _look_down(settings, costs, state, bar, f"{name} stays: no trial of {settings.names[higher]} while {cap.why}")
    wait_s = state.known[higher].next_trial_s - state.at_s
    if wait_s > 0.0:
        why = f"{name} stays: {settings.names[higher]} is tried again in {span(wait_s)}"
        if wait_s <= settings.trial_s and pace.scatters(state.speeds):  # else noise alone could lead down
            return _say(state, why)
        return _look_down(settings, costs, state, bar, why)
    mean, error = pace.gain(state.speeds, higher, home)
    if mean + error < _MARGIN:
        why = f"{name} stays: {settings.names[higher]} is not expected to be faster ({100 * math.expm1(mean):+.0f} %)"
        return _look_down(settings, costs, state, bar, why)
    state = state._replace(trial=higher, stretch_s=0.0)
    return _say(state, f"trying {settings.names[higher]}: expected {100 * math.expm1(mean):+.0f} % speed")


def _settles(settings: LoadSettings, state: LoadState) -> bool:
    """Whether the undisturbed time at home is still too short to leave it."""
    stretch_s = state.stretch_s
    if stretch_s >= settings.climb_s and stretch_s >= settings.dwell_s:
        return False
    climbs = not any(each.reboots_ever for each in state.known)
    return stretch_s < (settings.climb_s if climbs else settings.dwell_s)


def _safe(settings: LoadSettings, costs: Costs, state: LoadState, level: int) -> float:
    """The logarithm of the share that reboots leave of a level's speed: 0.0 for a level that never reboots."""
    return math.log(kept(rate(state, level), costs, settings.penalty_s))


def _best_lower(settings: LoadSettings, costs: Costs, state: LoadState, bar: float) -> int | None:
    """The measured lower level with the greatest worth, if that is above `bar`; speeds count one standard error lower."""
    mean, best = state.speeds.mean, None
    if not state.home or max(mean[: state.home]) <= bar:
        return None  # all lower levels are slower by more than the reboots at home cost: the usual case, and a cheap test
    for lower in range(state.home):
        if mean[lower] <= bar or not state.speeds.readings[lower]:
            continue
        worth = mean[lower] - pace.gain(state.speeds, lower, state.home)[1] + _safe(settings, costs, state, lower)
        if worth > bar:
            best, bar = lower, worth
    return best


def _look_down(settings: LoadSettings, costs: Costs, state: LoadState, bar: float, why: str) -> Step:
    """Stay, unless the level below may be worth more: then it is tried, as a higher level is in a trial."""
    home, lower = state.home, state.home - 1
    if lower < 0 or state.known[lower].next_look_s > state.at_s:
        return _say(state, why)
    fastest = state.speeds.mean[lower] + pace.gain(state.speeds, lower, home)[1]
    if fastest + _safe(settings, costs, state, lower) <= bar:
        return _say(state, why)
    state = _with(state, lower, state.known[lower]._replace(next_look_s=state.at_s + _LOOK_S))
    known = state.known[home]
    state = _with(state, home, known._replace(next_trial_s=max(known.next_trial_s, state.at_s + settings.trial_s)))
    state = state._replace(home=lower, stretch_s=0.0)
    return _say(state, f"trying {settings.names[lower]}: it may be worth more than {settings.names[home]}")


# --- after a reboot ------------------------------------------------------------------------------------------------------


def _charged(state: LoadState, level: int, weight: float, ran_s: float) -> LoadState:
    known = state.known[level]
    shortest = ran_s if known.shortest_s is None else min(known.shortest_s, ran_s)
    known = known._replace(reboots=known.reboots + weight, reboots_ever=known.reboots_ever + weight, shortest_s=shortest)
    cluster = state.cluster if state.cluster.level == level and state.cluster.alarm > 0.0 else RebootCluster(level)
    cluster = cluster._replace(alarm=cluster.alarm + weight * math.log(8.0), reboots=cluster.reboots + weight)
    if cluster.alarm > 4.0:
        recent = cluster.reboots - 1.0
        if reboot_rate(recent, cluster.up_s) > reboot_rate(known.reboots, known.up_s):
            known = known._replace(reboots=recent, up_s=cluster.up_s)
        cluster = RebootCluster()
    return _with(state, level, known)._replace(cluster=cluster)


def _failed(settings: LoadSettings, state: LoadState, level: int, at_s: float, ran_s: float) -> Step:
    known = state.known[level]
    cool_s = min(settings.cool_max_s, settings.cool_s * 2.0 ** min(known.failures, _MOST_DOUBLINGS))
    state = _with(state, level, known._replace(failures=known.failures + 1, next_trial_s=at_s + cool_s))
    state = state._replace(trial=None)
    name, times = settings.names[level], known.failures + 1
    told = f"{name} failed its trial after {span(ran_s)} ({times} in a row)"
    return _say(state, f"back to {settings.names[state.home]}: {told} and is tried again in {span(cool_s)}")


def _step_back(settings: LoadSettings, costs: Costs, state: LoadState, at_s: float) -> Step:
    home, name = state.home, settings.names[state.home]
    worths = [advantage(settings, costs, state, lower, home) for lower in range(home)]
    best = max(range(home), key=lambda lower: worths[lower], default=home)
    if best == home or worths[best] <= _MARGIN / 2.0:
        return _say(state, f"{name} stays: no lower level is worth more, even with this reboot")
    for level in range(best + 1, home + 1):
        known = state.known[level]
        cool_s = min(settings.cool_max_s, settings.cool_s * 2.0 ** min(known.failures, _MOST_DOUBLINGS))
        state = _with(state, level, known._replace(next_trial_s=max(known.next_trial_s, at_s + cool_s)))
    state = state._replace(home=best)
    lasts = f"one reboot in {span(1.0 / rate(state, home))} at {name}"
    more = f"{100 * math.expm1(min(worths[best], 5.0)):.0f} %"
    return _say(state, f"back to {settings.names[best]}: with {lasts} it is worth {more} more")


def _capped(settings: LoadSettings, cap: Cap | None, state: LoadState, verdict: LoadVerdict) -> Step:
    if cap is None or verdict.level <= cap.level:
        return state, verdict
    state = state._replace(home=min(state.home, cap.level), trial=None)
    return _say(state, f"down to {settings.names[state.home]}: {cap.why}")


def _with(state: LoadState, level: int, known: LevelKnown) -> LoadState:
    return state._replace(known=(*state.known[:level], known, *state.known[level + 1 :]))


def _say(state: LoadState, why: str) -> Step:
    home, trial = state.home, state.trial
    return state, LoadVerdict(home if trial is None else trial, trial is not None, why)
