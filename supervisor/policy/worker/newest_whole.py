"""Which of the checkpoints that a script writes itself is the newest whole one, and which newer ones are doubtful.

The rule:

1. Order: the newest is the one that the newest attempt wrote. A file belongs to the newest attempt that had begun when
   the file was written. Among the files of one attempt the step decides (those without a step come last), then the time.
   Files from before the first attempt count as those of one attempt. One whose file with the step is missing or torn comes
   directly after the one that was written before it, if their names differ in numbers only.
2. A checkpoint of a known format is *whole* or *torn*, whatever its age (`adapters/process/whole_files.py`). The
   program's own `checkpoint_check` decides in the same way.
3. Any other file or directory is whole once it is settled. While the program runs: not written for 5 s, and the same at
   two looks or open for writing in no process; a closed single file after half a second. After its end: last written 5 s
   before an end by a signal or an error, or 60 s before the first reboot since; or it was whole at a look before a kill. An
   orderly end interrupts no write. Any other is *doubtful*; from the second start on *doubted*, until it is written again.
4. The next attempt resumes from the newest whole checkpoint: *surely* if nothing newer is doubtful, doubted or unreadable.
   If none is whole, or it is ten minutes older, the oldest doubtful or doubted one that is newer takes its place: most are
   whole, and three starts that die of a cut one (`suspects.py`) cost less.

Worked example, newest first: `step=900.pt` torn, `step=800.pt` whole, `step=700.pt` not looked at. The newest whole one
is 800, 900 is set aside if it kills often enough (`suspects.py`), and the next attempt surely begins at step 800.

Another one, a script that counts from 0 after each start: attempt 1 wrote `step=2300.pt`, attempt 2 `step=700.pt`. The
newest one is 700: by the step alone each restart would go back to 2300 and lose the work of attempt 2 and of all later ones.

Why not the time of writing alone: the files of one directory that was copied have the times of the copy. Why 60 s before a
reboot: Linux writes back dirty pages that are older than 30 s, and checks every 5 s, so older data has reached the disk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from supervisor.records import Record

WHOLE, TORN, DOUBTFUL, DOUBTED, UNREADABLE = "whole", "torn", "doubtful", "doubted", "unreadable"
_SETTLED_S: Final = 5.0
_CLOSED_S: Final = 0.5
_FLUSHED_S: Final = 60.0
_FAR_S: Final = 600.0
_ORDERLY: Final = {"stopped", "left", "done", "ended", "time_limit"}  # causes of an end after which every write is complete
_LEAST_GAPS: Final = 2
_NUMBERS: Final = re.compile(r"\d+")


class Candidate(Record):
    """One file or directory that matches the pattern. `written_wall_s` is the newest time of writing in it."""

    path: str  # relative to the directory where the pattern begins
    step: int | None
    written_wall_s: float
    size_bytes: int
    verdict: str
    why: str = ""  # the reason, when the verdict is not WHOLE


class Choice(Record):
    newest: Candidate | None
    torn: Candidate | None = None  # the newest torn or doubted one that is newer
    unsure: Candidate | None = None  # the newest newer one that may be whole
    spare: Candidate | None = None  # the newest whole one that is older, if it was looked for


def order(
    step: int | None, written_wall_s: float, path: str, starts_wall_s: Sequence[float] = ()
) -> tuple[int, bool, int, float, str]:
    """The sort key; the newest has the largest. The path makes the order the same at every look.

    `starts_wall_s`: the starts of the newest attempts, by the wall clock of that time, the oldest first.
    """
    writer = max((number for number, start_s in enumerate(starts_wall_s, 1) if start_s <= written_wall_s), default=0)
    return writer, step is not None, step or 0, written_wall_s, path


def with_stand_ins(rows: Sequence[tuple[str, int | None, float]]) -> list[int | None]:
    """The steps by which to order rows (path, step, time of writing). Example: `c-180` 180, later `c-240` None: both 180."""
    known = [(at_s, step, _NUMBERS.sub("0", path)) for path, step, at_s in rows if step is not None]

    def before(like: str, written_s: float) -> int | None:
        return max((each for each in known if each[2] == like and each[0] <= written_s), default=(0.0, None))[1]

    return [before(_NUMBERS.sub("0", path), at_s) if step is None else step for path, step, at_s in rows]


def choose(newest_first: Sequence[Candidate]) -> Choice:
    """The choice among the candidates that were looked at so far."""
    whole = [number for number, each in enumerate(newest_first) if each.verdict == WHOLE]
    newer = newest_first[: whole[0]] if whole else newest_first
    torn = next((each for each in newer if each.verdict in (TORN, DOUBTED)), None)
    unsure = next((each for each in newer if each.verdict != TORN), None)
    newest, spare = (*(newest_first[number] for number in whole[:2]), None, None)[:2]
    return Choice(newest, torn, unsure, spare)


def last_resort(newest_first: Sequence[Candidate]) -> Candidate | None:
    """What to resume from in place of the newest whole one, if any: the script saved again after it wrote the oldest one."""
    whole = choose(newest_first).newest
    newer = newest_first if whole is None else newest_first[: newest_first.index(whole)]
    oldest = next((each for each in reversed(newer) if each.verdict in (DOUBTFUL, DOUBTED)), None)
    near = whole is not None and oldest is not None and oldest.written_wall_s - whole.written_wall_s <= _FAR_S
    return None if near else oldest


def is_settled(
    written_wall_s: float, *, running: bool, quiet_s: float, stable: bool, closed: bool, alone: bool,
    doubt_from_wall_s: float | None,
) -> bool:  # fmt: skip
    """Whether one of an unknown format counts as whole. `quiet_s`: since it was written. `stable`: as at an earlier look.

    `closed`: no process has it open for writing. `alone`: it is one file, after which no other is written.
    """
    if running:
        return (stable or closed) and quiet_s >= (_CLOSED_S if closed and alone else _SETTLED_S)
    return doubt_from_wall_s is None or written_wall_s < doubt_from_wall_s


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
    """The usual time between two saves; None: too few saves. A night in which the box was off does not change it much.

    Example: written at 0, 300, 605, 9000 and 9301 s: gaps of 300, 305, 8395 and 301 s, usually 303 s.
    """
    gaps = [later - sooner for sooner, later in pairwise(sorted(written_wall_s)) if later > sooner]
    return median(gaps) if len(gaps) >= _LEAST_GAPS else None
