"""Whether a live worker still makes progress, and if not, what kind of stall it is.

The rule. Every phase has a limit for the time since the last sign of *progress*. Progress comes from the training loop
itself; beats of the worker's side thread prove nothing:

* training: max(`floor_s`, `factor` x the largest healthy gap so far for this program), or the program's own
  `stall_timeout_s`, which overrides both. The floor is `coarse_floor_s` for a program that sends no beats: the daemon
  does not know yet how often its log or its files grow, and a program that prints once a minute must live long enough to
  show it;
* building environments: `building_s` + `building_s_per_env` x environments (envpool needs 75-80 ms of CPU for each);
* importing, restoring, compiling, evaluating, saving, leaving: a setting each;
* before the first sign of progress: `start_s` (never less than `coarse_floor_s` without beats), or the program's own
  `start_timeout_s`;
* a program that is asked for *witnesses* (it sends neither beats nor notifications): the limit doubles with each kill for
  silence since the program was last healthy, up to `silence_max_s`. A kill that healed nothing shows that the limit was
  too short. After two such kills it is left alone, and an alert names `stall_timeout_s` (`intervention.py`);
* a phase may name its own deadline, which counts when it is later than the limit. But no program goes without progress
  for more than `cap_s`, and the operator's `stall_timeout_s` overrides the deadline. The client in a foreign script names
  a deadline for each step: it cannot know which step will evaluate or save.

Over the limit, the state of the process and its live clock (the last stamp of the side thread) show the kind of stall:

| process | live clock | stall | what to do |
|---|---|---|---|
| T (stopped), already after `continue_s` | any | `stopped` | SIGCONT first; heal only if it stays |
| D (uninterruptible) | any | `uninterruptible` | report once, keep its slot; judge again when it leaves state D |
| other | fresh | `hang` | Python, environment or CUDA call that never returns: heal |
| other | stale | `gil` | something holds the GIL (or all threads are stuck): heal |
| other | none known | `silent` | no beat record: heal |

A child that stays in state D for long makes the whole tree `uninterruptible`.

A job that its cluster has suspended (phase `suspended`) does not stall: none of its processes may run, and nobody knows for
how long.

**Silence alone is no stall.** A program that is asked for witnesses and shows one within the limit (CPU time, I/O, files,
its GPU: `policy/worker/witness.py`) is `quiet`: reported once, never healed. It is `silent` after the limit without any
witness. The operator's own `stall_timeout_s` or `start_timeout_s` for the program is enough without witnesses.

Why not a fixed timeout: a minute kills a healthy evaluation, an hour (a common default elsewhere is 45 minutes) costs a
quarter of the night.
"""

from __future__ import annotations

import enum
from typing import Final

from supervisor.formats import span
from supervisor.keys import key
from supervisor.policy.worker.intervention import MOST_FRUITLESS
from supervisor.policy.worker.witness import WORDS
from supervisor.records import Record

SILENT: Final = "silent"
QUIET: Final = "quiet"
SUSPENDED: Final = "suspended"  # phase of a job whose cluster lets none of its processes run
_MOST_DOUBLINGS: Final = 64  # beyond any limit; keeps 2.0 ** n finite

UNINTERRUPTIBLE: Final = "uninterruptible"
LEFT_ALONE: Final = "left_alone"
# The kinds that are reported but not healed, with the reason that `status` shows.
NOT_HEALED: Final = {
    UNINTERRUPTIBLE: "no signal reaches it",
    LEFT_ALONE: "two restarts did not help: set stall_timeout_s to have it restarted",
}


class StallSettings(Record):
    """`[stall]` in the config. All times in seconds."""

    floor_s: float = key(30.0, "shortest time without progress after which a training counts as stalled")
    coarse_floor_s: float = key(
        600.0, "`floor_s` of a program without beats; without notifications too, its longest time without work"
    )
    factor: float = key(5.0, "the learned limit is this many times the largest healthy gap seen so far", low=1, high=1000)
    live_s: float = key(10.0, "without a sign of other threads for this long, something holds the GIL")
    start_s: float = key(120.0, "limit from the start to the first sign of life")
    importing_s: float = key(300.0, "limit for importing")
    building_s: float = key(
        60.0, "limit for building environments, before the part for each environment (`building_s_per_env`)"
    )
    building_s_per_env: float = key(0.5, "time added to `building_s` for each environment")
    restoring_s: float = key(300.0, "limit for restoring a checkpoint")
    compiling_s: float = key(900.0, "limit for compiling")
    evaluating_s: float = key(900.0, "limit for evaluating")
    saving_s: float = key(120.0, "limit for saving a checkpoint")
    leaving_s: float = key(120.0, "limit for exiting")
    cap_s: float = key(3600.0, "latest deadline that a worker may set for itself")
    silence_max_s: float = key(
        6 * 3600.0, "longest limit: each kill for silence doubles the limit until the program is healthy again"
    )
    settle_s: float = key(10.0, "a program without beats or notifications counts as RUNNING only after this time", low=0)
    continue_s: float = key(5.0, "a stopped process (state T) is sent SIGCONT after this")
    grace_s: float = key(3.0, "a stalled worker's time between SIGTERM and SIGKILL")
    slow_ratio: float = key(0.5, "slower than this share of its own usual rate is reported as slow; 0: never", low=0, high=1)
    slow_for_s: float = key(60.0, "time below `slow_ratio`, or without an expected step, before a program counts as slow")
    slow_restart_s: float = key(
        1800.0, "a program that alone is slow, or stands still, for this long saves, exits and is restarted"
    )
    slow_restart_every_s: float = key(6 * 3600.0, "shortest time between two restarts of a program because it is slow")


class Action(enum.StrEnum):
    CONTINUE = "continue"  # send SIGCONT
    HEAL = "heal"  # end and restart
    REPORT = "report"
    NOTE_QUIET = "note quiet"  # report a quiet program, which is no stall


class Reading(Record):
    """The readings of one live worker. None is "not known". Times are journal time in seconds."""

    now_s: float
    spawned_at_s: float
    phase: str | None = None
    phase_deadline_s: float | None = None
    progress_at_s: float | None = None
    live_at_s: float | None = None
    proc_state: str | None = None
    beats: bool = True  # whether its signs of progress are beats, several a second
    num_envs: int | None = None
    largest_gap_s: float | None = None
    stall_timeout_s: float | None = None
    start_timeout_s: float | None = None
    witnessed: bool = False  # silence is not enough: the program is asked for witnesses
    witness_at_s: float | None = None  # time of the newest witness
    witness: str = ""  # its name, as in `policy/worker/witness.py`
    silences: int = 0  # kills for silence since the program was last healthy
    held_child: str = ""  # a process of its tree that has been in state D for long, as `name(pid)`


class StallVerdict(Record):
    """A stall: its kind, the seconds without a sign of progress or work, the limit for them, and what to do."""

    kind: str
    action: Action
    age_s: float
    limit_s: float
    why: str


def judge(settings: StallSettings, reading: Reading) -> StallVerdict | None:
    """The stall; None: there is none, or too little is known."""
    if reading.phase == SUSPENDED:
        return None
    age_s, limit_s, doing = _age_and_limit(settings, reading)
    stopped = reading.proc_state in {"T", "t"}
    if stopped and age_s > min(settings.continue_s, limit_s):
        why = f"someone stopped the process (state {reading.proc_state}): no progress for {span(age_s)} {doing}"
        return StallVerdict("stopped", Action.CONTINUE, age_s, limit_s, why)
    if age_s <= limit_s:
        return None
    if _works(reading, limit_s):
        words = WORDS.get(reading.witness, "it works")
        why = f"no sign of progress for {span(age_s)} {doing}, but {words}: it is quiet, not stalled"
        return StallVerdict(QUIET, Action.NOTE_QUIET, age_s, limit_s, why)
    kind, action, because = _classify(settings, reading)
    why = f"no progress for {span(age_s)} {doing} (limit {span(limit_s)}): {because}"
    if reading.witnessed and reading.witness_at_s is not None and not _is_told(reading):
        age_s = min(age_s, reading.now_s - reading.witness_at_s)  # up to that witness it worked
    return StallVerdict(kind, action, age_s, limit_s, why)


def limit_s(settings: StallSettings, reading: Reading) -> float:
    """How long the present phase may go without progress."""
    return _age_and_limit(settings, reading)[1]


def _works(reading: Reading, limit_s: float) -> bool:
    """Whether a program that is asked for witnesses has shown one within the limit."""
    if not reading.witnessed or _is_told(reading) or reading.witness_at_s is None:
        return False
    return reading.now_s - reading.witness_at_s <= limit_s


def _is_told(reading: Reading) -> bool:
    """Whether the operator has set the present limit for this program."""
    if reading.progress_at_s is None:
        return reading.start_timeout_s is not None
    return reading.stall_timeout_s is not None and (reading.phase or "training") == "training"


def _age_and_limit(settings: StallSettings, reading: Reading) -> tuple[float, float, str]:
    if reading.progress_at_s is None:
        floor_s = settings.start_s if reading.beats else max(settings.start_s, settings.coarse_floor_s)
        limit = floor_s if reading.start_timeout_s is None else reading.start_timeout_s
        since_s, doing = reading.spawned_at_s, "since it was started"
    else:
        phase = reading.phase or "training"
        since_s, limit, doing = reading.progress_at_s, _phase_limit(settings, reading, phase), f"while {phase}"
    if reading.witnessed and reading.silences and not _is_told(reading):
        limit = max(limit, min(settings.silence_max_s, limit * 2.0 ** min(reading.silences, _MOST_DOUBLINGS)))
    if reading.phase_deadline_s is not None and (reading.progress_at_s is None or not _is_told(reading)):
        limit = max(limit, min(reading.phase_deadline_s - since_s, settings.cap_s))
    return reading.now_s - since_s, limit, doing


def _phase_limit(settings: StallSettings, reading: Reading, phase: str) -> float:
    if phase == "training":
        if reading.stall_timeout_s is not None:
            return reading.stall_timeout_s
        floor_s = settings.floor_s if reading.beats else settings.coarse_floor_s
        return min(settings.cap_s, max(floor_s, settings.factor * (reading.largest_gap_s or 0.0)))
    if phase == "building":
        return min(settings.cap_s, settings.building_s + settings.building_s_per_env * (reading.num_envs or 0))
    fixed = {
        "importing": settings.importing_s,
        "restoring": settings.restoring_s,
        "compiling": settings.compiling_s,
        "evaluating": settings.evaluating_s,
        "saving": settings.saving_s,
        "leaving": settings.leaving_s,
    }
    return fixed.get(phase, settings.cap_s)


def _classify(settings: StallSettings, reading: Reading) -> tuple[str, Action, str]:
    if reading.proc_state == "D" or reading.held_child:
        who = f"its process {reading.held_child}" if reading.held_child and reading.proc_state != "D" else "it"
        because = f"{who} waits inside the kernel or a driver (state D), where no signal reaches it"
        return UNINTERRUPTIBLE, Action.REPORT, because
    if reading.live_at_s is None and reading.witnessed and not _is_told(reading):
        since_s = reading.spawned_at_s if reading.witness_at_s is None else reading.witness_at_s
        because = f"nor has it used CPU time, read or written anything for {span(reading.now_s - since_s)}"
        if reading.silences >= MOST_FRUITLESS:
            return LEFT_ALONE, Action.REPORT, f"{because}; {NOT_HEALED[LEFT_ALONE]}"
        return SILENT, Action.HEAL, because
    if reading.live_at_s is None:
        return SILENT, Action.HEAL, "its configuration calls that a stall" if reading.witnessed else "it sends no beats"
    live_age_s = reading.now_s - reading.live_at_s
    if live_age_s <= settings.live_s:
        return "hang", Action.HEAL, "its other threads run, so a call in Python, the environment or CUDA never returned"
    return "gil", Action.HEAL, f"none of its threads ran for {span(live_age_s)}: something holds the GIL"
