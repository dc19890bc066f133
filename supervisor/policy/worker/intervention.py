"""When extralife may interfere with a program or its files again: one rule for every kind of intervention.

An intervention is what extralife does without being asked: it restarts a program that makes no steps, sets a checkpoint
aside, rolls back. The rule:

1. It rests on what extralife has observed itself: `evidence` states that in values.
2. What it replaces stays where it can be had again (`replaced`), and it never replaces what may be newer.
3. Its effect decides whether it has helped, and the effect is the opposite of what was wrong: a step beyond the one at
   which the program stopped, a checkpoint written, a finite loss. Time alone proves nothing.
4. After `MOST_FRUITLESS` interventions of one kind in a row without that effect there is no third one. A person gets an
   alert with the setting that changes this.

Once the effect was seen, the count is over; each kind says what that is (`slowness.py`, `stall.py`, `divergence.py`).
"""

from __future__ import annotations

from typing import Final

from supervisor.records import Record, replace

MOST_FRUITLESS: Final = 2

# Kinds: a restart of a program that makes no steps, or few; a kill for silence; a return to an older checkpoint.
STILL: Final = "still"
SLOW: Final = "slow"
SILENCE: Final = "silence"
ROLLBACK: Final = "rollback"


class Intervention(Record):
    """The newest one of a kind. `step`: the furthest at which one without effect was done; `made`: steps of that attempt.

    `fruitless`: so many in a row had no effect, this one included.
    """

    kind: str
    at_s: float
    evidence: str = ""
    replaced: str = ""
    step: int | None = None
    made: int | None = None
    fruitless: int = 1


def newest(done: tuple[Intervention, ...], kind: str) -> Intervention | None:
    return next((each for each in done if each.kind == kind), None)


def fruitless(done: tuple[Intervention, ...], kind: str) -> int:
    """How many of a kind in a row had no effect so far."""
    before = newest(done, kind)
    return 0 if before is None else before.fruitless


def may_repeat(done: tuple[Intervention, ...], kind: str) -> bool:
    return fruitless(done, kind) < MOST_FRUITLESS


def noted(done: tuple[Intervention, ...], new: Intervention) -> tuple[Intervention, ...]:
    """The record after one more intervention. It replaces the one before of its kind, and counts on from there."""
    before = newest(done, new.kind)
    if before is not None and before.fruitless:
        steps = [each.step for each in (before, new) if each.step is not None]
        new = replace(new, step=max(steps, default=None), fruitless=before.fruitless + 1)
    return (*(each for each in done if each.kind != new.kind), new)


def helped(done: tuple[Intervention, ...], kind: str) -> tuple[Intervention, ...]:
    """The record once the effect of this kind was seen: the count is over."""
    return tuple(replace(each, fruitless=0) if each.kind == kind else each for each in done)
