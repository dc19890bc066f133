"""Falling return: the policy was much better before.

The rule. The gain is the best mean of 100 games less the first such mean. It counts only if it exceeds the spread (the
standard deviation) of single games, because chance alone does not reach that. Sick: the present mean is below the best by
more than `fall_share` of the gain. Well: by less than half of that. In between, where a value is unknown, or where the
gain is too small, the answer is neither. The illness is recorded after `fall_games` sick games in a row: a few bad games
are no fall.

Worked example, `fall_share` a half, first mean 1, best 21, spread 5, so the gain is 20: a mean of 12 is neither, 10 is
sick, and recorded after 1,000 such games; 15 is neither, 17 is well again.

Why relative to the gain: Pong's best may be -3, and half of -3 means nothing; the range of a game's scores is not known.
Why by games and not by time: the time that 100 games take differs by a factor of fifty between games.
"""

from __future__ import annotations

from supervisor.policy.worker.health import HealthSettings, Returns


def is_sick(settings: HealthSettings, returns: Returns) -> bool | None:
    """True: sick, False: well, None: neither, or not known."""
    lost = returns.lost()
    if lost is None:
        return None
    if lost > settings.fall_share:
        return True
    return False if lost < settings.fall_share / 2 else None
