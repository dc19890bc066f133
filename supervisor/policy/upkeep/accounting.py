"""The account to which each second of a program and of a slot is booked, so that the accounts add up to the paid time.

The rule. A *program-second* is a second of a program's life in the config; a *slot-second* is a second of one of the
level's slots. Each is booked to exactly one account:

| account | a program's second is booked here | begins | ends |
|---|---|---|---|
| HOST_DOWN | while the box is off | last durable sign of life | boot |
| HOST_DOWN | while the box lacks the GPU that it needs (`lost_gpu.py`) | verdict | its GPU is back |
| DAEMON_DOWN | while no daemon runs, as far as no work is proven | boot, or the daemon's last sign of life | its start |
| DETECT | while it makes no progress, and no verdict says so yet | last sign of progress, or its death | verdict |
| TERMINATE | while it is being healed, or was asked to leave | verdict, or the request | gone, or progress again |
| BACKOFF | while it waits after a death | death | next start, or back in the queue |
| ADMISSION | while it should run and has no slot | queued, its job suspended | start |
| NOTICE | while it is kept down because this box is announced to end | asked to leave, and gone | notice called off |
| STARTUP | while it imports and builds its environments | intent to start it | first sign of training |
| RESTORE | while it loads its checkpoint | phase `restoring` | next phase |
| WARMUP | while it compiles | phase `compiling` | next phase |
| CHECKPOINT_STALL | while a save keeps it from training | reported by the worker; phase `saving` | |
| EVALUATE | while it evaluates | phase `evaluating` | next phase |
| LOST | training that was rolled back | booked afterwards, where it was computed | |
| UNPROVEN | training before a restart whose first step is unknown | booked afterwards, like LOST | |
| SLOW | while it trains at less than half of its usual rate | verdict | usual rate again |
| PRODUCTIVE | while it trains, and the work is kept | first sign of training | |
| IDLE | while it is down for good: stopped, done, given up | | |
| UNKNOWN | never: a second that no rule books is a bug | | |

A slot's second is booked like that of the program in it. A free slot is HOST_DOWN, DAEMON_DOWN, BACKOFF, NOTICE or
ADMISSION while a program waits for that reason. Other free slots are not paid: one program on a level of two slots that
trains all the time wastes nothing. If no slot is used or wanted, all slots are IDLE, also while the box is off: a box that
was stopped after its last program lost nothing. So the slots paid at a moment are those that are used or wanted, else all;
a worker that must still leave after the level was lowered holds a slot too.

Worked example, one slot, one program, 1,000 s: started at 0, trains from 20 (of which 8 s went into the restore), saves
ten times at 0.1 s each, stops making progress at 500, is called stalled at 530, gone at 534, waits until 539, trains
again from 559 at the checkpoint of 470, until 1,000. STARTUP 12 + 20 = 32, RESTORE 8, CHECKPOINT_STALL 1, DETECT 30,
TERMINATE 4, BACKOFF 5, LOST 30, PRODUCTIVE 890: 1,000 s. Productive share 89 %.

Why steps prove work and time stamps do not: a worker that was suspended while no daemon ran has the same pid, the same
start time and fresh beats, and trained nothing. Why LOST is booked back: the second in which the lost work was computed is
the one that was paid for nothing. Booked at the resume, it would make an hour without training look worse, and the wasted
hour look good. Why UNPROVEN is not LOST: a script that saves and resumes by itself may have lost nothing. Why it is not
PRODUCTIVE: a script that begins at step 0 has lost all of it, and unknown is never zero.
"""

from __future__ import annotations

import enum
from typing import Final

_FULL: Final = 0.5


class Account(enum.StrEnum):
    """The account to which a second is booked."""

    HOST_DOWN = "HOST_DOWN"
    DAEMON_DOWN = "DAEMON_DOWN"
    DETECT = "DETECT"
    TERMINATE = "TERMINATE"
    BACKOFF = "BACKOFF"
    ADMISSION = "ADMISSION"
    NOTICE = "NOTICE"
    STARTUP = "STARTUP"
    RESTORE = "RESTORE"
    WARMUP = "WARMUP"
    CHECKPOINT_STALL = "CHECKPOINT_STALL"
    EVALUATE = "EVALUATE"
    LOST = "LOST"
    UNPROVEN = "UNPROVEN"
    SLOW = "SLOW"
    PRODUCTIVE = "PRODUCTIVE"
    IDLE = "IDLE"
    UNKNOWN = "UNKNOWN"


COMPUTING: Final = frozenset({Account.PRODUCTIVE, Account.SLOW})  # a rollback can turn these into LOST

# How the core reports an attempt's time (`facts.Tallied`): by the worker's own phase, or by one of these words.
STARTING: Final = "starting"  # no beat yet
SLOW: Final = "slow"  # in training, and called slow
BLIND: Final = "blind"  # no daemon looked, and nothing proves that work was done
TRAINING: Final = "training"
_BOOKED_AS: Final = {
    STARTING: Account.STARTUP,
    "importing": Account.STARTUP,
    "building": Account.STARTUP,
    "restoring": Account.RESTORE,
    "compiling": Account.WARMUP,
    TRAINING: Account.PRODUCTIVE,
    SLOW: Account.SLOW,
    "evaluating": Account.EVALUATE,
    "saving": Account.CHECKPOINT_STALL,
    "leaving": Account.TERMINATE,
    BLIND: Account.DAEMON_DOWN,
    "suspended": Account.ADMISSION,
}


def booked_as(seen: str, *, ready: bool) -> Account:
    """The account of one second of a live attempt. An unknown phase of a foreign program counts as training once ready."""
    return _BOOKED_AS.get(seen, Account.PRODUCTIVE if ready else Account.STARTUP)


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
