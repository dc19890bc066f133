"""Collapsed entropy: a policy that no longer explores, although its return is not near its best.

The rule. A policy's entropy is given as a share of its maximum, ln(actions). Sick: the share is below `entropy_share`,
while the mean return is not near its best. Near means within a tenth of the [gain](falling.py); without a gain, no return
is near. Well: the share is at least twice `entropy_share`, or the return is near its best. In between, or where a value
is unknown (no policy, fewer than 100 games), the answer is neither.

Worked example, `entropy_share` 1 %, first mean 1, best 21: a share of 0.004 at a mean of 20 is well (the policy is sure,
and right); at a mean of 3 it is sick; 0.015 is neither; 0.03 is well.

Why not by entropy alone: the policy of a solved game has none left. Why a share: 0.02 nats are much for two actions and
almost nothing for 18.
"""

from __future__ import annotations

from typing import Final

from supervisor.policy.worker.health import HealthSettings, Returns

_NEAR: Final = 0.1
_AGAIN: Final = 2.0


def is_sick(settings: HealthSettings, returns: Returns, *, share: float | None) -> bool | None:
    """True: sick, False: well, None: neither, or not known."""
    if share is None:
        return None
    if share >= _AGAIN * settings.entropy_share:
        return False
    if not returns.known:
        return None
    lost = returns.lost()
    if lost is not None and lost <= _NEAR:
        return False
    return True if share < settings.entropy_share else None
