"""Whether a checkpoint that lies in a script's directory is one of this training, judged by the number in its name.

Others write there too: an older experiment, or the same script that somebody has started by hand. The rule compares the
number with the steps that the output has shown:

1. A checkpoint from before the first attempt is another training's if its number is a quarter beyond the configured target,
   or that which the output shows and a day old then: a bar may show an epoch of a training that was moved here.
2. The numbers *count the shown steps* if two checkpoints of an attempt that began from nothing each had between half and
   twice the step that was shown when they were written. If two have other numbers (epochs beside iterations), their numbers
   are no steps, and the step of a checkpoint is unknown.
3. Where they count the shown steps, and these do not begin anew in each epoch, a number beyond twice the steps of the
   training so far, plus twice the usual distance between two numbers, is another training's.

A foreign checkpoint is left where it is, and no start resumes from it. An alert names it. One exception: scripts that keep
the checkpoints with the largest numbers remove their own in favour of the foreign ones. If the directory changes twice and
none of this training stays, those of rule 1 are set aside.

Worked example: `m_40`, `m_80` and `m_120` appeared at steps 41, 80 and 122. At step 343 `m_10120` appears: 10,120 is more
than 2 x 343 + 2 x 40. The next attempt resumes from `m_320`. Another one: `epoch7.pt` at iteration 1,320 is at no step 7.

Why twice: a look comes seconds after a save, and some scripts print a step every minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from supervisor.records import Record, replace

_FACTOR: Final = 2
_LEAST_SHOWN: Final = 10  # below this, a rounding decides
_NEEDED: Final = 2
_OLD_S: Final = 86_400.0
_OVERSHOOT: Final = 1.25  # of the last rollout


class Shown(Record):
    """What the output of a program has shown. None: nothing yet.

    `before`: the steps of earlier attempts; `first` and `steps`: the first and the newest one of this attempt.
    `sightings`: (number, whether it fits the step that was shown then) of an attempt that began from nothing.
    `counts_steps`: whether the numbers count the shown steps.
    """

    before: int = 0
    first: int | None = None
    steps: int | None = None
    target: int | None = None
    configured: bool = False  # the target is that of the configuration
    sightings: tuple[tuple[int, bool], ...] = ()
    counts_steps: bool | None = None

    @property
    def total(self) -> int | None:
        """The most that the training can have come to: a script counts on, or begins anew in each attempt."""
        if self.steps is None:
            return self.before or None
        return self.steps if self.first is not None and 2 * self.first >= self.before else self.before + self.steps

    def begins(self) -> Shown:
        """The next attempt begins."""
        return replace(self, before=self.total or 0, first=None, steps=None, sightings=())

    def saw(self, number: int, low: int, high: int) -> Shown:
        """A checkpoint with this number was written between these two shown steps."""
        if self.counts_steps is not None or low < _LEAST_SHOWN or number in dict(self.sightings):
            return self
        seen = (*self.sightings, (number, low <= _FACTOR * number and number <= _FACTOR * high))[-_NEEDED:]
        fits = {each for _, each in seen}
        return replace(self, sightings=seen, counts_steps=fits.pop() if len(seen) == _NEEDED and len(fits) == 1 else None)

    def limit(self, numbers: Sequence[int]) -> int | None:
        """The largest number that may be of this training; None: not known. `numbers`: all that lie there."""
        if not self.counts_steps or self.total is None:
            return None
        near = sorted(each for each in numbers if each <= _FACTOR * self.total)
        gap = median(later - sooner for sooner, later in pairwise(near)) if len(near) > 1 else 0
        return int(_FACTOR * (self.total + gap))

    def is_older(self, number: int | None, before_s: float) -> bool:
        """Whether it is of an older experiment; it was written so long before the first attempt."""
        beyond = number is not None and self.target is not None and number > _OVERSHOOT * self.target
        return beyond and self.counts_steps is not False and before_s > (0.0 if self.configured else _OLD_S)

    def foreign(self, number: int, limit: int | None, before_s: float) -> str:
        """Why the checkpoint with this number is another training's, as a clause; empty: it may be this one's."""
        if self.is_older(number, before_s):
            return f"its number {number:,} is beyond the target of {self.target:,}, and it is older than the first attempt"
        if limit is None or number <= limit:
            return ""
        return f"its number is {number:,}, and this training has come to {self.total or 0:,}: another process writes there"
