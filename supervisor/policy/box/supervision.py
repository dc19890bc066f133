"""The answer when a thread of the daemon fails, or when nobody has reported the end of a worker.

A failed turn of a thread is tried again after a pause. The rule for work that has failed twice in a row, first match wins:

1. A vital thread has ended, or has failed for more than two minutes: supervision cannot be trusted any more. The daemon
   ends in order and starts its program anew. Workers run on, and the new image adopts them.
2. Otherwise: trouble, shown in `status` and /healthz until the work succeeds again.

Vital are the threads that report ends and readings. Why two minutes: a lack of descriptors or memory mostly passes within
one.

Worked example: another program of this user takes all descriptors for 15 s. The end of `a` cannot be read at 0.0 s and at
0.1 s: trouble. It is read at 16 s, 1 s after the lack has ended: `a` starts again, and the trouble is over.

A live attempt without a process (`unreported`) is one whose process was gone in two looks of the deciding thread in a row,
some seconds apart, and whose end no thread is reporting. Why two looks: an end that has just happened is being reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from supervisor.formats import span
from supervisor.records import Record

_TRUST_S: Final = 120.0


class Failing(Record):
    """Work of the daemon that failed at least twice in a row. `for_s` None: its thread has ended."""

    name: str
    error: str
    for_s: float | None
    vital: bool = False


def distrust(failing: Iterable[Failing]) -> str:
    """Why supervision cannot be trusted any more; empty: it can."""
    for each in failing:
        if each.vital and (each.for_s is None or each.for_s > _TRUST_S):
            how = "has ended" if each.for_s is None else f"has failed for {span(each.for_s)} ({each.error})"
            return f"its thread {each.name} {how}: extralife starts anew, and adopts its workers"
    return ""


def unreported(before: frozenset[str], now: frozenset[str]) -> frozenset[str]:
    """The tokens of the attempts whose ends must be reported now. Example: before {p}, now {p, q}: p."""
    return before & now
