"""Counts of events of a program, over all of its attempts. No count ever falls: monitoring systems count increases.

Counts are part of the state, so they are in the journal's snapshots. Neither a restart of the daemon nor the archiving of
old facts lowers them. They come from facts alone: a report of a worker between two facts may be lost in a power cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.model import facts
from supervisor.records import replace


@dataclass(frozen=True)
class Counts:
    """`computed_steps` are all environment steps on record; `lost_steps` are those of them that were lost at a resume."""

    ends: dict[str, int] = field(default_factory=dict)  # of attempts, by cause (`policy/worker/diagnosis.py`)
    computed_steps: int = 0
    lost_steps: int = 0
    lost_unknown: int = 0  # number of resumes whose lost steps are unknown

    @property
    def kept_steps(self) -> int:
        """The computed steps that are not lost: no loss is larger."""
        return max(0, self.computed_steps - self.lost_steps)


def counted(counts: Counts, before: int | None, after: int | None, fact: facts.ProgramFact) -> Counts:
    """The counts after one more fact, which moved the program's position from step `before` to `after`; None: unknown."""
    if isinstance(fact, facts.Resumption):
        # Example: step 5,000 was known, 1,200 were lost, it resumes at 4,000: 200 steps beyond 5,000 were computed, too.
        # The first resume of a program without a known step adds no count: its checkpoints were made elsewhere.
        if before is None:
            return counts
        lost = fact.lost_steps or 0
        return replace(
            counts, computed_steps=counts.computed_steps + max(0, fact.step + lost - before),
            lost_steps=counts.lost_steps + lost, lost_unknown=counts.lost_unknown + (fact.lost_steps is None),
        )  # fmt: skip
    if isinstance(fact, facts.Exited):
        counts = replace(counts, ends={**counts.ends, fact.cause: counts.ends.get(fact.cause, 0) + 1})
    return advanced(counts, before, after)


def advanced(counts: Counts, before: int | None, after: int | None) -> Counts:
    """The counts after a change of position: a later position means that the steps in between were computed."""
    gain = (after or 0) - (before or 0)
    return replace(counts, computed_steps=counts.computed_steps + gain) if gain > 0 else counts
