"""When extralife may interfere with a program or its files again: one rule for every kind of intervention.

An intervention is what extralife does without being asked: it restarts a program that makes no steps, sets a checkpoint
aside, rolls back. The rule:

1. It rests on what extralife has observed itself: `evidence` states that in values.
2. What it replaces stays where it can be had again (`replaced`), and it never replaces what may be newer.
3. Its effect decides whether it has helped, and the effect is the opposite of what was wrong: a step beyond the one at
   which the program stopped, a checkpoint written, a finite loss. Time alone proves nothing.
4. After `MOST_FRUITLESS` interventions of one kind in a row without that effect there is no third one. A person gets an
   alert with the setting that changes this.

Worked example: a program makes no step for half an hour at step 500 and is restarted. It makes no step at 500 again and is
restarted once more. The third time it is left alone, and an alert names `stall_timeout_s`. At step 501 the count is over.
"""

from __future__ import annotations

from typing import Final

from supervisor.records import Record, replace

MOST_FRUITLESS: Final = 2


class Intervention(Record):
    """The newest one of a kind. `step`: where the program was; `fruitless`: so many in a row, this one included."""

    kind: str
    at_s: float
    evidence: str = ""
    replaced: str = ""
    step: int | None = None
    fruitless: int = 1


def newest(done: tuple[Intervention, ...], kind: str) -> Intervention | None:
    return next((each for each in done if each.kind == kind), None)


def may_repeat(done: tuple[Intervention, ...], kind: str) -> bool:
    before = newest(done, kind)
    return before is None or before.fruitless < MOST_FRUITLESS


def noted(done: tuple[Intervention, ...], new: Intervention) -> tuple[Intervention, ...]:
    """The record after one more intervention. It replaces the one before of its kind, and counts on from there."""
    before = newest(done, new.kind)
    new = new if before is None else replace(new, fruitless=before.fruitless + 1)
    return (*(each for each in done if each.kind != new.kind), new)


def helped(done: tuple[Intervention, ...], kind: str) -> tuple[Intervention, ...]:
    """The record once the effect of this kind was seen."""
    return tuple(each for each in done if each.kind != kind)
