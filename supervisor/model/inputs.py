"""Inputs: everything that can reach `decide`. Each carries `now_s` (journal time), when it was taken from the inbox.

Journal time counts seconds since the journal began. Inside a boot it advances with CLOCK_BOOTTIME; over a reboot it
advances by the measured downtime (wall clock, never negative). So it never steps, and a deadline written before a
reboot still means something after it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from supervisor.model.settings import Settings
from supervisor.policy.box.foundations import Finding
from supervisor.policy.box.readings import Gpus, Host
from supervisor.policy.cluster.job_end import JobEnd
from supervisor.policy.upkeep.notices import EndNotice
from supervisor.policy.upkeep.offsite import Claim, Lease
from supervisor.policy.worker.service_health import Checked
from supervisor.records import dataclass


@dataclass(frozen=True, slots=True)
class Input:
    """Base of all inputs."""

    now_s: float


@dataclass(frozen=True, slots=True)
class Halted:
    """A process of an attempt's tree that does not run: stopped (T), or in the kernel for long (D), since then."""

    pid: int
    start_ticks: int
    name: str
    proc_state: str
    since_s: float

    def __str__(self) -> str:
        return f"{self.name}({self.pid})"


@dataclass(frozen=True, slots=True)
class OwnCheckpoint:
    """The newest whole checkpoint that a program has written itself, at one look (`adapters/process/own_checkpoints.py`)."""

    path: str = ""  # empty: there is none
    step: int | None = None
    saved_at_s: float | None = None  # journal time
    size_bytes: int | None = None
    torn: str = ""  # the newest torn one, if it is newer
    sure: bool = True  # nothing newer may be whole
    note: str = ""  # what is wrong there, as a clause; empty: nothing
    interval_s: float | None = None  # the usual time between two of them
    error: str = ""  # it could not be looked at, so the rest says nothing


@dataclass(frozen=True, slots=True)
class Sample:
    """A reading of one live attempt at one moment. None is "not known", never zero. Times are journal time."""

    token: str
    proc_state: str | None = None  # R S D T t Z of /proc/PID/stat; None: could not be read
    live_at_s: float | None = None  # last stamp of the worker's side thread
    progress_at_s: float | None = None  # the last sign of progress, from any source
    phase: str | None = None  # a name of workers.contract.WorkerPhase in lower case
    phase_since_s: float | None = None
    phase_deadline_s: float | None = None
    beat_lost: bool = False  # its beats cannot be read just now: `progress_at_s` is of its log and its CPU time
    ready: bool = False  # training has begun: phase TRAINING, READY=1, or a first sign of progress
    steps: int | None = None
    frames: int | None = None
    episodes: int | None = None
    nan_count: int | None = None
    target: int | None = None
    target_kind: str | None = None  # "env_steps", "episodes" or "seconds_left"
    steps_per_s: float | None = None
    ckpt_step: int | None = None
    ckpt_at_s: float | None = None
    ckpt_stall_s: float | None = None
    ckpt_write_s: float | None = None
    ckpt_count: int = 0
    num_envs: int | None = None
    batch_size: int | None = None
    rss_bytes: int | None = None
    cuda_bytes: int | None = None
    # What else it reports, by name in `workers.contract.FIGURES`; of its own output also what has another name.
    figures: Mapping[str, float] = field(default_factory=dict)
    first_step: int | None = None  # the first step that this attempt's own output shows: it has resumed there or before
    unread: str = ""  # why less of its own output is known than could be, as a clause
    status: str = ""  # the last STATUS= of sd_notify
    pressure: tuple[tuple[str, float], ...] = ()  # of its cgroup: per cent of the newest minute, by `cpu some` and so on
    memory_bytes: int | None = None  # of its cgroup, page cache included
    source: str = ""  # of its signs of progress, where the program's is `auto`; empty: none has spoken
    pids: tuple[int, ...] = ()  # of its tree, besides the worker itself
    halted: tuple[Halted, ...] = ()
    witness_at_s: float | None = None  # when its tree was last seen to work (`policy/worker/witness.py`) ...
    witness: str = ""  # ... and by what
    own: OwnCheckpoint | None = None  # where the program has said where its own checkpoints are
    health: Checked | None = None  # of a service with health checks


@dataclass(frozen=True, slots=True)
class Report:
    """One line that a worker left in `reports.jsonl` (`workers.contract.Client.report`)."""

    kind: str
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class Sampled(Input):
    """One look at everything: readings by program name, and what workers reported since the last look."""

    samples: dict[str, Sample] = field(default_factory=dict)
    reports: tuple[tuple[str, str, Report], ...] = ()  # (program, token, report)
    began_s: float | None = None  # no reading is older; None: now
    gpus: Gpus | None = None  # None: not looked at yet, or by nobody
    host: Host | None = None


@dataclass(frozen=True, slots=True)
class Woke(Input):
    """A deadline that `decide` has set has passed."""


class Survival(enum.StrEnum):
    """What the launcher found of an attempt that the journal believes to be alive."""

    ALIVE = "alive"
    ENDED = "ended"  # its exit record was read
    VANISHED = "vanished"  # its processes are gone without an exit record
    NEVER = "never"  # intended, but no process was started


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended, as far as anyone knows. The tree is gone and the run directory free when this is posted."""

    code: int | None = None
    signal: int | None = None
    leftovers: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()
    max_rss_bytes: int | None = None
    steps: int | None = None  # from the last beat
    shown_steps: int | None = None  # the newest that its own output shows: it may have come further
    ckpt_step: int | None = None
    ckpt_at_s: float | None = None  # when that was durable, in journal time
    reports: tuple[Report, ...] = ()
    batch_size: int | None = None  # from the last beat
    oom_kills: tuple[int, int] | None = None  # in its cgroup: before it began, when it had ended
    oom_own: bool = False  # that cgroup is its own: nobody else's kill is counted in it
    memory_max_bytes: int | None = None  # its limit
    oom_line: str = ""  # what the kernel's log says of its OOM killer and this very process
    fate: str = ""  # one clause when neither code nor signal is known
    ended_at_s: float | None = None  # journal time
    job: JobEnd | None = None  # it was a job of a cluster


@dataclass(frozen=True, slots=True)
class Survivor:
    """One attempt after a daemon's start."""

    token: str
    survival: Survival
    pid: int | None = None
    start_ticks: int | None = None
    shim_pid: int | None = None
    shim_start_ticks: int | None = None
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class BootEvidence:
    """What the boot adapter saw. `rebooted` is None on the first start of a state directory."""

    boot_id: str
    rebooted: bool | None
    evidence: str
    cause: str = "unclean"
    down_s: float | None = None
    up_s: float | None = None
    steps: dict[str, int] = field(default_factory=dict)  # by program, at the last sign of life of daemon or box
    ckpt_steps: dict[str, int] = field(default_factory=dict)  # by program, the newest valid checkpoint on disk
    last_sign_wall_s: float | None = None
    boot_wall_s: float | None = None
    last_sign_s: float | None = None  # the same in journal time
    mark_at_s: float | None = None  # when `steps` were written down, in journal time; the last sign may be newer
    kind: str = ""  # of the end of the boot before, as in `policy/box/reboot_cause.py`
    last_words: tuple[str, ...] = ()  # what speaks for it
    box: dict[str, str] = field(default_factory=dict)  # witnesses of which box this is (`policy/box/box_identity.py`)


@dataclass(frozen=True, slots=True)
class Began(Input):
    """The daemon's first input: its settings, what the boot adapter saw, what the launcher found alive."""

    settings: Settings
    boot: BootEvidence
    survivors: dict[str, Survivor]
    pid: int
    version: str
    salt: str = ""
    unrecorded_workers: dict[str, tuple[int, Survivor]] = field(default_factory=dict)  # alive: (attempt, what)


@dataclass(frozen=True, slots=True)
class ConfigLoaded(Input):
    """A checked new configuration is to be applied (`update`)."""

    settings: Settings
    only: tuple[str, ...] = ()  # program names; empty: all
    by: str = "operator"
    uid: int | None = None
    of_file: bool = True  # False: a program is taken out, and the configuration was not read
    request_id: int = 0  # who waits for the answer; 0: nobody


@dataclass(frozen=True, slots=True)
class ConfigFaulty(Input):
    """The configuration cannot be used, at a start (then `in_use` is the kept one in its place) or for a reload."""

    errors: tuple[str, ...]
    in_use: str = ""
    by: str = "operator"


@dataclass(frozen=True, slots=True)
class SpawnSucceeded(Input):
    program: str
    token: str
    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int


@dataclass(frozen=True, slots=True)
class CheckpointsFound(Input):
    """What a program's own checkpoints are at its start. `left`: those that could not be set aside."""

    program: str
    token: str
    found: OwnCheckpoint
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpawnBroke(Input):
    program: str
    token: str
    error: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Ended(Input):
    """An attempt and its whole tree are gone."""

    program: str
    token: str
    ending: Ending


@dataclass(frozen=True, slots=True)
class EvidenceTaken(Input):
    program: str
    token: str
    evidence: dict[str, str]


@dataclass(frozen=True, slots=True)
class JobSight:
    """The job of one attempt, as the cluster shows it. Empty and None: not known."""

    token: str
    job: str
    state: str = ""
    reason: str = ""
    node: str = ""
    partition: str = ""
    account: str = ""
    gpus: int | None = None
    start_expected_wall_s: float | None = None
    runs: bool = False


@dataclass(frozen=True, slots=True)
class JobsSeen(Input):
    """One look at the cluster's queue: the jobs by program. With an `error` nothing is known; `jobs` is the last look."""

    jobs: dict[str, JobSight] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClockMoved(Input):
    """The wall clock moved against CLOCK_BOOTTIME by `step_s`."""

    step_s: float


@dataclass(frozen=True, slots=True)
class FoundationsLooked(Input):
    """All that is not as it should be of the files and directories that the daemon relies on; posted when it changes."""

    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotDue(Input):
    """Many facts were recorded since the newest snapshot. A new snapshot keeps the next start short."""

    facts: int


@dataclass(frozen=True, slots=True)
class ReportDue(Input):
    """The newest time of the daily report that has passed, and the report."""

    due_wall_s: float
    text: str


@dataclass(frozen=True, slots=True)
class BackupDue(Input):
    """The newest time of the calendar that has passed (`policy/upkeep/backups.py`)."""

    due_wall_s: float


@dataclass(frozen=True, slots=True)
class BackupMade(Input):
    """The result of `commands.Backup`. With an `error` there is no backup."""

    name: str
    error: str = ""
    steps: dict[str, int | None] = field(default_factory=dict)
    size_bytes: int = 0
    method: str = ""
    removed: tuple[str, ...] = ()
    missed: dict[str, str] = field(default_factory=dict)  # programs that could not be saved, and why


@dataclass(frozen=True, slots=True)
class BackupChecked(Input):
    """The result of `commands.CheckBackup`: the programs that can go back to the backup, or why none can."""

    kept_as: str
    error: str = ""
    programs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupRestored(Input):
    """The result of `commands.RestoreBackup`. With an `error`, `steps` has the programs that were restored before it."""

    kept_as: str
    error: str = ""
    steps: dict[str, int | None] = field(default_factory=dict)
    kept: bool = False  # there was something to keep


@dataclass(frozen=True, slots=True)
class OffsiteDue(Input):
    """The newest time of a calendar of [offsite] that has passed. `what` is forget or check."""

    what: str
    due_wall_s: float


@dataclass(frozen=True, slots=True)
class LeaseFound(Input):
    """This box's claim on the repository of copies (`policy/upkeep/offsite.py`); `lease` is the one that counts now."""

    claim: Claim
    lease: Lease


@dataclass(frozen=True, slots=True)
class OffsiteDone(Input):
    """The result of a command about copies: `what` is copy, look, take-over, forget or check. With an `error` it failed."""

    what: str
    cause: str = ""
    error: str = ""
    snapshot: str = ""
    as_of_s: float = 0.0
    as_of_wall_s: float = 0.0
    steps: dict[str, int | None] = field(default_factory=dict)
    size_bytes: int = 0
    sent_bytes: int = 0
    took_s: float = 0.0
    missed: dict[str, str] = field(default_factory=dict)
    due_wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndNoticesRead(Input):
    """Every notice that this box ends, of all sources; posted when it changes. `errors`: sources that cannot be read."""

    found: tuple[EndNotice, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)  # by source


@dataclass(frozen=True, slots=True)
class AlertTried(Input):
    """The result of `commands.Deliver`. With an `error` the target has not accepted the alert."""

    target: str
    id: str
    error: str = ""


class Verb(enum.StrEnum):
    """What an operator may ask for that changes the world."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    SIGNAL = "signal"
    CLEAR = "clear"
    SHUTDOWN = "shutdown"
    RELOAD = "reload"
    BACKUP = "backup"
    ROLLBACK = "rollback"
    OFFSITE = "offsite"
    PIN = "pin"
    UNPIN = "unpin"


@dataclass(frozen=True, slots=True)
class Asked(Input):
    """A request of an operator. `names` are program names, already expanded from `all`. `by` names who asked.

    `text` is a backup's label, or the name of the one to go back to; no names then means all. Of OFFSITE it is `now`,
    `check` or `take-over`.
    """

    verb: Verb
    request_id: int
    names: tuple[str, ...] = ()
    signal: str = ""
    by: str = "operator"
    uid: int | None = None
    text: str = ""
    for_s: float | None = None  # of a pin, whose level is the only name; None: until further notice


@dataclass(frozen=True, slots=True)
class Terminated(Input):
    """The daemon got SIGTERM or SIGINT: an orderly end. `host`: the whole host is known to go down."""

    by: str
    host: bool = False
