"""From which step a script goes on that does not report it: judged by the first steps that its own output shows.

The first step alone proves little. A progress bar shows 0, and jumps to the step of the checkpoint once that is loaded.
Many scripts load their checkpoint and count from 0 again. So the first three different steps are awaited, and

* a bar that ends before the steps that were made already is not that of the training: another one is awaited;
* if the second is further from the first than ten times the third from the second, the counter was set: it begins at the
  second;
* a counter *begins near 0* if its first step is at most two reports, or a tenth of the checkpoint's step (without a known
  one, of the steps made before).

The verdict, first match wins:

1. `steps_begin_anew = true`, and it started with a checkpoint of a known step: its own count is added to that step.
2. A first step at or beyond the checkpoint's: it has resumed from that checkpoint.
3. A first step that is not near 0, or `steps_begin_anew = false`, or no checkpoint lay there: it has resumed there or
   before. Counted from 0, all is lost.
4. It was given its checkpoint (`{resume}` in its command), or began anew before: as 1. It loads it, and only counts anew.
   Having begun anew before also decides where no step is shown.
5. Else unknown: a script that loads its checkpoint and one that begins from scratch look the same.

Worked examples, checkpoint at 16,600, steps made 16,640. Shown 0, 16,601, 16,602: resumed at 16,600, 40 steps lost. Shown
2,048, 4,096, 6,144 by `train.py -i {resume}`: resumed at 16,600, and 2,048 is step 18,648 of the training. The same by
`train.py`: unknown.

A script that shows no steps has checkpoints with steps in their names. One of this attempt that is below the one that it
began with counts as the first of a row: 3,000 as 3,000, 6,000, 9,000.

Why 5 is no loss: "373,248 steps lost" about a training that lost none is worse than "unknown".
"""

from __future__ import annotations

from typing import Final

from supervisor.records import Record

FIRSTS: Final = 3  # so many first steps are looked at
_JUMP: Final = 10
_REPORTS: Final = 2

RESUMED: Final = "resumed"  # at the checkpoint
ANEW: Final = "anew"  # at the checkpoint, with a count of its own
SHOWN: Final = "shown"  # at the first step or before
UNKNOWN: Final = "unknown"


class Evidence(Record):
    """The evidence about one attempt. `firsts`: the first different steps of its output, at most three.

    `found`: whether a whole checkpoint lay there at its start; None: not known. `saved` is its step, and `made` the furthest
    step before this attempt. `given`: its command names the checkpoint. `began`: it began anew before. `anew`: the
    configuration. `target`: of the script's own count, such as the end of a progress bar.
    """

    firsts: tuple[int, ...] = ()
    found: bool | None = None
    saved: int | None = None
    made: int | None = None
    given: bool = False
    began: bool = False
    anew: bool | None = None
    target: int | None = None


def judge(evidence: Evidence, *, final: bool) -> tuple[str, int]:
    """(How, step) of the resume; ("", 0): wait for more steps. `final`: none is shown, and none is awaited any more."""
    saved, (first, gap) = evidence.saved if evidence.found else None, beginning(evidence.firsts)
    if evidence.anew and saved is not None and (final or first is not None):
        return ANEW, saved
    if first is None:
        how = ANEW if evidence.began and evidence.anew is None else RESUMED
        return ("", 0) if not final else (UNKNOWN, 0) if saved is None else (how, saved)
    before = evidence.made if saved is None else saved
    if before is None or first >= before:
        return (SHOWN, first) if saved is None else (RESUMED, saved)
    if not final and (len(evidence.firsts) < FIRSTS or (evidence.target or before) < before):
        return "", 0
    near_zero = first <= max(_REPORTS * gap, before // _JUMP)
    if not near_zero or evidence.anew is False or evidence.found is False:
        return SHOWN, first
    if (evidence.given or evidence.began) and saved is not None:
        return ANEW, saved
    return (SHOWN, first) if evidence.made is None else (UNKNOWN, 0)


def after_fall(furthest: int, firsts: tuple[int, ...], saved: frozenset[int]) -> tuple[int | None, bool]:
    """(The step from which an attempt goes on whose steps fell back; None: it does not, whether a checkpoint has it).

    A launcher restarted its ranks. They go on at most two reports beyond a checkpoint, or, without a known one, at half of
    the steps or more: an epoch or an evaluation begins near 0. Lines of several ranks that are out of order are no fall.
    Example: 5,003, then 0, 4,901, 4,902 with a checkpoint at 4,900: it goes on from 4,900, and 103 steps are lost.
    """
    first, gap = beginning(firsts)
    if len(firsts) < FIRSTS or first is None or furthest - first <= _REPORTS * gap:
        return None, False
    near = [step for step in saved if 0 <= first - step <= _REPORTS * gap]
    if near:
        return max(near), True
    return (first, False) if not saved and 2 * first >= furthest else (None, False)


def beginning(firsts: tuple[int, ...]) -> tuple[int | None, int]:
    """(The step at which the counter begins, steps between its first two reports). A counter that is set begins there."""
    first, *later = firsts or (None,)
    if len(later) == FIRSTS - 1 and later[0] - firsts[0] > _JUMP * abs(later[1] - later[0]):
        return later[0], abs(later[1] - later[0])
    return first, abs(later[0] - firsts[0]) if later else 0
