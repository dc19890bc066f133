"""Facts: durable records of events. The daemon's state is a fold over them (`model/fold.py`).

Rules that keep a journal readable for years:

* A fact is a frozen dataclass with a version, flat and JSON-shaped: str, int, float, bool, None, tuples, dicts.
* It records what happened and `why`, in one sentence for a person. It never records what to do.
* It does not contain its time: the journal adds `at_s` (journal time), `wall_s` and `boot_id` to every row (`Stamped`).
* A new field has a default. Any other change makes a new kind, and the old kind stays readable.

Telemetry (frames, rates, GPU samples) is not a fact: only verdicts drawn from it are.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from supervisor.records import Record

ITSELF = "extralife"  # `DaemonStopping.by`, if nobody has asked for it


class Fact(Record):
    """Base of all facts; `why` is the reason in one sentence."""

    VERSION: ClassVar[int] = 1
    why: str


class ProgramFact(Fact):
    program: str


class AttemptFact(ProgramFact):
    """A fact about one attempt of a program; `token` names the attempt."""

    token: str


# --- the daemon and the box ------------------------------------------------------------------------------------------


class DaemonStarted(Fact):
    """A daemon took over the state directory. `clean`: the previous daemon had stopped in order."""

    pid: int
    version: str
    clean: bool
    salt: str  # random; makes this daemon's attempt tokens different from those of any other daemon on this host
    adopted: int = 0
    last_sign_s: float | None = None  # the previous daemon's last sign of life, in journal time


class DaemonStopping(Fact):
    """The daemon was asked to end. `keep_workers`: it re-executes itself, and the workers keep running."""

    keep_workers: bool
    by: str


class DaemonStopped(Fact):
    """An orderly end: every worker had exited, or the daemon left it running on purpose."""


class DaemonSuspended(Fact):
    """The deciding loop did not run for `gap_s` (SIGSTOP, suspend, starvation): no worker is judged until `until_s`."""

    gap_s: float
    until_s: float


class HostRebooted(Fact):
    """The box restarted. `down_s`: from the last sign of life to the boot; `up_s`: length of the ended boot (None: unknown).

    `cause` is one of `orderly`, `operator`, `unclean`, `preempted` (an end that was announced, see `EndAnnounced`; this may
    be another box), `moved` (this is another box, see `BoxIdentified`). `end` is the kind of end
    (`policy/box/reboot_cause.py`; empty: unknown), and `last_words` are its evidence.
    `steps` are each program's environment steps at the last sign of life; the lost work is computed from them at the resume.
    """

    old_boot_id: str
    new_boot_id: str
    cause: str
    evidence: str
    down_s: float | None
    up_s: float | None
    level: str
    programs: tuple[str, ...]
    steps: dict[str, int]
    last_sign_wall_s: float | None = None
    boot_wall_s: float | None = None
    last_sign_s: float | None = None  # in journal time
    end: str = ""
    last_words: tuple[str, ...] = ()


class BoxIdentified(Fact):
    """The identity of this box: recorded when one of its identifiers is new or has changed (`policy/box/box_identity.py`).

    `another`: this is not the box on record. A new record of levels and reboots begins; the older one is kept.
    """

    hostname: str
    witnesses: dict[str, str]
    another: bool = False


class ClockStepped(Fact):
    """The wall clock moved by `step_s` relative to CLOCK_BOOTTIME. This affects only displayed times."""

    step_s: float


class ClockSet(Fact):
    """The wall clock of this boot was not set until now (`wall_clock.py`): earlier times are `step_s` too early.

    `reboot_wall_s` and `down_s` correct the newest reboot, if it had such a time; None: it had not, or the value is unknown.
    """

    step_s: float
    reboot_wall_s: float | None = None
    down_s: float | None = None


class JournalSalvaged(Fact):
    """The journal was damaged: it is kept as `kept_as`, and was rebuilt from the `kept` facts that could still be read.

    This fact is the last row of the rebuilt journal, so that a crash cannot separate the two. `lost` None: unknown.
    """

    error: str
    kept_as: str
    kept: int
    lost: int | None


class JournalStalled(Fact):
    """The journal could not be written for `for_s` seconds, and no worker was started. The first fact after that time."""

    error: str
    for_s: float
    since_wall_s: float


class JournalRestored(Fact):
    """An earlier extralife: the journal was removed or replaced while it ran; all `kept` facts are in a new file.

    `found_kept_as`: the new name of the file that was found in its place; empty: there was none.
    """

    error: str
    kept: int
    found_kept_as: str = ""


class FoundationLost(Fact):
    """A file or directory that the daemon relies on is missing, replaced or unreadable (`policy/box/foundations.py`).

    `look` is one of `missing`, `replaced`, `damaged`, `unknown`. `troubled`: nobody restores it at once.
    """

    name: str
    path: str
    look: str
    troubled: bool


class FoundationRestored(Fact):
    """The file or directory is in place again, after `for_s`. `troubled`: at least one attempt to restore it had failed."""

    name: str
    path: str
    for_s: float
    troubled: bool


class ConfigRefused(Fact):
    """The configuration cannot be used, because of these errors. `in_use` is the saved configuration used instead.

    An empty `in_use`: the failure was at a reload, and the daemon keeps its present settings.
    """

    errors: tuple[str, ...]
    in_use: str
    by: str


class ConfigMended(Fact):
    """The configuration, which was refused before, is valid again and in force."""


class Snapshot(Fact):
    """The state after all earlier facts (`model/codec.py`). Folding it gives `state`, without the earlier facts.

    So a start of the daemon folds only from the newest snapshot on. Damage before it loses history, but no state, and older
    facts may go to the archive.
    """

    state: str


class LevelChosen(Fact):
    """The level in force: `slots` programs at once. `by`: the config, the rule, a pin or a veto."""

    level: str
    slots: int
    trial: bool = False
    before: str = ""
    by: str = "config"


class LadderLaid(Fact):
    """The ladder of levels, lowest first, and the record that the box begins with (`load`, as in `Reviewed`)."""

    levels: tuple[str, ...]
    shapes: tuple[str, ...]  # a level with another shape is another level, even with the same name
    load: str


class Reviewed(Fact):
    """The review of `up_s` of training at a level. `reading` is the kept steps a minute (None: not known).

    `load` is the new state of the rule (`policy/level/load.py`). It is recorded instead of computed again from the evidence:
    otherwise an upgrade with another rule would move boxes to another level without a fact that gives the reason.
    """

    level: str
    up_s: float
    reading: float | None
    load: str


class RebootJudged(Fact):
    """The share of a reboot that counts against a level (`policy/level/attribution.py`), and the load rule's new state."""

    level: str
    weight: float
    up_s: float
    load: str


class NodeFaultJudged(Fact):
    """What the loss of a job by its node counted against the level, in an earlier extralife, and the load rule's state."""

    node: str
    level: str
    weight: float
    up_s: float
    load: str


class LevelSettled(Fact):
    """Every slot trains again, `after_s` after a change of level; the change cost `cost_s` of training by all slots."""

    level: str
    after_s: float
    cost_s: float


class LevelPinned(Fact):
    """The operator has pinned this level, until `until_s` (journal time; None: until further notice)."""

    level: str
    by: str
    until_s: float | None = None
    load: str = ""  # as in `Reviewed`; empty: there is no ladder to climb


class LevelUnpinned(Fact):
    """The operator, the clock or the config has ended the pin."""

    level: str
    by: str


class GpusFound(Fact):
    """The number of GPUs of this box, recorded when it changes; `names` are their names, by index.

    `another`: a model that the record does not have. The record of levels and of memory belongs to the other GPU.
    """

    count: int
    names: tuple[str, ...]
    uuids: tuple[str, ...] = ()
    another: bool = False


class GpusUnknown(Fact):
    """The GPUs cannot be read: NVML does not answer (`hung_s`), or returns an error. Training continues."""

    error: str
    hung_s: float | None = None


class GpusKnown(Fact):
    """The GPUs can be read again."""

    after_s: float


class GpuLost(Fact):
    """One GPU does not answer any more; the others do."""

    gpu: int
    uuid: str
    error: str


class GpuBack(Fact):
    gpu: int
    uuid: str


class XidReported(Fact):
    """The driver reported an error of a GPU: NVIDIA's number for it."""

    gpu: int
    uuid: str
    xid: int
    grave: bool


class Vetoed(Fact):
    """A pre-check forbids every level above `cap` (the name of a level), until it is lifted (`policy/box/prechecks.py`)."""

    rule: str
    cap: str
    level: str  # the level in force when the reason was seen


class VetoLifted(Fact):
    """The reason for a veto has been gone for long enough."""

    rule: str
    after_s: float


class OperatorAsked(Fact):
    """An operator's request over the control socket that changes something; `uid` is the user id of the client."""

    request: str
    args: tuple[str, ...]
    uid: int | None


# --- a cluster that runs the programs as jobs (`features/slurm/decide.py`) -------------------------------------------------


class ClusterUnreachable(Fact):
    """The cluster's controller does not answer. Jobs continue; no job is submitted again, and no job counts as ended."""

    error: str


class ClusterReached(Fact):
    after_s: float


class NodeFaulted(Fact):
    """A node lost one of our jobs. `weight`: what an earlier extralife counted against the level."""

    node: str
    partition: str
    by: str  # the program
    job: str
    new: bool = True  # False: it belongs to the same fault as an earlier job
    weight: float = 0.0


class NodeExcluded(Fact):
    """New jobs avoid a node until `until_s` (journal time)."""

    node: str
    until_s: float


# --- backups ---------------------------------------------------------------------------------------------------------


class BackupFact(Fact):
    """A fact about a backup, or about a rollback to one (`features/backups/decide.py`)."""


class BackupIntended(BackupFact):
    """Committed before the first copy. `cause`: operator, calendar or level; `due_wall_s` is the calendar's time."""

    name: str
    label: str
    cause: str
    programs: tuple[str, ...]
    due_wall_s: float | None = None


class BackedUp(BackupFact):
    """A verified copy of each program's newest whole checkpoint is durable. `method`: reflink, link or copy.

    `removed` are older backups that were deleted for it. `missed`: why the checkpoints of some programs are not in it.
    """

    name: str
    steps: dict[str, int | None]  # by program; None: not known
    size_bytes: int
    method: str
    removed: tuple[str, ...] = ()
    missed: dict[str, str] = field(default_factory=dict)


class BackupFailed(BackupFact):
    """The backup failed and left no files."""

    name: str
    error: str


class RollbackIntended(BackupFact):
    """A rollback of programs (no names: all in the backup) was requested. The backup is verified before any change."""

    backup: str
    programs: tuple[str, ...]
    kept_as: str  # name of the backup made of the present checkpoints before the rollback
    by: str


class RollbackBegun(BackupFact):
    """The backup is complete: these programs stop now, and none of them starts before `RolledBackTo` or a failure."""

    backup: str
    programs: tuple[str, ...]


class RolledBackTo(BackupFact):
    """These programs resume from these steps. Their former checkpoints are the backup `kept_as` (empty: there were none)."""

    backup: str
    steps: dict[str, int | None]  # by program; None: not known
    kept_as: str


class RollbackFailed(BackupFact):
    """The rollback failed. Only the programs in `steps` were rolled back before the failure; the others are unchanged."""

    backup: str
    error: str
    steps: dict[str, int | None]  # by program; None: not known


# --- copies off the box (`features/offsite/decide.py`) ----------------------------------------------------------------


class OffsiteFact(Fact):
    """A fact about copies in a repository off the box."""


class OffsiteAsked(OffsiteFact):
    """A copy was requested. `cause` is one of `features/offsite/rules.py`."""

    cause: str


class OffsiteCopied(OffsiteFact):
    """A copy is in the repository, as restic's `snapshot`. Its files were collected at `as_of_s` (journal time).

    `missed`: why the checkpoints of some programs are not in it. `sent_bytes`: the data that was new to the repository.
    """

    cause: str
    snapshot: str
    as_of_s: float
    as_of_wall_s: float
    steps: dict[str, int | None]  # by program; None: not known
    size_bytes: int
    sent_bytes: int
    took_s: float
    missed: dict[str, str] = field(default_factory=dict)
    verified: bool = False  # the repository was verified after the copy, and the copy has every program
    then: str = ""  # what the copy says of the next one (`features/offsite/rules.py`); empty: as in older releases


class OffsiteFailed(OffsiteFact):
    """The task `what` failed: copy, forget, check or take-over. `error` quotes restic."""

    what: str
    error: str
    cause: str = ""
    due_wall_s: float | None = None


class OffsiteTended(OffsiteFact):
    """Old copies were removed (`what` is forget), or the repository was verified (check). `due_wall_s`: by the calendar."""

    what: str
    due_wall_s: float | None = None
    read_percent: int | None = None  # of the data, by a check


class OffsiteLate(OffsiteFact):
    age_s: float


class OffsiteFenced(OffsiteFact):
    """Another box has taken over the repository, so no program runs here. `token`: of its lease; `place`: the repository."""

    box: str
    since_wall_s: float
    token: str = ""
    place: str = ""


class OffsiteReleased(OffsiteFact):
    """The fence ends: the repository that is configured now is not the one in which another box has taken over."""


class OffsiteHeld(OffsiteFact):
    """This box holds the repository. `token` names its lease."""

    token: str
    generation: int
    place: str = ""  # names the repository
    after: str = ""  # the box whose trainings it continues from a copy ...
    since_s: float | None = None  # ... and that box's last known sign of life, in journal time


# --- notices that this box ends (`features/notices/decide.py`) --------------------------------------------------------


class EndAnnounced(Fact):
    """A notice, by the provider or a configured source, that this box ends (`sure`), or may end.

    `until_s` (journal time) is the time of the end; None: unknown. `leave_at_s` is when the programs leave; None: never.
    """

    id: str
    source: str
    sure: bool
    what: str
    until_s: float | None = None
    leave_at_s: float | None = None


class EndCalledOff(Fact):
    """The notice of this id is over. `passed`: its time has passed, and the box is still there; else it was withdrawn."""

    id: str
    source: str
    passed: bool = False


# --- the end of the work, and the command that stops the box (`features/when_done/decide.py`) -------------------------


class WhenDoneStep(Fact):
    """A step of an end of the work, or the operator's word: `step` is a Step or an action of `features/when_done/rules.py`.

    `until_s` is of a delay, `error` of a step that failed, and `output` has the last lines of the command.
    """

    step: str
    cause: str = ""
    until_s: float | None = None
    error: str = ""
    output: str = ""


# --- alerts ----------------------------------------------------------------------------------------------------------


class AlertFact(Fact):
    """A fact about an alert (`features/alerts/decide.py`); `why` is the text of the alert."""


class AlertRaised(AlertFact):
    """An alert is sent: it waits for each of `targets`. Committed together with the fact that it reports.

    `tokens` is the number of tokens left for the rate limit; `more` is the number of held alerts that it stands for. `text`
    is its text if that has more than one line.
    """

    id: str
    alert: str
    severity: str
    program: str  # empty: about the box
    targets: tuple[str, ...]
    tokens: float
    more: int = 0
    text: str = ""


class AlertHeld(AlertFact):
    """An alert is counted instead of sent. A later alert reports the number (`features/alerts/rules.py`)."""

    alert: str
    severity: str
    program: str


class AlertDelivered(AlertFact):
    id: str
    target: str


class ReportMade(AlertFact):
    """The daily report: its `text`, for the due time `due_wall_s`. It is sent as an alert."""

    text: str
    due_wall_s: float


class AlertTargetFailing(AlertFact):
    """A target does not accept alerts; they wait. Recorded once until the next `AlertDelivered` to this target."""

    target: str
    error: str


class AlertsDropped(AlertFact):
    """These alerts were never delivered to a target, and are dropped for it."""

    target: str
    ids: tuple[str, ...]


# --- programs ----------------------------------------------------------------------------------------------------------


class ProgramConfigured(ProgramFact):
    """A program appeared in, or changed with, the config. `digest` covers everything that needs a restart to change.

    A changed program counts as another program: earlier deaths are forgiven. `own_digest` covers only the program's own
    settings. `level_only`: only the settings of the level changed, so the lowered batches of each level stay. `moved`: the
    load rule changed the level, so nothing is forgiven. `live`: only settings that need no restart changed. `changed` are
    the old and new values, such as `lr 0.0003 -> 0.001`.
    """

    digest: str
    autostart: bool = True
    own_digest: str = ""
    level_only: bool = False
    moved: bool = False
    service: bool = False  # it uses no slot and is no training
    live: bool = False
    changed: tuple[str, ...] = ()


class ProgramRemoved(ProgramFact):
    """The program left the config; its files stay."""


class Wanted(ProgramFact):
    """Whether the operator wants a program to run or to stop. This survives daemon restarts and reboots."""

    run: bool
    by: str


class SpawnIntended(AttemptFact):
    """Committed before the shim is started: after a crash in between, the next daemon finds the attempt by its token."""

    attempt: int
    digest: str
    level: str


class JobSubmitted(AttemptFact):
    """The cluster accepted the attempt's job. After a crash since `SpawnIntended`, the next daemon finds the job again."""

    job: str


class JobStarted(AttemptFact):
    """The attempt's job has a node."""

    job: str
    node: str
    partition: str
    account: str
    gpus: int | None = None


class JobRequeued(ProgramFact):
    """The cluster has put a job back into its queue: the next attempt is the same job, and has this token."""

    job: str
    next_token: str


class Spawned(AttemptFact):
    """The worker's program image runs. Pids are meaningful only together with the boot id and start ticks."""

    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int
    adopted: bool = False


class SpawnFailed(AttemptFact):
    """No process was started: fork or exec failed, or the directory could not be used."""

    error: str
    permanent: bool = False


class BecameReady(AttemptFact):
    """First sign of training: the program counts as RUNNING from here."""

    after_s: float


class Resumption(AttemptFact):
    """The step at which an attempt resumes. `lost_steps` were computed before and are lost (None: unknown)."""

    step: int
    lost_steps: int | None
    lost_s: float | None = None
    cause: str = ""
    lost_share: float | None = None  # share of the previous attempt's computed steps, at most 1
    at_least: bool = False  # the previous attempt may have come further than its last reading (`policy/worker/loss.py`)
    steps_before: int = 0  # the attempt's own count begins anew after so many steps (`policy/script/resume_step.py`)
    key: str = ""  # of the worker's report


class Resumed(Resumption):
    """The worker restored a checkpoint, or reported that it has begun at step 0."""


class FirstStepShown(Resumption):
    """`step` is the first step in its own output: it has resumed there or before. This proves nothing about checkpoints."""


class ResumeUnknown(AttemptFact):
    """It trains again without a report of its first step: the work of earlier attempts is unproven."""


class Checkpointed(AttemptFact):
    """A newer durable checkpoint was seen (at most one fact in ten minutes and program; the manifests list all)."""

    step: int
    stall_s: float | None
    write_s: float | None
    well: bool = True  # no illness at that time: a checkpoint beyond the step of an illness then counts as recovery


class StartsFrom(AttemptFact):
    """The newest whole one of the program's own checkpoints, when this attempt was started. `path` is empty for none."""

    path: str
    step: int | None = None
    saved_at_s: float | None = None  # journal time
    size_bytes: int | None = None
    torn: str = ""  # the newest torn one, if it is newer; `path` itself: none is whole, and it may be cut
    sure: bool = True  # no newer checkpoint may be whole
    left: tuple[str, ...] = ()  # paths that were not set aside
    error: str = ""  # why the look failed; the other fields are then meaningless
    spare: str = ""  # the newest whole one that is older
    stale: str = ""  # a file of the script that names one that was set aside, and what to write into it
    odd: str = ""  # something about its checkpoints that needs a look


class CheckpointsOdd(AttemptFact):
    """Something about a script's own checkpoints needs a look: another writer, file name, or unit of their numbers."""

    key: str


class CheckpointSeen(AttemptFact):
    """A newer whole checkpoint, written by the program itself, was seen: an attempt's first, then one in ten minutes."""

    path: str
    step: int | None
    saved_at_s: float | None
    size_bytes: int | None


class CheckpointBad(AttemptFact):
    """A checkpoint failed its check on load and was set aside as `.bad`."""

    path: str
    error: str


class Reported(AttemptFact):
    """Any other report of the worker (`workers.contract.Client.report`): a failed save, a fresh start ..."""

    kind: str
    text: str
    key: str = ""  # kind and time of the report: the same line is read again later and must not count twice


class CheckpointFailed(AttemptFact):
    """A checkpoint could not be written; training continues. Recorded once until the next durable checkpoint."""

    error: str
    step: int | None = None
    free_bytes: int | None = None
    key: str = ""  # of the report, as in `Reported`


class CheckpointQuarantined(ProgramFact):
    """extralife set aside a checkpoint that loads, but kills its worker again and again."""

    path: str
    step: int | None
    on_trial: bool = False  # it is put back if the program dies of the ones before it too (`policy/worker/suspects.py`)


class CheckpointsPutBack(ProgramFact):
    """The program dies whichever checkpoint it resumes from: those that were set aside on trial, if any, are put back."""

    paths: tuple[str, ...]


class RolledBack(ProgramFact):
    """After a divergence or an illness at `step`, the checkpoints from `from_step` on are set aside (None: there is none).

    `number` counts rollbacks without a checkpoint beyond that step. `total` counts all: it selects the random seed.
    """

    step: int | None
    from_step: int | None
    number: int
    total: int


class BatchLowered(ProgramFact):
    """The program ran out of memory with `from_batch`: at this level it gets `batch_size` from now on."""

    level: str
    batch_size: int
    from_batch: int


class IntervalChosen(ProgramFact):
    """The checkpoint interval moved by more than a fifth."""

    interval_s: float


class PaceLearned(ProgramFact):
    """What is usual for the program at a level, for this and later attempts; `level` is empty if it uses none."""

    level: str
    rate: float | None  # steps a second
    save_gap_s: float | None = None  # between two checkpoints that it writes itself


class GapLearned(ProgramFact):
    """The largest healthy gap between two signs of progress in a phase grew; the stall limits depend on it."""

    phase: str
    gap_s: float


class GpuUsed(ProgramFact):
    """The GPUs on which the present attempt has held memory; empty: by its own report, on one that NVML does not show."""

    gpus: tuple[int, ...]


class NeedLearned(ProgramFact):
    """The program used at least a tenth more memory at this level than ever before: on the GPU, and on the host."""

    level: str
    gpu_bytes: int | None
    host_bytes: int | None


class Tallied(AttemptFact):
    """How an attempt spent its time from `from_s` to `until_s`, where the default would be wrong (`deciding/time_spent.py`).

    `seconds` is by the worker's own phase, or `starting`, `slow`, `blind`; the default is starting, then training.
    `ckpt_stall_s` is the part of the training spent in saves. `doing` is the phase at the end.
    """

    from_s: float
    until_s: float
    seconds: dict[str, float]
    ckpt_stall_s: float = 0.0
    doing: str = "training"
    steps: int | None = None
    rate: float | None = None  # steps a second, as the worker reported


class Recovered(AttemptFact):
    """After `healthy_s` of progress the restart streak is forgiven."""

    healthy_s: float


# --- trouble -------------------------------------------------------------------------------------------------------------


class Stalled(AttemptFact):
    """A verdict of `policy/worker/stall.py`: `stall` is the kind, `age_s` the time without progress, `limit_s` its limit."""

    stall: str
    age_s: float
    limit_s: float


class Quiet(AttemptFact):
    """It shows no progress, but works: no stall. At most once per attempt. `witness`: see `policy/worker/witness.py`."""

    age_s: float
    witness: str


class FiguresUnread(AttemptFact):
    """Its log, JSON lines or event files lack figures that the configuration expects; `why` is the reason."""


class ChildHalted(AttemptFact):
    """A process of its tree does not run: stopped (`proc_state` T; it gets SIGCONT), or long in the kernel (D)."""

    pid: int
    name: str
    proc_state: str


class Examined(AttemptFact):
    """The evidence that was taken before healing: stacks, kernel stack, state, last log lines."""

    evidence: dict[str, str]


class Revived(AttemptFact):
    """A stalled worker makes progress again without a restart (after SIGCONT, or by itself)."""

    after_s: float


class Slowed(AttemptFact):
    """The program's rate is below half of its usual one, or it stands still: an incident, not a reason to end it."""

    rate: float
    usual: float
    step: int | None = None  # the step at which it stands still; None: it makes steps
    made: int | None = None  # steps of this attempt until then
    anew: bool = False  # it was never as fast as earlier attempts


class Helped(AttemptFact):
    """The effect of the newest intervention of a kind was seen (`policy/worker/intervention.py`)."""

    kind: str


class Diverged(AttemptFact):
    """Its losses are not finite any more; up to `fine_step` they were (None: not known). It ends, and is rolled back."""

    fine_step: int | None
    key: str = ""  # of the report, as in `Reported`


class Sickened(AttemptFact):
    """A verdict of `policy/worker/health.py`, once per episode. `action` follows. Well up to `fine_step` (or None)."""

    illness: str
    action: str
    fine_step: int | None
    evidence: dict[str, str]


class Healed(AttemptFact):
    """A recorded illness has ended without any action."""

    illness: str


class PaceRegained(AttemptFact):
    """Its rate is usual again, `after_s` after `Slowed`."""

    rate: float
    usual: float
    after_s: float


class StopIntended(AttemptFact):
    """The worker is asked to checkpoint and leave.

    `reason` is operator, stall, diverged, sick, slow, config, level, rotation, shutdown, slot, rollback, offsite or notice.

    With no grace it is killed at once, because its checkpoint is not wanted.
    """

    reason: str
    by: str
    grace_s: float


class KillIntended(AttemptFact):
    """The worker did not leave in time: its whole tree gets SIGKILL."""

    waited_s: float


class NotEnded(AttemptFact):
    """SIGKILL did not end it: its processes may not be signalled, or two SIGKILLs had no effect. No further one is sent."""


class CommandGone(AttemptFact):
    """Processes outlived the grace after a clean end of their command (`policy/script/finish.py`).

    `background`: they are the program's work and run on; else they are ended.
    """

    processes: tuple[str, ...]
    background: bool


class Exited(AttemptFact):
    """An attempt and its whole tree are gone. `cause`: see `policy/worker/diagnosis.py`; `steps`: the last known step.

    `leftovers` names processes that survived the worker; they were ended before any other start.
    """

    cause: str
    code: int | None
    signal: int | None
    steps: int | None
    checkpoint_step: int | None
    leftovers: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()
    counted: bool = False
    max_rss_bytes: int | None = None
    ended_at_s: float | None = None  # journal time; None: when the fact was recorded
    oom_kills: int | None = None  # OOM kill count of its cgroup up to which ended attempts explain the kills
    at_least: bool = False  # `steps` is the last reading; it may have come further
    checkpoint_at_s: float | None = None  # when that checkpoint was durable, in journal time
    early: bool = False  # it ended before it counted as started, and has `start_retries` (`policy/worker/restart.py`)
    mean_return: float | None = None  # as last reported
    trained: bool = False  # it has made a step
    saved: bool = False  # it has written a checkpoint beyond the one that it began with


class BackedOff(ProgramFact):
    """The next start is due at `until_s` (journal time). `slow`: the breaker is open, so this is a single trial start."""

    until_s: float
    delay_s: float
    slow: bool


class Finished(ProgramFact):
    """The program reached its target. `doubtful`: perhaps not, by the end of its output or by what it left behind."""

    doubtful: bool = False


class NotRestarted(ProgramFact):
    """The program ended with a failure, and its `restart` is never."""


class GaveUp(ProgramFact):
    """The program cannot work as configured: no further start until the config changes or the operator starts it."""


class Requeued(ProgramFact):
    """Back to QUEUED: after a reboot, a config change, an operator's start, or because no slot is free.

    `handed_on`: its time in the slot is over (rotation), so it has no priority for the next slot.
    """

    handed_on: bool = False


class Gated(ProgramFact):
    """The program waits for GPU memory (`policy/box/gate.py`), of which `free_bytes` was free (None: unknown).

    With `lost` it waits for the GPU itself, and takes no slot (`policy/box/lost_gpu.py`).
    """

    gpu: int | None
    need_bytes: int
    free_bytes: int | None
    lost: str = ""


class StayedDown(ProgramFact):
    """The program is STOPPED, as the operator wanted: its attempt has ended."""


class Stamped(Record):
    """A fact with the data that the journal adds."""

    seq: int
    at_s: float
    wall_s: float
    boot_id: str
    fact: Fact
