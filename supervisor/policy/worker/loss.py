"""How much work was lost between the end of one attempt and the checkpoint that the next one resumes from.

The rule. `made` is the furthest known step: the maximum of the last beat, the sign of life, the journal and the
checkpoints. It is *exact* if it was read from the last beat after the attempt had ended; else the attempt may have come
further. The next attempt resumes at `resumed`. First match wins:

1. `made` or `resumed` unknown: the loss is unknown. Before the end of a first attempt no step is `made`: nothing is lost.
2. `made` is further than `resumed`: the difference. It is the loss itself where `made` is exact, else at least the loss.
3. `made` is exact, and either equals `resumed` or the attempt saved as it left: 0.
4. The file of that checkpoint was written after the attempt had been asked to leave, and the attempt left in order: 0,
   exactly. Its reports need not be exact then.
5. Else unknown: the newest report about the end is no newer than the checkpoint itself.

A loss is at most the steps that were computed here and not lost before. It is "at least" then, and unknown where none was: a
program may have begun with a checkpoint from elsewhere, and a damaged journal has lost some of its steps.

Worked example, a power cut: the sign of life shows step 55,100, the newest checkpoint is 54,896: at least 204 steps are
lost. If the sign of life shows 54,700 instead, it is older than the checkpoint: the loss is unknown.

Another one, a script whose steps are read from its log: its last line says 1,792. It is asked to leave at 16:13:58, writes
step=1792.pt then, and ends with code 0: nothing is lost.

Seconds are steps divided by the program's rate, and the share is relative to the steps of the attempt that ended. Each is
None where it is unknown.
"""

from __future__ import annotations

from typing import Final

from supervisor.records import Record


class Loss(Record):
    """Steps, the seconds of training that they took, and their share of the attempt that ended. None: unknown."""

    steps: int | None = None
    seconds: float | None = None
    share: float | None = None
    bound: str = ""  # AT_LEAST, ABOUT, or empty: `steps` is exact


UNKNOWN: Final = Loss()
AT_LEAST: Final = ">="  # the attempt may have come further than its last reading
ABOUT: Final = "~"  # its newest checkpoint may also be newer than the known one
IN_WORDS: Final = {"": "", AT_LEAST: "at least ", ABOUT: "about "}


def furthest(*steps: int | None) -> int | None:
    """The furthest step among these sources; None: no source knows one."""
    return max((step for step in steps if step is not None), default=None)


def loss(
    made: int | None, resumed: int | None, *, exact: bool, saved: bool, began_step: int | None, rate: float | None,
    saved_late: bool = False, computed: int | None = None,
) -> Loss:  # fmt: skip
    """The loss. `saved`: the attempt left in order, so the last thing it did was to save. `rate`: steps a second.

    `saved_late`: the file of that checkpoint was written after the attempt had been asked to leave. `computed`: the steps
    on record that are not lost; None: not known.
    """
    if made is None or resumed is None:
        return UNKNOWN
    steps = made - resumed
    if steps <= 0:
        if not (saved and saved_late) and (not exact or (steps < 0 and not saved)):
            return UNKNOWN
        steps, exact = 0, True
    if computed is not None and computed < steps:
        if not computed:
            return UNKNOWN
        steps, exact = computed, False
    seconds = steps / rate if rate else None
    if steps == 0:
        seconds = 0.0
    return Loss(steps, seconds, lost_share(steps, made, began_step), "" if exact else AT_LEAST)


def lost_share(lost_steps: int, steps: int, began_step: int | None) -> float | None:
    """The share of an attempt's computed steps that was lost; None: unknown.

    The attempt began at `began_step` and ended at `steps`. A rollback to before its beginning loses all of its steps, and
    steps of earlier attempts. The share is relative to this attempt only, so never more than 1. Example: it had resumed at
    step 4,000, was at 10,000 when it died, and the next resumed at 9,700: 300 of 6,000, 5 %.
    """
    if began_step is None:
        return None
    computed = steps - began_step
    if computed <= 0:
        return 1.0 if lost_steps > 0 else 0.0
    return min(1.0, lost_steps / computed)
