"""A worker that is slow: recorded with evidence, and restarted only if it stays slow while no other program is slow.

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

Why not kill at once: half of the usual rate still trains, and a restart costs a minute and cures few causes (a leak, a
library's cache, a fragmented heap). Why not by CPU use: the most common kind of slowness uses 100 % CPU.
"""

from __future__ import annotations

from typing import Final

from supervisor.policy.worker.stall import StallSettings

RATES_NEEDED: Final = 60
RATES_KEPT: Final = 600


def usual(rates: tuple[float, ...]) -> float | None:
    """The p90 of its own readings; None while there are too few."""
    return sorted(rates)[int(0.9 * len(rates))] if len(rates) >= RATES_NEEDED else None


def is_slow(settings: StallSettings, *, rate: float, usual: float) -> bool:
    """Whether `rate` is below `slow_ratio` of the usual. Example: usually 1,000 steps/s, now 400 steps/s: slow."""
    return rate < settings.slow_ratio * usual


def restart_due(
    settings: StallSettings, *, now_s: float, since_s: float, others_slow: int, restarted_at_s: float | None
) -> bool:
    """Whether slowness that began at `since_s` is worth a restart. `restarted_at_s` is the time of the last such restart."""
    if now_s - since_s < settings.slow_restart_s or others_slow:
        return False
    return restarted_at_s is None or now_s - restarted_at_s >= settings.slow_restart_every_s
