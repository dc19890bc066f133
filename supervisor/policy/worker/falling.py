"""Falling return: the policy was much better before.

The rule. Gained is the best mean of 100 games less the first such mean, and counts once it is more than the spread (the
standard deviation) of single games: mere chance does not get there. Sick: the present mean is below the best by more than
`fall_share` of what was gained. Well: by less than half of that. In between, or where one of them is unknown, or with too
small a gain, the answer is neither. It is recorded after `fall_games` games in a row: a few bad games are no fall.

Worked example, a half, first mean 1, best 21, spread 5, so gained 20: a mean of 12 is neither, 10 is sick, and recorded
after 1,000 such games; 15 is neither, 17 is well again.

Why by what was gained: Pong's best may be -3, of which a half says nothing; the range a game's scores have is not known.
Why by games and not by time: what a hundred games are differs by a factor of fifty from game to game.
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
