"""Divergence: losses stay not finite. The program goes back to an older checkpoint with another random seed, a few times.

It is detected in two ways:

* The worker itself exits with code 65: a built-in worker does so after 100 updates in a row that were not finite. It
  applied and saved none of them.
* A worker makes progress, and every loss that was read for `nan_for_s` is not finite, at least two of them: the daemon
  ends it. A finite loss begins that time anew; a look that reads no loss does not. So one bad batch among good ones is
  not a divergence, and neither load nor the order of readings decides.

A divergence needs a finite loss before it, in the same attempt. An off-policy learner prints `loss=nan` until its first
update: that is "not yet", and it is never rolled back. After `_NOT_YET` times `nan_for_s` this is reported with an alert.

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

Why not restart from the newest: the same weights and the same seed give the same NaN.
"""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record

_LEAST_BAD: Final = 2
_NOT_YET: Final = 5.0


class DivergenceSettings(Record):
    rollbacks: int = key(3, "number of rollbacks to an older checkpoint before a diverged program is given up")
    nan_for_s: float = key(60.0, "a worker has diverged when all its losses after a finite one are not finite for this long")


class Losses(Record):
    """The losses of an attempt so far: the newest `bad` are not finite, the first of them at `since_s`.

    `finite`: a finite one was read before. `fine_step`: the newest known step until then.
    """

    finite: bool = False
    fine_step: int | None = None
    bad: int = 0
    since_s: float | None = None

    def by_beat(
        self, *, bad: int, updates: float, loss: float | None, loss_before: float | None, at_s: float, step: int | None
    ) -> Losses:
        """The losses after a beat with so many more updates, `bad` of them not finite, and its newest finite loss.

        Only a beat without a loss shows by its counts that one was finite: they may be of different moments.
        """
        finite = updates > bad if loss is None and loss_before is None else loss is not None and loss != loss_before
        return self.after(finite=finite, bad=bad, at_s=at_s, step=step)

    def after(self, *, finite: bool, bad: int, at_s: float, step: int | None) -> Losses:
        """The losses after a reading: whether it shows a finite one, and how many bad ones came after that."""
        known = Losses(True, step) if finite else self
        since_s = at_s if known.since_s is None else known.since_s
        return Losses(known.finite, known.fine_step, known.bad + bad, since_s) if bad else known


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


def has_diverged(settings: DivergenceSettings, losses: Losses, now_s: float) -> bool:
    """Whether a worker that makes progress now has diverged."""
    return losses.finite and _are_bad_for(losses, now_s, settings.nan_for_s)


def never_finite(settings: DivergenceSettings, losses: Losses, now_s: float) -> bool:
    """Whether no loss of a worker was finite for so long that this is reported."""
    return not losses.finite and _are_bad_for(losses, now_s, _NOT_YET * settings.nan_for_s)


def _are_bad_for(losses: Losses, now_s: float, for_s: float) -> bool:
    return losses.since_s is not None and losses.bad >= _LEAST_BAD and now_s - losses.since_s >= for_s
