"""Health: a training that makes progress but learns badly. The rules, their times, and the actions.

There are three illnesses. Each rule answers sick, well, or neither (in between or unknown: nothing changes, which is the
hysteresis). Losses that are not finite are a [divergence](divergence.py), which is judged sooner.

* **Exploding Q.** With rewards clipped to [-1, 1] and discount gamma no true value is beyond `bound` = 1 / (1 - gamma).
  Sick: the largest |Q| of the newest batch is beyond `q_factor` times the bound. Well: it is within the bound again.
  Example, gamma 0.99, `q_factor` 10: 60 is well, 140 (an overestimate, which Q-learning has by its nature) is neither,
  1,200 is sick.
* **Collapsed entropy.** Sick: a policy's entropy is below `entropy_share` of its maximum, ln(actions), while the mean
  return is not near its best. Near means within a tenth of the gain; without a gain, no return is near. Well: the share is
  at least twice `entropy_share`, or the return is near its best. Example, `entropy_share` 1 %, first mean 1, best 21: a
  share of 0.004 at a mean of 20 is well (the policy is sure, and right); at a mean of 3 it is sick; 0.015 is neither; 0.03
  is well.
* **Falling return.** The gain is the best mean of 100 games less the first such mean. It counts only if it exceeds the
  spread (the standard deviation) of single games, because chance alone does not reach that. Sick: the present mean is below
  the best by more than `fall_share` of the gain. Well: by less than half of that. Example, `fall_share` a half, first mean
  1, best 21, spread 5: a mean of 12 is neither, 10 is sick, 15 is neither, 17 is well again.

A fourth one is no figure of the training and is only reported: **off the GPU**. An attempt has trained for three times
`slow_for_s` and holds no GPU memory, although its GPU answers and earlier attempts with this configuration and level held
some. It ends once the attempt holds GPU memory. Example: CUDA cannot be initialised after a restart, so torch uses the CPU.

An episode begins at the first sick sample and ends at the first sample that is well. It is recorded once it has lasted
long enough: by the time of samples with progress (exploding, collapsed) or by games played (falling).

The action is set by `on_exploding`, `on_collapsed` and `on_falling`, or by the program's own `on_sick` for all three:

| action | does | by default for |
|---|---|---|
| `tell` | reported as an incident with its numbers; training continues | collapsed, falling |
| `rollback` | killed without a save; checkpoints since it was last well are set aside; another random seed | exploding |
| `new_seed` | saves, exits, and resumes from its newest checkpoint with another random seed | |
| `give_up` | saves, exits, FATAL: it starts again only after a change of its config or on an operator's request | |

Rollbacks and new seeds share one budget with those of divergences: `divergence.rollbacks` of them without a checkpoint
that was saved while well, beyond the step at which the illness was found. Then the program is given up. Nothing is
deleted.

Worked example, gamma 0.99 (|Q| is 100 at most), `rollbacks` 3: well up to step 80,000, |Q| is 1,200 at 95,000 and has
been beyond 1,000 for a minute: killed, checkpoints from 80,000 on are set aside, resumed at 70,000 with another seed.

Why entropy and return are only reported: both occur in trainings that recover, and a policy may be sure because it is
right. Weights that predict ten times the possible return are certainly wrong. Why no save before a rollback: that
checkpoint would be the newest, and would push out an older one that is still good. Why not by the loss: its size means
nothing by itself. Why relative to the gain: Pong's best may be -3, and half of -3 means nothing. Why by games and not by
time: the time that 100 games take differs by a factor of fifty between games.
"""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record

EXPLODING: Final = "exploding"
COLLAPSED: Final = "collapsed"
FALLING: Final = "falling"
NO_LOSS: Final = "no_loss"  # no finite one so far (`divergence.py`); it is only reported
OFF_GPU: Final = "off_gpu"
ILLNESSES: Final = (EXPLODING, COLLAPSED, FALLING)

TELL: Final = "tell"
ROLLBACK: Final = "rollback"
NEW_SEED: Final = "new_seed"
GIVE_UP: Final = "give_up"
ACTIONS: Final = (TELL, ROLLBACK, NEW_SEED, GIVE_UP)

_NEAR: Final = 0.1
_AGAIN: Final = 2.0

WORDS: Final = {
    EXPLODING: "its Q exploded", COLLAPSED: "its policy collapsed", FALLING: "its return fell",
    NO_LOSS: "no loss was finite yet", OFF_GPU: "it uses no GPU, as it did before",
}  # fmt: skip


class Returns(Record):
    """Mean returns of 100 games: the present, the best, the first; `spread` is that of the best's single games."""

    mean: float | None = None
    best: float | None = None
    first: float | None = None
    spread: float | None = None

    def lost(self) -> float | None:
        """The share of the gain (best - first) that is lost again; None: not known, or the gain is too small.

        Example: first 1, best 21, spread 5: 0.45 at a mean of 12.
        """
        if self.mean is None or self.best is None or self.first is None or self.spread is None:
            return None
        gained = self.best - self.first
        return (self.best - self.mean) / gained if gained > max(0.0, self.spread) else None

    @property
    def known(self) -> bool:
        return None not in (self.mean, self.best, self.first, self.spread)


class HealthSettings(Record):
    on_exploding: str = key(
        ROLLBACK, "action when a network's Q is far larger than the game's rewards allow", choices=ACTIONS
    )
    on_collapsed: str = key(TELL, "action when a policy has lost its entropy without a good return", choices=ACTIONS)
    on_falling: str = key(TELL, "action when the return is far below its own best", choices=ACTIONS)
    q_factor: float = key(
        10.0, "Q has exploded when it exceeds this times its possible maximum, 1 / (1 - gamma)", low=1, high=1e9
    )
    exploding_for_s: float = key(60.0, "Q has exploded when every sample for this long is above the limit of `q_factor`")
    entropy_share: float = key(
        0.01, "a policy has collapsed below this share of the entropy that it could have", low=0, high=0.5
    )
    collapsed_for_s: float = key(1800.0, "time with every sample below `entropy_share`, and the return not near its best")
    fall_share: float = key(
        0.5, "the return has fallen when it has lost more than this share of its gain", low=0.01, high=100
    )
    fall_games: int = key(1000, "number of games in a row for which the return must have fallen (`fall_share`)")


def exploding(settings: HealthSettings, *, q_max_abs: float | None, bound: float | None) -> bool | None:
    """True: sick, False: well, None: neither, or not known (no discount, a foreign script)."""
    if q_max_abs is None or bound is None:
        return None
    if q_max_abs > settings.q_factor * bound:
        return True
    return False if q_max_abs <= bound else None


def collapsed(settings: HealthSettings, returns: Returns, *, share: float | None) -> bool | None:
    """True: sick, False: well, None: neither, or not known (no policy, fewer than 100 games)."""
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


def falling(settings: HealthSettings, returns: Returns) -> bool | None:
    """True: sick, False: well, None: neither, or not known."""
    lost = returns.lost()
    if lost is None:
        return None
    if lost > settings.fall_share:
        return True
    return False if lost < settings.fall_share / 2 else None


def action(settings: HealthSettings, illness: str, own: str | None) -> str:
    """The action for an illness. `own` is the program's own setting; it overrides `[health]`."""
    if own is not None:
        return own
    return {EXPLODING: settings.on_exploding, COLLAPSED: settings.on_collapsed, FALLING: settings.on_falling}[illness]


def lasted(settings: HealthSettings, illness: str, *, for_s: float, games: int | None) -> bool:
    """Whether an episode has lasted long enough to be recorded. `games` were played in it; None: not known."""
    if illness == FALLING:
        return games is not None and games >= settings.fall_games
    return for_s >= (settings.exploding_for_s if illness == EXPLODING else settings.collapsed_for_s)
