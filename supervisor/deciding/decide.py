"""decide: one input in, facts and commands out. Pure: it uses no clock, disk, process, log or random number.

The shell calls it for every input, commits the facts in one transaction, and only then performs the commands. After a kill
in between, the next daemon finds its started workers by their run tokens.
"""

from __future__ import annotations

from typing import assert_never

from supervisor.deciding import (
    alerting,
    backups,
    clocks,
    cluster,
    foundations,
    levels,
    notices,
    offsite,
    own_checkpoints,
    supervision,
    when_done,
)
from supervisor.deciding.attempts import fill_slots, on_ended, on_spawn_broke, on_spawned
from supervisor.deciding.context import Decision, DecisionContext
from supervisor.deciding.healing import notice_own_absence, on_deadlines, on_evidence, on_sampled
from supervisor.deciding.requests import end_if_empty, on_asked, on_config, on_config_fault, on_terminated
from supervisor.deciding.startup import on_began
from supervisor.model import facts
from supervisor.model.inputs import (  # fmt: skip
    AlertTried,
    Asked,
    BackupChecked,
    BackupDue,
    BackupMade,
    BackupRestored,
    Began,
    CheckpointsFound,
    ClockMoved,
    ConfigFaulty,
    ConfigLoaded,
    Ended,
    EndNoticesRead,
    EvidenceTaken,
    FoundationsLooked,
    JobsSeen,
    LeaseFound,
    OffsiteDone,
    OffsiteDue,
    ReportDue,
    Sampled,
    SnapshotDue,
    SpawnBroke,
    SpawnSucceeded,
    SupervisionLooked,
    Terminated,
    WhenDoneEnded,
    Woke,
)
from supervisor.model.memory import Memory
from supervisor.model.settings import Settings
from supervisor.model.snapshot import encoded
from supervisor.model.state import State
from supervisor.records import replace

AnyInput = (
    AlertTried | Asked | BackupChecked | BackupDue | BackupMade | BackupRestored | Began | CheckpointsFound | ClockMoved
    | ConfigFaulty | ConfigLoaded | Ended | EndNoticesRead | EvidenceTaken | FoundationsLooked | JobsSeen | LeaseFound
    | OffsiteDone | OffsiteDue | Sampled | SpawnBroke | SpawnSucceeded | ReportDue | SnapshotDue | SupervisionLooked
    | Terminated | WhenDoneEnded | Woke
)  # fmt: skip


def decide(settings: Settings, state: State, memory: Memory, item: AnyInput, *, wall_s: float, boot_id: str) -> Decision:
    """The decision on `item`, given the durable state (`state`) and recent observations (`memory`)."""
    context = DecisionContext(settings, state, memory, item.now_s, wall_s, boot_id)
    _record_journal_trouble(context)
    if not isinstance(item, Began):  # `on_began` first finds out whether this is the same boot
        clocks.notice(context)
    notice_own_absence(context)
    match item:
        case Sampled():
            on_sampled(context, item)
            levels.on_sample(context)
        case Woke():
            pass  # every input checks the deadlines, below
        case Ended():
            on_ended(context, item)
        case CheckpointsFound() | SpawnSucceeded() | SpawnBroke():
            _on_start(context, item)
        case EvidenceTaken():
            on_evidence(context, item)
        case Asked():
            on_asked(context, item)
        case ConfigLoaded():
            on_config(context, item)
        case Terminated():
            on_terminated(context, item)
        case Began():
            on_began(context, item)
        case _:
            _on_housekeeping(context, item)
    on_deadlines(context)
    backups.pursue(context)
    notices.pursue(context)
    when_done.pursue(context)
    offsite.pursue(context)
    levels.on_deadlines(context)
    fill_slots(context)
    end_if_empty(context)
    alerting.pursue(context, state)
    return context.decision()


def _on_start(context: DecisionContext, item: CheckpointsFound | SpawnSucceeded | SpawnBroke) -> None:
    """Handle the result of a start, or the checkpoints found before it."""
    if isinstance(item, CheckpointsFound):
        own_checkpoints.on_found(context, item)
    elif isinstance(item, SpawnSucceeded):
        on_spawned(context, item)
    else:
        on_spawn_broke(context, item)


CopiesInput = BackupChecked | BackupDue | BackupMade | BackupRestored | LeaseFound | OffsiteDone | OffsiteDue
HousekeepingInput = (
    AlertTried | ClockMoved | ConfigFaulty | EndNoticesRead | FoundationsLooked | JobsSeen | ReportDue | SnapshotDue
    | SupervisionLooked | WhenDoneEnded | CopiesInput
)  # fmt: skip


def _on_housekeeping(context: DecisionContext, item: HousekeepingInput) -> None:
    """Handle inputs that concern no attempt: clock, config, files, cluster, alerts, backups, and copies off the box."""
    match item:
        case ConfigFaulty():
            on_config_fault(context, item)
        case AlertTried():
            alerting.on_tried(context, item)
        case ClockMoved(step_s=step_s):
            clocks.on_moved(context, step_s)
        case EndNoticesRead():
            notices.on_read(context, item)
        case FoundationsLooked():
            foundations.on_looked(context, item.findings)
        case JobsSeen():
            cluster.on_jobs(context, item)
        case ReportDue():
            alerting.on_report(context, item)
        case SupervisionLooked():
            supervision.on_looked(context, item)
        case WhenDoneEnded():
            when_done.on_ended(context, item)
        case SnapshotDue():
            why = f"state after {item.facts:,} more facts"
            context.record(facts.Snapshot(why, encoded(context.state)))
        case _:
            _on_copies(context, item)


def _on_copies(context: DecisionContext, item: CopiesInput) -> None:
    """Handle inputs about backups and copies off the box."""
    match item:
        case BackupChecked():
            backups.on_checked(context, item)
        case BackupDue():
            backups.on_due(context, item)
        case BackupMade():
            backups.on_made(context, item)
        case BackupRestored():
            backups.on_restored(context, item)
        case LeaseFound():
            offsite.on_lease(context, item)
        case OffsiteDone():
            offsite.on_done(context, item)
        case OffsiteDue():
            offsite.on_due(context, item)
        case _:
            assert_never(item)


def _record_journal_trouble(context: DecisionContext) -> None:
    """Record that the journal could not be written, as the first fact of the next turn that succeeds.

    While the journal cannot be written, every turn tries to record this fact. So every sample (once a second) tests whether
    the disk has room again.
    """
    trouble = context.memory.trouble
    if trouble is None:
        return
    context.memory = replace(context.memory, trouble=None)
    for_s = max(0.0, context.now_s - trouble.since_s)
    why = f"the journal could not be written for {for_s:.0f} s ({trouble.error}): extralife started nothing meanwhile"
    context.record(facts.JournalStalled(why, trouble.error, for_s, trouble.since_wall_s))
