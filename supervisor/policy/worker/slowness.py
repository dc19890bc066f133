"""A worker that is slow: recorded with evidence, and restarted only if it stays slow while no other program is.

The rule. A training's usual rate is the p90 of its own readings (the last 600, without slow times, so that
slowness does not become usual). Below `slow_ratio` of it for `slow_for_s`: SLOW, one incident, with evidence taken at
that moment: stacks, threads, the host's load and pressure, whether its cgroup is throttled. Back above: recorded, and over.

Nothing is killed. If it lasts for `slow_restart_s`, the worker is asked to save and exit, and restarts, as long as

* no other program is slow: then it is the box (heat, a noisy neighbour, a full disk), and a restart would only cost; and
* it was not restarted for this within the last `slow_restart_every_s`: a restart that did not help will not help soon.

This never counts as a death: nothing is lost, because the worker saved before it exited.

Worked example: usually 1,000 steps/s, 400 from 10:00 on: SLOW at 10:01. Still slow at 10:31, the others are not: saves,
exits, restarts. Slow again at noon: recorded, and left alone until 16:31.

Why not kill at once: half of the usual is still half, and a restart costs a minute and repairs few reasons (a leak, a
library's cache, a fragmented heap). Why not by CPU use: a crawl at 100 % CPU is the common one.
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
    """Whether a spell that began at `since_s` is worth a restart. `restarted_at_s` is when one was last tried."""
    if now_s - since_s < settings.slow_restart_s or others_slow:
        return False
    return restarted_at_s is None or now_s - restarted_at_s >= settings.slow_restart_every_s
