"""A worker that is slow or stands still: recorded with evidence, and restarted only if that lasts.

The rule. The usual rate of a training is the p90 of its own readings (the last 600, without slow times, so that slowness
does not become usual). It is recorded, and so it also holds for later attempts with this configuration and level. A rate
below `slow_ratio` of it for `slow_for_s` is SLOW: one incident, with evidence taken at that moment: stacks, threads, the
host's load and pressure, whether its cgroup is throttled. When the rate is above that again, this is recorded, and the
incident is over.

Nothing is killed. If the worker stays slow for `slow_restart_s`, it is asked to save and exit, and restarts, as long as

* no other program is slow: otherwise the box is the cause (heat, a noisy neighbour, a full disk), and a restart would
  only cost time; and
* it was not restarted for this within the last `slow_restart_every_s`, and not twice without effect (`intervention.py`).

Such a restart never counts as a death: nothing is lost, because the worker saved before it exited.

An attempt that was never as fast as earlier ones (CUDA was lost at the restart) is reported after `_ANEW` times
`slow_for_s`, because caches fill and graphs compile at first. An alert names the last warning in its output. An operator's
restart makes its rate the usual one.

**No step for long.** The rate is that of the newest steps. So it is unknown once no step came for `factor` x the largest
time between two steps so far, and at least `floor_s`; the time to the target is unknown too. The first five steps do not
count (compilation). As long as fewer than three are known, `coarse_floor_s` is the least time.

A program in training whose rate was known, and that is below its target, *stands still* then: its rate is zero. So after
`slow_for_s` it is SLOW, and after `slow_restart_s` it is asked to save and exit, also if only its log shows steps. Its own
`stall_timeout_s` takes the place of this. Other programs do not matter: a box that is slow still makes steps.

An evaluation looks the same. A later step proves nothing, because the next evaluation comes later, too. So the restart has
helped only if the same phase is passed: the next attempt begins before the step at which the steps of this one ended, goes
beyond it, and makes half as many steps more than this one without standing still; or it trains for a day. After two
restarts without that effect it is left alone, and an alert names `stall_timeout_s`. If steps come again by themselves
later than a restart was due, that becomes the largest time, and the count is over.

Worked examples. A script prints 5 steps a second, then spins in a collective whose peer has died. 30 s later its rate is
unknown, at 90 s it is SLOW, at 31.5 min it is restarted. Another one evaluates for an hour every 150 steps, and saves when
it is asked to leave: it is restarted at 150 and 300. The evaluation at 450 ends, and no later one is interrupted.

Why not kill at once: half of the usual rate still trains, and a restart cures few causes (a leak, a fragmented heap).
"""

from __future__ import annotations

from typing import Final

from supervisor.policy.worker.intervention import SLOW, STILL, Intervention, may_repeat, newest
from supervisor.policy.worker.stall import StallSettings
from supervisor.records import Record

RATES_NEEDED: Final = 60
RATES_KEPT: Final = 600
_EXEMPT_STEPS: Final = 5
STEPS_NEEDED: Final = 3
_ANEW: Final = 3.0
_NEW_PACE: Final = 1.25
_MORE: Final = 1.5
_DAY_S: Final = 86400.0


class Pace(Record):
    """The first and the newest known step of an attempt, when that came, the largest time between two, and how many came."""

    first: int | None = None
    step: int | None = None
    at_s: float = 0.0
    gap_s: float = 0.0
    count: int = 0

    def after(self, step: int | None, *, now_s: float, awake_at_s: float) -> Pace:
        """The pace after a look. `awake_at_s` is `at_s`, moved on by the time in which the daemon did not look."""
        if step is None or step == self.step:
            return self
        if self.step is None:
            return Pace(step, step, now_s)
        gap_s, count = now_s - awake_at_s, self.count + 1
        return Pace(self.first, step, now_s, gap_s if count == _EXEMPT_STEPS + 1 else max(self.gap_s, gap_s), count)

    def limit_s(self, settings: StallSettings, learned_s: float | None) -> float:
        """How long no step may come. `learned_s` is the largest healthy time without progress of earlier attempts."""
        floor_s = settings.coarse_floor_s if self.count < STEPS_NEEDED else settings.floor_s
        return max(floor_s, settings.factor * max(self.gap_s, learned_s or 0.0))


def usual(rates: tuple[float, ...], needed: int = RATES_NEEDED) -> float | None:
    """The p90 of its own readings; None while there are fewer than `needed`."""
    return sorted(rates)[int(0.9 * len(rates))] if len(rates) >= needed else None


def is_slow(settings: StallSettings, *, rate: float, usual: float) -> bool:
    """Whether `rate` is below `slow_ratio` of the usual. Example: usually 1,000 steps/s, now 400 steps/s: slow."""
    return rate < settings.slow_ratio * usual


def is_new_pace(rate: float, known: float | None) -> bool:
    """Whether the usual rate of an attempt is recorded. Example: 1,000 steps/s on record, now 1,100: no; 1,300: yes."""
    return known is None or rate > _NEW_PACE * known or rate < known / _NEW_PACE


def becomes_usual(settings: StallSettings, *, rate: float, known: float | None, slow_s: float, anew: bool) -> bool:
    """Whether a rate that fell within an attempt is the usual one of later attempts. `anew`: it waits for somebody.

    Example: an off-policy learner makes 2,000 steps/s until its first update, then 150. That is usual after
    `slow_restart_s`, so an attempt that restores its replay and begins with 150 is not slow.
    """
    lasts = slow_s >= settings.slow_restart_s and rate > 0 and not anew
    return lasts and known is not None and is_slow(settings, rate=rate, usual=known)


def after_s(settings: StallSettings, *, anew: bool) -> float:
    """How long a program is below its usual rate until this is recorded. `anew`: the attempt was never faster."""
    return _ANEW * settings.slow_for_s if anew else settings.slow_for_s


def restart_due(
    settings: StallSettings, *, now_s: float, since_s: float, others_slow: int, done: tuple[Intervention, ...], still: bool
) -> bool:
    """Whether slowness that began at `since_s` is worth a restart. `done` are the interventions so far."""
    before = newest(done, STILL if still else SLOW)
    if now_s - since_s < settings.slow_restart_s or not may_repeat(done, STILL if still else SLOW):
        return False
    soon = before is not None and now_s - before.at_s < settings.slow_restart_every_s
    return still or not (others_slow or soon)


def has_passed(before: Intervention, *, first: int | None, step: int | None, trained_s: float) -> bool:
    """Whether a restart for steps that did not grow has helped the next attempt, which began at step `first`."""
    if trained_s >= _DAY_S:
        return True
    if first is None or step is None or before.step is None:
        return False
    return first < before.step < step and step - first >= _MORE * (before.made or 0)
