"""Which of the checkpoints that a script writes itself a start resumes from, and which one is worth a copy.

The rule:

1. Order: the newest is the one that the newest attempt wrote. A file belongs to the newest attempt that had begun when
   the file was written. Among the files of one attempt the step decides (those without a step come last), then the time.
   Files from before the first attempt count as those of one attempt. Two without a step come directly after the one that
   the attempt wrote before: one whose file with the step is missing or torn, if their names differ in numbers only; and one
   whose name says that it is the last, 5 s later or more. Lightning keeps the best as `step=100`, and the newest as `last`.
2. A checkpoint is *torn* or *whole* if its format shows that (`adapters/process/whole_files.py`), or the program's own
   `checkpoint_check`. Any other file or directory is whole once it is settled: its writer has done something that comes
   after the write. While the program runs: it showed progress (a step, else output, else work) 5 s after a look at these
   files; or it closed its single file half a second ago, and none of its processes has ended since. Of a program that
   shows nothing: not written for 5 s, and the same at two looks. After its end: settled before; or last written 5 s before
   an end by a signal or an error and before the last progress, or 60 s before the first reboot since; or its script
   replaces that path by renames. An orderly end interrupts no write.
3. All others are *unknown*: the end may have cut them. They stay unknown until they are written again.
4. The next attempt resumes from the newest one that is not torn, *surely* if it is whole. Unknown is not torn: a script
   that saves every 3 s and is killed has only unknown ones, and nearly all of them are whole. If the start dies of it,
   `suspects.py` sets it aside.
5. A copy or a backup is made of the newest whole one.

Worked example, a script that counts from 0 after each start: attempt 1 wrote `step=2300.pt`, attempt 2 `step=700.pt`. The
newest one is 700: by the step alone each restart would go back to 2300 and lose the work of attempt 2 and of all later ones.

Why not the time of writing alone: the files of one directory that was copied have the times of the copy. Why 60 s before a
reboot: Linux writes back dirty pages that are older than 30 s, and checks every 5 s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from supervisor.records import Record

WHOLE, TORN, UNKNOWN = "whole", "torn", "unknown"
_SETTLED_S: Final = 5.0
_CLOSED_S: Final = 0.5
_FLUSHED_S: Final = 60.0
_ORDERLY: Final = {"stopped", "left", "done", "ended", "time_limit"}  # causes of an end after which every write is complete
_LEAST_GAPS: Final = 2
_NUMBERS: Final = re.compile(r"\d+")
_LAST: Final = re.compile(r"(?<![a-z])(?:last|latest|newest)(?![a-z])[^/]*$", re.IGNORECASE)
_SAME_SAVE_S: Final = 5.0


class Candidate(Record):
    """One file or directory that matches the pattern. `written_wall_s` is the newest time of writing in it."""

    path: str  # relative to the directory where the pattern begins
    step: int | None
    written_wall_s: float
    size_bytes: int
    verdict: str
    why: str = ""  # the reason, when the verdict is not WHOLE


class Choice(Record):
    newest: Candidate | None  # the newest whole one
    start: Candidate | None = None  # the newest one that is not torn
    torn: Candidate | None = None  # the newest torn one that is newer than that
    spare: Candidate | None = None  # the newest whole one that is older than that


def order(
    step: int | None, written_wall_s: float, path: str, starts_wall_s: Sequence[float] = ()
) -> tuple[int, bool, int, float, str]:
    """The sort key; the newest has the largest. The path makes the order the same at every look.

    `starts_wall_s`: the starts of the newest attempts, by the wall clock of that time, the oldest first.
    """
    return _writer(written_wall_s, starts_wall_s), step is not None, step or 0, written_wall_s, path


def _writer(written_wall_s: float, starts_wall_s: Sequence[float]) -> int:
    return max((number for number, start_s in enumerate(starts_wall_s, 1) if start_s <= written_wall_s), default=0)


def with_stand_ins(rows: Sequence[tuple[str, int | None, float]], starts_wall_s: Sequence[float] = ()) -> list[int | None]:
    """The steps by which to order rows (path, step, time of writing). Example: `c-180` 180, later `c-240` None: both 180."""
    known = [(at, step, _NUMBERS.sub("0", path), _writer(at, starts_wall_s)) for path, step, at in rows if step is not None]

    def before(path: str, written_s: float) -> int | None:
        like, last_s = _NUMBERS.sub("0", path), written_s - _SAME_SAVE_S if _LAST.search(path) else 0.0
        writer = _writer(written_s, starts_wall_s)  # another attempt may have counted from elsewhere
        older = (each for each in known if each[0] < last_s or (each[2] == like and each[0] <= written_s))
        return max((each for each in older if each[3] == writer), default=(0.0, None))[1]

    return [before(path, at_s) if step is None else step for path, step, at_s in rows]


def choose(newest_first: Sequence[Candidate]) -> Choice:
    """The choice among the candidates that were looked at so far."""
    at = next((number for number, each in enumerate(newest_first) if each.verdict != TORN), len(newest_first))
    start, *older = newest_first[at:] or (None,)
    newest = next((each for each in newest_first if each.verdict == WHOLE), None)
    spare = next((each for each in older if each.verdict == WHOLE), None)
    return Choice(newest, start, newest_first[0] if at else None, spare)


def is_settled(
    written_wall_s: float, *, running: bool, lived_on_s: float, closed_s: float, replaced: bool,
    doubt_from_wall_s: float | None,
) -> bool:  # fmt: skip
    """Whether one of an unknown format counts as whole.

    `lived_on_s`: so long after a look at these files the program showed progress. `closed_s`: so long ago it was written, if
    its living writer has closed it and writes no other file of it. `replaced`: it took the place of another file by a
    rename, which comes after the last write.
    """
    if running:
        return lived_on_s >= _SETTLED_S or closed_s >= _CLOSED_S
    return doubt_from_wall_s is None or written_wall_s < doubt_from_wall_s or replaced


def doubt_since_progress(doubt_from_wall_s: float | None, progress_wall_s: float) -> float | None:
    """Example: suspended within a write at 100 s, killed at 900 s, last step at 99 s: from 94 s on, not from 895 s."""
    return None if doubt_from_wall_s is None else min(doubt_from_wall_s, progress_wall_s - _SETTLED_S)


def doubt_from_wall_s(
    cause: str, *, by_itself: bool, ended_wall_s: float | None, last_sign_wall_s: float | None
) -> float | None:
    """From which time of writing on a file may be cut by the end (`cause`, `by_itself`: with an exit code); None: none is.

    `last_sign_wall_s`: before the reboot that was this end, or a later unclean one.
    """
    cuts_s = [] if last_sign_wall_s is None else [last_sign_wall_s - _FLUSHED_S]
    if ended_wall_s is not None and cause == "reboot":
        cuts_s = cuts_s or [ended_wall_s - _FLUSHED_S]
    elif ended_wall_s is not None and not (cause in _ORDERLY and by_itself):
        cuts_s.append(ended_wall_s - _SETTLED_S)
    return min(cuts_s, default=None)


def usual_gap_s(written_wall_s: Sequence[float]) -> float | None:
    """The usual time between two saves; None: too few saves. A night in which the box was off does not change it much."""
    gaps = [later - sooner for sooner, later in pairwise(sorted(written_wall_s)) if later > sooner]
    return median(gaps) if len(gaps) >= _LEAST_GAPS else None
