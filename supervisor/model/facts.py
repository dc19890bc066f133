"""Facts: what durably happened. The daemon's state is a fold over them (`model/state.py`).

Rules that keep a journal readable for years:

* A fact is a frozen dataclass with a version, flat and JSON-shaped: str, int, float, bool, None, tuples, dicts.
* It says what happened and `why`, in one sentence for a person. It never says what to do.
* Its time is not in it: the journal stamps `at_s` (journal time), `wall_s` and `boot_id` on every row (`Stamped`).
* A field is added with a default; anything else makes a new kind, and the old one stays readable.

Telemetry (frames, rates, GPU samples) is not a fact: only verdicts drawn from it are.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from supervisor.records import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """Base of all facts; `why` is the reason in one sentence."""

    VERSION: ClassVar[int] = 1
    why: str


@dataclass(frozen=True, slots=True)
class ProgramFact(Fact):
    """A fact about one program."""

    program: str


@dataclass(frozen=True, slots=True)
class AttemptFact(ProgramFact):
    """A fact about one attempt of a program; `token` names the attempt."""

    token: str


# --- the daemon and the box ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DaemonStarted(Fact):
    """A daemon took over the state directory. `clean` says whether the one before had stopped in order."""

    pid: int
    version: str
    clean: bool
    salt: str  # random, makes this daemon's attempt tokens unlike those of any other on this host
    adopted: int = 0
    last_sign_s: float | None = None  # of the daemon before, in journal time


@dataclass(frozen=True, slots=True)
class DaemonStopping(Fact):
    """The daemon was asked to end. `keep_workers`: it re-executes itself, the workers stay."""

    keep_workers: bool
    by: str


@dataclass(frozen=True, slots=True)
class DaemonStopped(Fact):
    """An orderly end: every worker had left or was left behind on purpose."""


@dataclass(frozen=True, slots=True)
class DaemonSuspended(Fact):
    """The deciding loop did not run for `gap_s` (SIGSTOP, suspend, starvation): nobody is judged until `until_s`."""

    gap_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class HostRebooted(Fact):
    """The box restarted. `down_s` is last sign of life to boot; `up_s` the life of the boot that ended (None: unknown).

    `cause` is one of `orderly`, `operator`, `unclean`, `preempted` (an end that was announced, see `EndAnnounced`; this may
    be another box), `moved` (this is another box, see `BoxIdentified`); `end` says more
    of it (`policy/box/reboot_cause.py`; empty: unknown), in the box's own `last_words`.
    `steps` are each program's environment steps at the last sign of life, so that lost work can be told once it has resumed.
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


@dataclass(frozen=True, slots=True)
class BoxIdentified(Fact):
    """Which box this is: recorded when one of its identifiers is new or has changed (`policy/box/box_identity.py`).

    `another`: not the box that the record is of. Its own record of levels and reboots begins; the older one is kept.
    """

    hostname: str
    witnesses: dict[str, str]
    another: bool = False


@dataclass(frozen=True, slots=True)
class ClockStepped(Fact):
    """The wall clock moved by `step_s` against CLOCK_BOOTTIME. Nothing depends on it but what people read."""

    step_s: float


@dataclass(frozen=True, slots=True)
class ClockSet(Fact):
    """The wall clock of this boot was not set until now (`policy/box/wall_clock.py`): its stamps are `step_s` too early.

    `reboot_wall_s` and `down_s` mend the newest reboot, if that was stamped so; None: it was not, or nobody knows.
    """

    step_s: float
    reboot_wall_s: float | None = None
    down_s: float | None = None


@dataclass(frozen=True, slots=True)
class JournalSalvaged(Fact):
    """The journal was damaged: it is kept as `kept_as`, and rebuilt of the `kept` facts that could still be read.

    The last row of the rebuilt journal itself, so that no crash can part the two. `lost` is None when nobody can know.
    """

    error: str
    kept_as: str
    kept: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class JournalStalled(Fact):
    """The journal could not be written for `for_s` seconds, and nothing was started. The first fact after that time."""

    error: str
    for_s: float
    since_wall_s: float


@dataclass(frozen=True, slots=True)
class JournalRestored(Fact):
    """The journal's file was removed or replaced while the daemon ran; its `kept` facts are in a new file, none is lost.

    `found_kept_as`: the name under which the file that had taken its place is kept; empty: there was none.
    """

    error: str
    kept: int
    found_kept_as: str = ""


@dataclass(frozen=True, slots=True)
class FoundationLost(Fact):
    """A file or directory that the daemon relies on is missing, replaced or unreadable (`policy/box/foundations.py`).

    `look` is one of `missing`, `replaced`, `damaged`, `unknown`. `troubled`: it could not be restored.
    """

    name: str
    path: str
    look: str
    troubled: bool


@dataclass(frozen=True, slots=True)
class FoundationRestored(Fact):
    """It is in place again, after `for_s`. `troubled`: it had stayed away for longer than one try to restore it."""

    name: str
    path: str
    for_s: float
    troubled: bool


@dataclass(frozen=True, slots=True)
class ConfigRefused(Fact):
    """The configuration cannot be used, for these reasons. `in_use` is the kept one that is in force in its place.

    An empty `in_use`: the daemon was to read it anew and goes on with the settings that it has.
    """

    errors: tuple[str, ...]
    in_use: str
    by: str


@dataclass(frozen=True, slots=True)
class ConfigMended(Fact):
    """The configuration, which was refused before, is good again and in force."""


@dataclass(frozen=True, slots=True)
class Snapshot(Fact):
    """The state after all earlier facts (`model/snapshot.py`). Folding it gives `state`, without the earlier facts.

    So a start of the daemon folds from the newest one only, damage before it costs history and not the truth, and what
    is older may go to the archive.
    """

    state: str


@dataclass(frozen=True, slots=True)
class LevelChosen(Fact):
    """The level in force: `slots` programs at once. `by`: the config, the rule, a pin or a veto."""

    level: str
    slots: int
    trial: bool = False
    before: str = ""
    by: str = "config"


@dataclass(frozen=True, slots=True)
class LadderLaid(Fact):
    """The ladder that the box climbs, lowest first, and the record that it begins with (`load`, as in `Reviewed`)."""

    levels: tuple[str, ...]
    shapes: tuple[str, ...]  # a level of another shape is another level, even under the same name
    load: str


@dataclass(frozen=True, slots=True)
class Reviewed(Fact):
    """What `up_s` of training at a level have shown. `reading` is the kept steps a minute (None: not known).

    `load` is what the rule (`policy/level/load.py`) remembers from here on: told, and not to be worked out again by a later
    rule from the same evidence, or an upgrade would move boxes to another level without a fact that says why.
    """

    level: str
    up_s: float
    reading: float | None
    load: str


@dataclass(frozen=True, slots=True)
class RebootJudged(Fact):
    """How much of a reboot counts against which level (`policy/level/attribution.py`), and the load rule's new record."""

    level: str
    weight: float
    up_s: float
    load: str


@dataclass(frozen=True, slots=True)
class NodeFaultJudged(Fact):
    """What a job that was lost by its node means for the level, and the load rule's new record."""

    node: str
    level: str
    weight: float
    up_s: float
    load: str


@dataclass(frozen=True, slots=True)
class LevelSettled(Fact):
    """Every slot trains again, `after_s` after a change of level that has cost `cost_s` of all slots' training."""

    level: str
    after_s: float
    cost_s: float


@dataclass(frozen=True, slots=True)
class LevelPinned(Fact):
    """The operator wants this level, until `until_s` (journal time; None: until further notice)."""

    level: str
    by: str
    until_s: float | None = None
    load: str = ""  # as in `Reviewed`; empty: there is no ladder to climb


@dataclass(frozen=True, slots=True)
class LevelUnpinned(Fact):
    """The operator, the clock or the config has ended the pin."""

    level: str
    by: str


@dataclass(frozen=True, slots=True)
class GpusFound(Fact):
    """How many GPUs this box has, whenever that is another number than before; `names` are theirs, by index."""

    count: int
    names: tuple[str, ...]
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpusUnknown(Fact):
    """The GPUs cannot be read: NVML does not answer (`hung_s`), or returns an error. Training continues."""

    error: str
    hung_s: float | None = None


@dataclass(frozen=True, slots=True)
class GpusKnown(Fact):
    """They can be read again."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GpuLost(Fact):
    """One GPU does not answer any more, while the others do."""

    gpu: int
    uuid: str
    error: str


@dataclass(frozen=True, slots=True)
class GpuBack(Fact):
    """It answers again."""

    gpu: int
    uuid: str


@dataclass(frozen=True, slots=True)
class XidReported(Fact):
    """The driver reported an error of a GPU: NVIDIA's number for it."""

    gpu: int
    uuid: str
    xid: int
    grave: bool


@dataclass(frozen=True, slots=True)
class Vetoed(Fact):
    """A pre-check forbids every level above `cap` (the name of a level), until it is lifted (`policy/box/prechecks.py`)."""

    rule: str
    cap: str
    level: str  # the one in force when it was seen


@dataclass(frozen=True, slots=True)
class VetoLifted(Fact):
    """The reason of a veto has been gone for long enough."""

    rule: str
    after_s: float


@dataclass(frozen=True, slots=True)
class OperatorAsked(Fact):
    """Someone used the control socket for something that changes the world; `uid` is the peer's."""

    request: str
    args: tuple[str, ...]
    uid: int | None


# --- a cluster that runs the programs as jobs (`deciding/cluster.py`) ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterUnreachable(Fact):
    """The cluster's controller does not answer. Jobs run on; nothing is submitted again, and nothing is called ended."""

    error: str


@dataclass(frozen=True, slots=True)
class ClusterReached(Fact):
    """It answers again."""

    after_s: float


@dataclass(frozen=True, slots=True)
class NodeFaulted(Fact):
    """A job of ours was lost by its node. `weight` is how much of it counts against the level (`cluster/level_fault.py`)."""

    node: str
    partition: str
    by: str  # the program
    job: str
    new: bool = True  # False: of the same fault as the job before
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeExcluded(Fact):
    """New jobs avoid a node until then, in journal time."""

    node: str
    until_s: float


# --- backups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackupFact(Fact):
    """A fact about a backup, or about going back to one (`deciding/backups.py`)."""


@dataclass(frozen=True, slots=True)
class BackupIntended(BackupFact):
    """Committed before anything is copied. `cause`: operator, calendar or level; `due_wall_s` is the calendar's time."""

    name: str
    label: str
    cause: str
    programs: tuple[str, ...]
    due_wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class BackedUp(BackupFact):
    """A verified copy of each program's newest whole checkpoint is durable. `method`: reflink, link or copy.

    `removed` are the older backups that had to go for it. `missed` are programs whose checkpoints could not be copied, with
    the reason.
    """

    name: str
    steps: dict[str, int | None]  # by program; None: not known
    size_bytes: int
    method: str
    removed: tuple[str, ...] = ()
    missed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackupFailed(BackupFact):
    """The backup failed and left no files."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class RollbackIntended(BackupFact):
    """Programs (none named: all that are in it) are to go back to a backup. First it is verified; nothing else is done."""

    backup: str
    programs: tuple[str, ...]
    kept_as: str  # the name of the backup that the present checkpoints become
    by: str


@dataclass(frozen=True, slots=True)
class RollbackBegun(BackupFact):
    """The backup is whole: from here on these programs stop, and none of them starts before `RolledBackTo` or a failure."""

    backup: str
    programs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolledBackTo(BackupFact):
    """These programs go on from these steps; what was there is the backup `kept_as` (empty: there was nothing)."""

    backup: str
    steps: dict[str, int | None]  # by program; None: not known
    kept_as: str


@dataclass(frozen=True, slots=True)
class RollbackFailed(BackupFact):
    """The rollback failed. Nothing has changed, except for the programs in `steps`, which it had reached before."""

    backup: str
    error: str
    steps: dict[str, int | None]  # by program; None: not known


# --- alerts ----------------------------------------------------------------------------------------------------------


# --- copies off the box (`deciding/offsite.py`) -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsiteFact(Fact):
    """A fact about copies in a repository off the box."""


@dataclass(frozen=True, slots=True)
class OffsiteAsked(OffsiteFact):
    """A copy was requested. `cause` is one of `policy/upkeep/offsite.py`."""

    cause: str


@dataclass(frozen=True, slots=True)
class OffsiteCopied(OffsiteFact):
    """A copy is in the repository, as restic's `snapshot`. Its files were collected at `as_of_s` (journal time).

    `steps` are those of each program's checkpoint in it; `missed` are programs whose checkpoints could not be copied, with
    the reason. `sent_bytes` were new to the repository.
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


@dataclass(frozen=True, slots=True)
class OffsiteFailed(OffsiteFact):
    """`what` did not succeed: copy, forget, check or take-over. `error` quotes restic."""

    what: str
    error: str
    cause: str = ""
    due_wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class OffsiteTended(OffsiteFact):
    """Old copies were removed (`what` is forget), or the repository was verified (check). `due_wall_s`: by the calendar."""

    what: str
    due_wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class OffsiteLate(OffsiteFact):
    """The newest copy is too old."""

    age_s: float


@dataclass(frozen=True, slots=True)
class OffsiteFenced(OffsiteFact):
    """Another box has taken over the repository, so no program runs here. `token` is of its lease, `place` names where."""

    box: str
    since_wall_s: float
    token: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class OffsiteReleased(OffsiteFact):
    """The repository that is configured now is not the one in which another box has taken over."""


@dataclass(frozen=True, slots=True)
class OffsiteHeld(OffsiteFact):
    """This box holds the repository. `token` names its lease."""

    token: str
    generation: int
    place: str = ""  # names the repository


# --- notices that this box ends (`deciding/notices.py`) -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndAnnounced(Fact):
    """The provider, or who speaks for it, says that this box ends (`sure`), or may end.

    `until_s` (journal time) is when, `leave_at_s` when the programs leave because of it; None: nobody knows, and never.
    """

    id: str
    source: str
    sure: bool
    what: str
    until_s: float | None = None
    leave_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndCalledOff(Fact):
    """The notice of this id counts no more. `passed`: its time is over, and the box is still there; else withdrawn."""

    id: str
    source: str
    passed: bool = False


@dataclass(frozen=True, slots=True)
class AlertFact(Fact):
    """A fact about an alert (`deciding/alerting.py`); `why` is what the alert says."""


@dataclass(frozen=True, slots=True)
class AlertRaised(AlertFact):
    """An alert is sent: from now on each of `targets` is owed it. Committed with the fact that it reports.

    `tokens` is what the rate limit has left after it; `more` says how many that were held it stands for. `text` is what it
    says where that has more than one line.
    """

    id: str
    alert: str
    severity: str
    program: str  # empty: about the box
    targets: tuple[str, ...]
    tokens: float
    more: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class AlertHeld(AlertFact):
    """An alert is counted instead of sent. A later alert says how many there were (`policy/upkeep/alerting.py`)."""

    alert: str
    severity: str
    program: str


@dataclass(frozen=True, slots=True)
class AlertDelivered(AlertFact):
    """A target has taken it."""

    id: str
    target: str


@dataclass(frozen=True, slots=True)
class ReportMade(AlertFact):
    """The daily report: its `text`, for the time of the calendar `due_wall_s`. It goes out as an alert."""

    text: str
    due_wall_s: float


@dataclass(frozen=True, slots=True)
class AlertTargetFailing(AlertFact):
    """A target does not take alerts; they wait. Once a spell: the next `AlertDelivered` to it ends it."""

    target: str
    error: str


@dataclass(frozen=True, slots=True)
class AlertsDropped(AlertFact):
    """These alerts have never reached a target, and will not."""

    target: str
    ids: tuple[str, ...]


# --- programs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgramConfigured(ProgramFact):
    """A program appeared in, or changed with, the config. `digest` covers everything that needs a restart to change.

    Changed, it is another program: earlier deaths are forgiven. Where only the level has become another one (`own_digest`
    is that of the program's own settings) the batches stay that each level has shown it can hold; `moved` there by the
    rule that climbs, nothing is forgiven.
    """

    digest: str
    autostart: bool = True
    own_digest: str = ""
    level_only: bool = False
    moved: bool = False
    service: bool = False  # it takes no slot and is no training


@dataclass(frozen=True, slots=True)
class ProgramRemoved(ProgramFact):
    """The program left the config; its files stay."""


@dataclass(frozen=True, slots=True)
class Wanted(ProgramFact):
    """What the operator wants of a program, for good: `run` or `stop`. Survives daemon restarts and reboots."""

    run: bool
    by: str


@dataclass(frozen=True, slots=True)
class SpawnIntended(AttemptFact):
    """Committed before the shim is started: a daemon that is killed in between finds the attempt again by its token."""

    attempt: int
    digest: str
    level: str


@dataclass(frozen=True, slots=True)
class JobSubmitted(AttemptFact):
    """The cluster has the attempt's job. `SpawnIntended` came before: a daemon killed in between finds the job again."""

    job: str


@dataclass(frozen=True, slots=True)
class JobStarted(AttemptFact):
    """The attempt's job has a node."""

    job: str
    node: str
    partition: str
    account: str
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class JobRequeued(ProgramFact):
    """The cluster has put a job back into its queue: the next attempt is the same job, and has this token."""

    job: str
    next_token: str


@dataclass(frozen=True, slots=True)
class Spawned(AttemptFact):
    """The worker's program image runs. Pids are meaningful with the boot id and start ticks only."""

    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class SpawnFailed(AttemptFact):
    """No process was started: fork or exec failed, or the directory could not be used."""

    error: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class BecameReady(AttemptFact):
    """First sign of training: the program counts as RUNNING from here."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Resumption(AttemptFact):
    """From which step an attempt goes on. `lost_steps` were computed before and are gone (None: unknown)."""

    step: int
    lost_steps: int | None
    lost_s: float | None = None
    cause: str = ""
    lost_share: float | None = None  # of what the attempt before had computed; never more than all of it
    at_least: bool = False  # the attempt before may have come further than anybody saw (`policy/worker/loss.py`)


@dataclass(frozen=True, slots=True)
class Resumed(Resumption):
    """The worker restored a checkpoint, or says that it has begun at step 0."""


@dataclass(frozen=True, slots=True)
class FirstStepShown(Resumption):
    """`step` is the first that its own output shows: it has resumed there or before. Of checkpoints it says nothing."""


@dataclass(frozen=True, slots=True)
class ResumeUnknown(AttemptFact):
    """It trains again and has not said from which step on: what the attempts before had computed is unproven."""


@dataclass(frozen=True, slots=True)
class Checkpointed(AttemptFact):
    """A newer durable checkpoint was seen (at most one fact in ten minutes and program; the manifests know all)."""

    step: int
    stall_s: float | None
    write_s: float | None
    well: bool = True  # it showed no illness then: a step beyond one counts as recovery


@dataclass(frozen=True, slots=True)
class StartsFrom(AttemptFact):
    """The newest whole one of the program's own checkpoints, when this attempt was started. `path` is empty for none."""

    path: str
    step: int | None = None
    saved_at_s: float | None = None  # journal time
    size_bytes: int | None = None
    torn: str = ""  # the newest torn one, if it is newer
    sure: bool = True  # nothing newer may be whole
    left: tuple[str, ...] = ()  # could not be set aside
    error: str = ""  # they could not be looked at: nothing else is known


@dataclass(frozen=True, slots=True)
class CheckpointSeen(AttemptFact):
    """A newer whole one of the program's own checkpoints was seen (at most one fact in ten minutes and program)."""

    path: str
    step: int | None
    saved_at_s: float | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class CheckpointBad(AttemptFact):
    """A checkpoint failed its check on load and was set aside as `.bad`."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class Reported(AttemptFact):
    """Something else that the worker reported (`workers.contract.Client.report`): a failed save, a fresh start ..."""

    kind: str
    text: str
    key: str = ""  # kind and time of the report: the same line is read again later and must not count twice


@dataclass(frozen=True, slots=True)
class CheckpointFailed(AttemptFact):
    """A checkpoint could not be written; training continues. Recorded once until the next durable checkpoint."""

    error: str
    step: int | None = None
    free_bytes: int | None = None
    key: str = ""  # of the report, as in `Reported`


@dataclass(frozen=True, slots=True)
class CheckpointQuarantined(ProgramFact):
    """A checkpoint that loads but kills its worker again and again was set aside by us."""

    path: str
    step: int | None


@dataclass(frozen=True, slots=True)
class RolledBack(ProgramFact):
    """After a divergence or an illness at `step`: checkpoints from `from_step` on (None: there is none) are set aside by us.

    `number` counts roll-backs without a checkpoint beyond that step, `total` all of them: the chance that is drawn.
    """

    step: int | None
    from_step: int | None
    number: int
    total: int


@dataclass(frozen=True, slots=True)
class BatchLowered(ProgramFact):
    """It ran out of memory with `from_batch`: at this level it gets `batch_size` from now on."""

    level: str
    batch_size: int
    from_batch: int


@dataclass(frozen=True, slots=True)
class IntervalChosen(ProgramFact):
    """The checkpoint interval moved by more than a fifth."""

    interval_s: float


@dataclass(frozen=True, slots=True)
class GapLearned(ProgramFact):
    """The largest healthy gap between two signs of progress in a phase grew; stall limits follow it."""

    phase: str
    gap_s: float


@dataclass(frozen=True, slots=True)
class NeedLearned(ProgramFact):
    """It was seen to hold more at this level than ever before, by a tenth or more: of GPU memory, and of the host's."""

    level: str
    gpu_bytes: int | None
    host_bytes: int | None


@dataclass(frozen=True, slots=True)
class Tallied(AttemptFact):
    """How an attempt spent its time from `from_s` to `until_s`, where the default would be wrong (`deciding/time_spent.py`).

    `seconds` by the worker's own phase, or `starting`, `slow`, `blind`; the default is starting, then training.
    `ckpt_stall_s` of the training went into saves. `doing` is what it was busy with at the end.
    """

    from_s: float
    until_s: float
    seconds: dict[str, float]
    ckpt_stall_s: float = 0.0
    doing: str = "training"
    steps: int | None = None
    rate: float | None = None  # steps a second, as the worker reported


@dataclass(frozen=True, slots=True)
class Recovered(AttemptFact):
    """Healthy minutes of progress: the restart streak is forgiven."""

    healthy_s: float


# --- trouble -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stalled(AttemptFact):
    """A verdict of `policy/worker/stall.py`: `stall` is the class, `age_s` the time without progress, `limit_s` allowed."""

    stall: str
    age_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class Quiet(AttemptFact):
    """It shows no progress, but it works: no stall. Once an attempt. `witness` is of `policy/worker/witness.py`."""

    age_s: float
    witness: str


@dataclass(frozen=True, slots=True)
class FiguresUnread(AttemptFact):
    """Its log, JSON lines or event files give less than the configuration asks of them; `why` is the reason."""


@dataclass(frozen=True, slots=True)
class ChildHalted(AttemptFact):
    """A process of its tree does not run: stopped (`proc_state` T; it is sent SIGCONT), or in the kernel for long (D)."""

    pid: int
    name: str
    proc_state: str


@dataclass(frozen=True, slots=True)
class Examined(AttemptFact):
    """The evidence that was taken before healing: stacks, kernel stack, state, last log lines."""

    evidence: dict[str, str]


@dataclass(frozen=True, slots=True)
class Revived(AttemptFact):
    """A stalled worker moves again without having been killed (after SIGCONT, or by itself)."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Slowed(AttemptFact):
    """The program makes progress at less than half of its own p90: an incident, not a reason to end it."""

    rate: float
    usual: float


@dataclass(frozen=True, slots=True)
class Diverged(AttemptFact):
    """Its losses are not finite any more; up to `fine_step` all was well (None: not known). It ends, and is rolled back."""

    fine_step: int | None
    key: str = ""  # of the report, as in `Reported`


@dataclass(frozen=True, slots=True)
class Sickened(AttemptFact):
    """A verdict of `policy/worker/health.py`, once a spell. `action` follows; all was well up to `fine_step` (or None)."""

    illness: str
    action: str
    fine_step: int | None
    evidence: dict[str, str]


@dataclass(frozen=True, slots=True)
class Healed(AttemptFact):
    """A recorded illness has ended without any action."""

    illness: str


@dataclass(frozen=True, slots=True)
class PaceRegained(AttemptFact):
    """It is as fast as usual again, `after_s` after it was called slow."""

    rate: float
    usual: float
    after_s: float


@dataclass(frozen=True, slots=True)
class StopIntended(AttemptFact):
    """The worker is asked to checkpoint and leave.

    `reason` is operator, stall, diverged, sick, slow, config, level, rotation, shutdown, slot, rollback, offsite or notice.

    With no grace it is killed at once, because what it would save is not wanted.
    """

    reason: str
    by: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class KillIntended(AttemptFact):
    """It did not leave in time: SIGKILL for its whole tree."""

    waited_s: float


@dataclass(frozen=True, slots=True)
class Exited(AttemptFact):
    """An attempt and its whole tree are gone. `cause` is from `policy/worker/diagnosis.py`; `steps` the last known.

    `leftovers` names the processes that outlived the worker and were ended before anything else was started.
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
    oom_kills: int | None = None  # the count of its cgroup up to which OOM kills are accounted for
    at_least: bool = False  # `steps` is where it was last seen, not where it ended
    checkpoint_at_s: float | None = None  # when that checkpoint was durable, in journal time
    early: bool = False  # before it counted as started, and its settings limit the retries of that


@dataclass(frozen=True, slots=True)
class BackedOff(ProgramFact):
    """The next start is due at `until_s` (journal time). `slow`: the breaker is open, one trial start at a time."""

    until_s: float
    delay_s: float
    slow: bool


@dataclass(frozen=True, slots=True)
class Finished(ProgramFact):
    """The program reached its target."""


@dataclass(frozen=True, slots=True)
class GaveUp(ProgramFact):
    """It can never work as configured: no further start until the config changes or the operator says so."""


@dataclass(frozen=True, slots=True)
class Requeued(ProgramFact):
    """Back to QUEUED: after a reboot, a config change, an operator's start, or because no slot is free.

    `handed_on`: its time in the slot is over, so it has no claim to come first again.
    """

    handed_on: bool = False


@dataclass(frozen=True, slots=True)
class Gated(ProgramFact):
    """It has a slot, and waits for memory of its GPU (`policy/box/gate.py`). `free_bytes` was free (None: unknown)."""

    gpu: int
    need_bytes: int
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class StayedDown(ProgramFact):
    """STOPPED, as the operator wanted, now that its attempt is gone."""


@dataclass(frozen=True, slots=True)
class Stamped:
    """A fact as the journal holds it."""

    seq: int
    at_s: float
    wall_s: float
    boot_id: str
    fact: Fact
