"""Divergence: losses stay not finite. The program goes back to an older checkpoint with another random seed, a few times.

It is detected in two ways:

* The worker itself exits with code 65: a built-in worker does so after 100 updates in a row that were not finite. It
  applied and saved none of them.
* A worker continues to send beats, and its count of bad updates grows in every sample with progress for `nan_for_s`: the
  daemon ends it. One bad batch among good ones is not a divergence.

Rollback 1 sets aside the newest checkpoint and every one saved after the first bad update. The cause of a NaN is older than
the NaN, so the newest checkpoint is not trusted even if it is older than the first bad update. Rollback 2 and later set
aside every checkpoint from the step on that the diverged attempt had resumed from. So each goes at least one checkpoint
further back than the one before. Nothing is deleted: a checkpoint that is set aside stays in its directory as `.bad`, and
the last whole one is never set aside. The next attempt uses another random seed, computed from the configured one and the
number of rollbacks.

After `rollbacks` rollbacks without a checkpoint beyond the step of the divergence, the program is given up: FATAL, until
its config changes or an operator starts it. A checkpoint beyond that step resets the count.

Worked example, checkpoints at 70, 80, 90 and 100 thousand steps: fine up to 103,000, diverged at 104,000: 100,000 is set
aside, resumed at 90,000. Diverged at 103,000: 90,000 and the checkpoints written since are set aside, resumed at 80,000.
Healthy, and a checkpoint at 110,000: the count starts again.

Why not restart from the newest: the same weights and the same seed give the same NaN. Why give up, when crashes are retried
for ever: a full disk gets freed, a learning rate that diverges does not change.
"""

from __future__ import annotations

from supervisor.keys import key
from supervisor.records import Record


class DivergenceSettings(Record):
    rollbacks: int = key(3, "number of rollbacks to an older checkpoint before a diverged program is given up")
    nan_for_s: float = key(60.0, "a worker has diverged when its losses are not finite in every sample for this long")


class RollBack(Record):
    """Go back to before `from_step` (None: there is no checkpoint to set aside); `give_up`: do not restart again."""

    from_step: int | None
    give_up: bool
    why: str


def after(
    settings: DivergenceSettings, *, number: int, newest_step: int | None, fine_step: int | None,
    resumed_step: int | None, what: str = "diverged",
) -> RollBack:  # fmt: skip
    """The verdict after divergence `number` (>= 1) without a checkpoint beyond the first one's step.

    `newest_step` is the step of the newest checkpoint; up to `fine_step` no update was bad; `resumed_step` is the step at
    which the diverged attempt began; `what` names the event in the verdict's sentence.
    """
    if number > settings.rollbacks:
        return RollBack(None, give_up=True, why=f"{what} again after {settings.rollbacks} rollbacks")
    from_step = newest_step
    if newest_step is not None:
        bounds = (newest_step, fine_step, resumed_step if number > 1 else None)
        from_step = min(step for step in bounds if step)
    what = "there is no checkpoint yet" if from_step is None else f"checkpoints from step {from_step:,} on are set aside"
    return RollBack(
        from_step, give_up=False, why=f"rollback {number} of {settings.rollbacks}: {what}; restarts with another random seed"
    )


def persists(settings: DivergenceSettings, *, now_s: float, bad_since_s: float | None) -> bool:
    """Whether a worker has diverged: every sample with progress since `bad_since_s` reported more bad updates."""
    return bad_since_s is not None and now_s - bad_since_s >= settings.nan_for_s
