"""Which of the checkpoints that a script writes itself is the newest whole one, and what is doubtful beside it.

The rule:

1. Order: by step where at least one has a step (those without one come last), among equal steps by the time of writing.
   Without any step: by the time of writing alone.
2. A known format is *whole* or *torn*, whatever its age (`adapters/process/whole_files.py`); so is what the program's own
   `checkpoint_check` says.
3. Any other file or directory is whole once it is settled. While the program runs: the same size at two looks, and not
   written for 5 s. After its end: last written 5 s before an end by a signal or an error, or 60 s before a reboot. After an
   orderly end nobody was in the middle of writing, so all of them are whole. What is not settled is *doubtful*.
4. The newest whole one is what the next attempt goes on from. It is *sure* if nothing newer is doubtful or unreadable.

Worked example, newest first: `step=900.pt` torn, `step=800.pt` whole, `step=700.pt` not looked at. The newest whole one is
800, 900 is set aside if it kills often enough (`torn.py`), and the next attempt is known to begin at step 800.

Why not the time of writing alone: a copy back from another disk is as new as its copy. Why 60 s before a reboot: Linux
writes dirty pages back after 30 s, looked at every 5 s, so what is older has reached the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from supervisor.records import dataclass

WHOLE, TORN, DOUBTFUL, UNREADABLE = "whole", "torn", "doubtful", "unreadable"
_SETTLED_S: Final = 5.0
_FLUSHED_S: Final = 60.0
_ORDERLY: Final = frozenset(
    {"stopped", "left", "done", "ended", "time_limit"}
)  # causes of an end after which all is written
_LEAST_GAPS: Final = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file or directory that matches, as it was found. `written_wall_s` is the newest time of writing in it."""

    path: str  # relative to where the pattern begins
    step: int | None
    written_wall_s: float
    size_bytes: int
    verdict: str
    why: str = ""  # of a verdict that is not whole


@dataclass(frozen=True, slots=True)
class Choice:
    """`torn`: the newest torn one that is newer than `newest`. `unsure`: the newest that may be whole, and is newer."""

    newest: Candidate | None
    torn: Candidate | None = None
    unsure: Candidate | None = None


def order(step: int | None, written_wall_s: float, path: str) -> tuple[bool, int, float, str]:
    """The key by which they are sorted; the newest has the largest. The path makes it the same at every look."""
    return step is not None, step or 0, written_wall_s, path


def choose(newest_first: Sequence[Candidate]) -> Choice:
    """What follows from the candidates, as far as they were looked at."""
    torn = unsure = None
    for each in newest_first:
        if each.verdict == WHOLE:
            return Choice(each, torn, unsure)
        if each.verdict == TORN:
            torn = torn or each
        else:
            unsure = unsure or each
    return Choice(None, torn, unsure)


def is_settled(
    written_wall_s: float, *, now_wall_s: float, running: bool, stable: bool, doubt_from_wall_s: float | None
) -> bool:
    """Whether a file of an unknown format counts as whole. `stable`: it had the same size at an earlier look."""
    if running:
        return stable and now_wall_s - written_wall_s >= _SETTLED_S
    return doubt_from_wall_s is None or written_wall_s < doubt_from_wall_s


def doubt_from_wall_s(
    cause: str, *, by_itself: bool, ended_wall_s: float | None, last_sign_wall_s: float | None
) -> float | None:
    """From when on a file may have been cut by the end of the attempt that wrote it; None: by none.

    `cause` is that of the end (`diagnosis.py`), `by_itself`: with an exit code, so not by a signal. `last_sign_wall_s` is
    that of the box before its newest reboot.
    """
    if not cause or (cause in _ORDERLY and by_itself):
        return None
    if cause == "reboot":
        at_s = ended_wall_s if last_sign_wall_s is None else last_sign_wall_s
        return None if at_s is None else at_s - _FLUSHED_S
    return None if ended_wall_s is None else ended_wall_s - _SETTLED_S


def usual_gap_s(written_wall_s: Sequence[float]) -> float | None:
    """The usual time between two saves, from the times of the newest ones; None: too few to tell.

    The median: the gap of a night in which the box was off is one among many.
    Example: written at 0, 300, 605, 9000 and 9301 s: gaps of 300, 305, 8395 and 301 s, usually 303 s.
    """
    ordered = sorted(written_wall_s)
    gaps = [later - sooner for sooner, later in pairwise(ordered) if later > sooner]
    return median(gaps) if len(gaps) >= _LEAST_GAPS else None
