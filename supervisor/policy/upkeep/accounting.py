"""The account to which each second of a program and of a slot is booked, so that the accounts add up to the paid time.

The rule. A *program-second* is a second of a program's life in the config; a *slot-second* is a second of one of the
level's slots. Each is booked to exactly one of eight accounts:

| account | a program's second is booked here | before, it was |
|---|---|---|
| TRAINING | while it trains or tests, and the work is kept | PRODUCTIVE, SLOW, EVALUATE |
| SAVING | while a save keeps it from training | CHECKPOINT_STALL |
| RESTARTING | while it starts, loads and compiles | STARTUP, RESTORE, WARMUP |
| RESTARTING | from its last sign of progress, if it stalls or dies, to the next start | DETECT, TERMINATE, BACKOFF |
| WAITING | while it should run and has no slot: queued, suspended, an end of this box announced | ADMISSION, NOTICE |
| LOST | training that was rolled back: booked afterwards, where it was computed | LOST |
| DOWN | while the box is off, or lacks the GPU that it needs | HOST_DOWN |
| DOWN | while no daemon runs, as far as no work is proven | DAEMON_DOWN |
| IDLE | while it is down for good: stopped, done, given up; while the daemon was ended in order | IDLE |
| UNKNOWN | training before a restart whose first step is unknown: booked afterwards, like LOST | UNPROVEN |
| UNKNOWN | a second that no fact explains: only if facts of the journal are lost | UNKNOWN |

A slot's second is booked like that of the program in it. A free slot is DOWN, RESTARTING or WAITING while a program waits
for that reason. Other free slots are not paid: one program on a level of two slots that trains all the time wastes nothing.
If no slot is used or wanted, all slots are IDLE, also while the box is off: a box that was stopped after its last program
lost nothing. So the slots paid at a moment are those that are used or wanted, else all; a worker that must still leave
after the level was lowered holds a slot too.

Worked example, one slot, one program, 1,000 s: started at 0, trains from 20, saves ten times at 0.1 s each, stops making
progress at 500, is called stalled at 530, gone at 534, waits until 539, trains again from 559 at the checkpoint of 470,
until 1,000. RESTARTING 20 + 30 + 4 + 5 + 20 = 79, SAVING 1, LOST 30, TRAINING 890: 1,000 s. Share of training 89 %.

Why steps prove work and time stamps do not: a worker that was suspended while no daemon ran has the same pid, the same
start time and fresh beats, and trained nothing. Why LOST is booked back: the second in which the lost work was computed is
the one that was paid for nothing. Booked at the resume, it would make an hour without training look worse, and the wasted
hour look good. Why an unknown first step is UNKNOWN: a script that saves and resumes by itself may have lost nothing; one
that begins at step 0 has lost all of it. Unknown is never zero.
"""

from __future__ import annotations

import enum
from typing import Final

_FULL: Final = 0.5


class Account(enum.StrEnum):
    """The account to which a second is booked."""

    TRAINING = "TRAINING"
    SAVING = "SAVING"
    RESTARTING = "RESTARTING"
    WAITING = "WAITING"
    LOST = "LOST"
    DOWN = "DOWN"
    IDLE = "IDLE"
    UNKNOWN = "UNKNOWN"


# How the core reports an attempt's time (`facts.Tallied`): by the worker's own phase, or by one of these words.
STARTING: Final = "starting"  # no beat yet
BLIND: Final = "blind"  # no daemon looked, and nothing proves that work was done
TRAINING: Final = "training"
_BOOKED_AS: Final = {  # "slow" stands in journals of earlier releases
    **dict.fromkeys((STARTING, "importing", "building", "restoring", "compiling", "leaving"), Account.RESTARTING),
    **dict.fromkeys((TRAINING, "slow", "evaluating"), Account.TRAINING),
    "saving": Account.SAVING, BLIND: Account.DOWN, "suspended": Account.WAITING,
}  # fmt: skip


def booked_as(seen: str, *, ready: bool) -> Account:
    """The account of one second of a live attempt. An unknown phase of a foreign program counts as training once ready."""
    return _BOOKED_AS.get(seen, Account.TRAINING if ready else Account.RESTARTING)


def proven_s(
    gap_s: float, *, steps_before: int | None, steps_after: int | None, rate: float | None, progress_s: float | None
) -> float:
    """How many seconds of a gap without samples a worker has provably trained.

    `rate` is its usual rate in steps a second; `progress_s` is the time from the start of the gap to its newest sign of
    progress (None: it has none). The first that applies:

    * the steps are not known on both sides: the time up to its newest sign of progress;
    * no new step: nothing;
    * rate unknown, or at least half of the steps that the whole gap would have given: the whole gap;
    * else the time that these steps take at the usual rate.

    Example: the daemon was away for 60 s, the worker usually does 100 steps/s. 5,600 steps further: 60 s. 1,200 steps
    further (it was stopped for a while): 12 s. None: 0 s, even if it sends beats again now.

    Why half: rates vary, and a few per cent less in a short gap prove nothing. Half is also the bound below which a worker
    is called slow.
    """
    if steps_before is None or steps_after is None:
        return min(gap_s, max(0.0, progress_s or 0.0))
    done = steps_after - steps_before
    if done <= 0:
        return 0.0
    if not rate or done >= _FULL * rate * gap_s:
        return gap_s
    return done / rate
