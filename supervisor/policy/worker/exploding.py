"""Exploding Q: the network predicts far more than the game's rewards allow.

The rule. With rewards clipped to [-1, 1] and discount gamma no true value is beyond `bound` = 1 / (1 - gamma), which the
worker reports. Sick: the largest |Q| of the newest batch is beyond `q_factor` times the bound. Well: it is within the
bound again. In between, or where either is unknown (no discount, a foreign script), the answer is neither.

Worked example, gamma 0.99, so the bound is 100, and `q_factor` 10: 60 is well, 140 (an overestimate, which Q-learning has
by its nature) is neither, 1,200 is sick; 300 after that is neither, and 90 is well again.

Why not by growth: Q grows from 0 to its true size in every good training. Why not by a fixed number: 200 is impossible
with gamma 0.99 and right with 0.999.
"""

from __future__ import annotations

from supervisor.policy.worker.health import HealthSettings


def is_sick(settings: HealthSettings, *, q_max_abs: float | None, bound: float | None) -> bool | None:
    """True: sick, False: well, None: neither, or not known."""
    if q_max_abs is None or bound is None:
        return None
    if q_max_abs > settings.q_factor * bound:
        return True
    return False if q_max_abs <= bound else None
