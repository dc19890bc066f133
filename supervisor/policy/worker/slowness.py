"""A worker that is slow or stands still: recorded with evidence, and restarted only if that lasts.

The rule. The usual rate of a training is the p90 of its own readings (the last 600, without slow times, so that slowness
does not become usual). A rate below `slow_ratio` of it for `slow_for_s` is SLOW: one incident, with evidence taken at
that moment: stacks, threads, the host's load and pressure, whether its cgroup is throttled. When the rate is above that
again, this is recorded, and the incident is over.

Nothing is killed. If the worker stays slow for `slow_restart_s`, it is asked to save and exit, and restarts, as long as

* no other program is slow: otherwise the box is the cause (heat, a noisy neighbour, a full disk), and a restart would
  only cost time; and
* it was not restarted for this within the last `slow_restart_every_s`: a restart that did not help will not help soon.

Such a restart never counts as a death: nothing is lost, because the worker saved before it exited.

Worked example: usually 1,000 steps/s, 400 from 10:00 on: SLOW at 10:01. Still slow at 10:31, the others are not: it
saves, exits and restarts. Slow again at noon: recorded, and left alone until 16:31.

**No step for long.** The rate is that of the newest steps. So it is unknown once no step came for `factor` x the largest
time between two steps so far, and at least `floor_s`; the time to the target is unknown too. The first five steps do not
count (compilation). As long as fewer than three are known, `coarse_floor_s` is the least time.

A program in training whose rate was known then *stands still*: its rate is zero, which is slower than slow. So after
`slow_for_s` it is SLOW, and after `slow_restart_s` it is asked to save and exit, also if only its log shows steps. Its own
`stall_timeout_s` takes the place of this. Other programs do not matter: a box that is slow still makes steps. If the next
attempt stands still beyond the step at which this one did, the restart has helped, and it is restarted again; at the same
step only after `slow_restart_every_s`. So an evaluation that takes an hour for the first time is ended once at most. Then
it is left alone, and its length becomes the largest time.

Worked examples: a script prints 5 steps a second, then spins in a collective whose peer has died. 30 s later its rate is
unknown, at 90 s it is SLOW, at 31.5 min it is restarted.

Why not kill at once: half of the usual rate still trains, and a restart costs a minute and cures few causes (a leak, a
library's cache, a fragmented heap). Why not by CPU use: the most common kind of slowness uses 100 % CPU.
"""

from __future__ import annotations

from typing import Final

from supervisor.policy.worker.stall import StallSettings
from supervisor.records import Record

RATES_NEEDED: Final = 60
RATES_KEPT: Final = 600
_EXEMPT_STEPS: Final = 5
STEPS_NEEDED: Final = 3


class Pace(Record):
    """The newest known step of an attempt, when it came, the largest time between two steps, and how many came."""

    step: int | None = None
    at_s: float = 0.0
    gap_s: float = 0.0
    count: int = 0

    def after(self, step: int | None, *, now_s: float, awake_at_s: float) -> Pace:
        """The pace after a look. `awake_at_s` is `at_s`, moved on by the time in which the daemon did not look."""
        if step is None or step == self.step:
            return self
        if self.step is None:
            return Pace(step, now_s)
        gap_s, count = now_s - awake_at_s, self.count + 1
        return Pace(step, now_s, gap_s if count == _EXEMPT_STEPS + 1 else max(self.gap_s, gap_s), count)

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


def restart_due(
    settings: StallSettings, *, now_s: float, since_s: float, others_slow: int, restarted_at_s: float | None,
    helped: bool = False,
) -> bool:  # fmt: skip
    """Whether slowness that began at `since_s` is worth a restart. `restarted_at_s` is the time of the last such restart.

    `helped`: it stands still beyond the step at which that restart ended it.
    """
    if now_s - since_s < settings.slow_restart_s or others_slow:
        return False
    return helped or restarted_at_s is None or now_s - restarted_at_s >= settings.slow_restart_every_s
