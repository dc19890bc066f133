"""Inputs: everything that can reach `decide`. Each has `now_s` (journal time), the time when it was taken from the inbox.

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
from supervisor.policy.box.supervision import Failing
from supervisor.policy.script.figures import Fall, Figures
from supervisor.policy.script.service_health import Checked
from supervisor.policy.worker.divergence import Losses
from supervisor.policy.worker.no_room import Disk
from supervisor.records import Record, replace
from workers.contract import FIGURES


class Input(Record):
    now_s: float


class Halted(Record):
    """A process of an attempt's tree that does not run since `since_s`: stopped (T), or long in the kernel (D)."""

    pid: int
    start_ticks: int
    name: str
    proc_state: str
    since_s: float

    def __str__(self) -> str:
        return f"{self.name}({self.pid})"


class OwnCheckpoint(Record):
    """The newest whole checkpoint written by the program itself, at one look (`adapters/process/own_checkpoints.py`)."""

    path: str = ""  # empty: there is none
    step: int | None = None
    saved_at_s: float | None = None  # journal time
    size_bytes: int | None = None
    torn: str = ""  # the newest torn one, if it is newer; `path` itself: none is whole, and it may be cut
    sure: bool = True  # no newer checkpoint may be whole
    note: str = ""  # a problem with the checkpoints, as a clause; empty: none
    interval_s: float | None = None  # the usual time between two checkpoints
    error: str = ""  # why the look failed; the other fields are then meaningless
    spare: str = ""  # the newest whole one that is older, as a start's look finds it; empty: there is none
    put_back: bool = False  # it was torn or gone, and is the copy that extralife keeps
    odd: str = ""  # something about its checkpoints that needs a look, as a sentence (`whose_checkpoint.py`)
    displaced: tuple[str, ...] = ()  # those of an older experiment that stay in place of what the script saves
    stale: str = ""  # a file of the script that names one that was set aside, and what to write into it; empty: none


class CommandLeft(Record):
    """The command of an attempt has ended with a success code, and processes of its tree run on."""

    at_s: float  # journal time
    lived_s: float
    processes: tuple[str, ...]  # at the first look, as `name(pid)`
    detached: bool  # one of them is a session of its own, or ignores SIGHUP: nohup, setsid, tmux, a double fork


class Sample(Record):
    """A reading of one live attempt at one moment. None is "not known", never zero. Times are journal time."""

    token: str
    proc_state: str | None = None  # R S D T t Z of /proc/PID/stat; None: could not be read
    live_at_s: float | None = None  # last time stamp of the worker's side thread
    progress_at_s: float | None = None  # the last sign of progress, from any source
    phase: str | None = None  # a name of workers.contract.WorkerPhase in lower case
    phase_since_s: float | None = None
    phase_deadline_s: float | None = None
    beat_lost: bool = False  # its beats cannot be read now: `progress_at_s` comes from its log and its CPU time
    ready: bool = False  # training has begun: phase TRAINING, READY=1, or a first sign of progress
    steps: int | None = None
    frames: int | None = None
    episodes: int | None = None
    nan_count: int | None = None
    losses: Losses | None = None  # of its own output; None: its beats count its bad updates, or nothing is known
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
    # Other reported figures, by name in `workers.contract.FIGURES`; figures from its own output may have other names too.
    figures: Mapping[str, float] = field(default_factory=dict)
    first_steps: tuple[int, ...] = ()  # the first different steps in this attempt's own output, at most three
    fall: Fall | None = None  # its own output fell back to an earlier step
    unread: str = ""  # why a part of its own output could not be read, as a clause
    status: str = ""  # the last STATUS= of sd_notify
    pressure: tuple[tuple[str, float], ...] = ()  # of its cgroup: per cent of the newest minute, by `cpu some` and so on
    memory_bytes: int | None = None  # of its cgroup, page cache included
    source: str = ""  # source of its signs of progress, if the program's is `auto`; empty: no source has reported yet
    pids: tuple[int, ...] = ()  # processes of its tree, except the worker itself
    uses_cuda: bool = False  # a process of its tree has used CUDA
    halted: tuple[Halted, ...] = ()
    untouchable: tuple[str, ...] = ()  # processes of its tree that we may not signal, as `python3(812) of root`
    witness_at_s: float | None = None  # when a witness last showed work (`policy/worker/witness.py`) ...
    witness: str = ""  # ... and which one
    own: OwnCheckpoint | None = None  # set if the config says where the program writes its own checkpoints
    health: Checked | None = None  # of a service with health checks
    left: CommandLeft | None = None

    def in_total(self, steps_before: int, *, own_target: bool) -> Sample:
        """The sample of an attempt whose own count of steps began anew after so many steps; `own_target`: its target too."""
        steps, ckpt_step, target = (
            None if value is None else value + steps_before for value in (self.steps, self.ckpt_step, self.target)
        )
        target = target if own_target else self.target
        losses = self.losses
        if losses is not None and losses.fine_step is not None:
            losses = replace(losses, fine_step=losses.fine_step + steps_before)
        # Its frames begin anew, too.
        return replace(self, steps=steps, ckpt_step=ckpt_step, target=target, frames=None, losses=losses)

    def own_figures(self) -> dict[str, float]:
        """The figures of the script's own names. Shares of time are never among them."""
        return {name: each for name, each in self.figures.items() if name not in FIGURES and not name.startswith("share_")}

    def without_rate(self) -> Sample:
        """The sample of a training that makes no steps: neither its rate nor the seconds that it has left are known."""
        left = self.target_kind == "seconds_left"
        return replace(self, steps_per_s=None, target=None if left else self.target)


class Report(Record):
    """One line that a worker wrote to `reports.jsonl` (`workers.contract.Client.report`)."""

    kind: str
    fields: dict[str, object]


class Sampled(Input):
    """One look at everything: readings by program name, and the reports of workers since the last look."""

    samples: dict[str, Sample] = field(default_factory=dict)
    reports: tuple[tuple[str, str, Report], ...] = ()  # (program, token, report)
    began_s: float | None = None  # start of the look: no reading is older; None: now
    gpus: Gpus | None = None  # None: not read
    host: Host | None = None


class Woke(Input):
    """A deadline of `decide` has passed."""


class Survival(enum.StrEnum):
    """What the launcher found about an attempt that is alive by the journal."""

    ALIVE = "alive"
    ENDED = "ended"  # its exit record was read
    VANISHED = "vanished"  # its processes are gone without an exit record
    NEVER = "never"  # it was intended, but no process was started


class Ending(Record):
    """All known data about the end of an attempt. When it is posted, the tree is gone and the run directory is free."""

    code: int | None = None
    signal: int | None = None
    leftovers: tuple[str, ...] = ()
    rest: tuple[int | None, int | None] | None = None  # (code, signal) of the last process that a success code left behind
    last_lines: tuple[str, ...] = ()
    max_rss_bytes: int | None = None
    steps: int | None = None  # from the last beat
    target: int | None = None  # from the last beat, in steps
    mean_return: float | None = None  # from the last beat
    decided: bool = False  # by the last beat, it left by itself before its target
    shown: Figures = field(default_factory=Figures)  # its own output, read to the end: it may have come further
    own: OwnCheckpoint | None = None  # its newest checkpoint after a success without a step; None: not looked at
    ckpt_step: int | None = None
    ckpt_at_s: float | None = None  # when that checkpoint was durable, in journal time
    reports: tuple[Report, ...] = ()
    batch_size: int | None = None  # from the last beat
    oom_kills: tuple[int, int] | None = None  # OOM kills counted in its cgroup: before it began, and after it ended
    oom_own: bool = False  # only this worker used that cgroup, so the count has no other worker's kills
    memory_max_bytes: int | None = None  # the memory limit of that cgroup
    disks: tuple[Disk, ...] = ()  # the file systems that it may have filled; only where its end speaks of that
    oom_line: str = ""  # line of the kernel's log about an OOM kill of this very process
    fate: str = ""  # one clause when neither code nor signal is known
    ended_at_s: float | None = None  # journal time
    job: object = None  # what the launcher of a feature has found besides


class Survivor(Record):
    """An attempt of an earlier daemon, as found at this daemon's start."""

    token: str
    survival: Survival
    pid: int | None = None
    start_ticks: int | None = None
    shim_pid: int | None = None
    shim_start_ticks: int | None = None
    ending: Ending | None = None


class BootEvidence(Record):
    """The findings of the boot adapter. `rebooted` is None on the first start of a state directory."""

    boot_id: str
    rebooted: bool | None
    evidence: str
    cause: str = "unclean"
    down_s: float | None = None
    up_s: float | None = None
    steps: dict[str, int] = field(default_factory=dict)  # by program, at the last sign of life of daemon or box
    ckpt_steps: dict[str, int] = field(default_factory=dict)  # by program, the newest valid checkpoint on disk
    last_sign_wall_s: float | None = None  # last sign of life before the reboot
    boot_wall_s: float | None = None
    last_sign_s: float | None = None  # the last sign of life in journal time
    mark_at_s: float | None = None  # when `steps` were written, in journal time; the last sign of life may be newer
    kind: str = ""  # kind of the previous boot's end, as in `policy/box/reboot_cause.py`
    last_words: tuple[str, ...] = ()  # lines of evidence for that kind
    box: dict[str, str] = field(default_factory=dict)  # witnesses of this box's identity (`policy/box/box_identity.py`)


class Began(Input):
    """The daemon's first input: its settings, the findings of the boot adapter, and the attempts that still run."""

    settings: Settings
    boot: BootEvidence
    survivors: dict[str, Survivor]
    pid: int
    version: str
    salt: str = ""
    unrecorded_workers: dict[str, tuple[int, Survivor]] = field(default_factory=dict)  # alive, by program: (attempt, data)
    before: Settings | None = None  # of the previous daemon; None: unknown, or the same
    changed: tuple[tuple[str, str], ...] = ()  # since then: (key, `old -> new`)


class ConfigLoaded(Input):
    """A request to apply a checked new configuration (`update`)."""

    settings: Settings
    only: tuple[str, ...] = ()  # program names; empty: all
    by: str = "operator"
    uid: int | None = None
    of_file: bool = True  # False: a program is removed, and the configuration file was not read
    request_id: int = 0  # the request that waits for the answer; 0: none
    changed: tuple[tuple[str, str], ...] = ()  # (key, `old -> new`)


class ConfigFaulty(Input):
    """The configuration cannot be used, at a start (then `in_use` is the saved one used instead) or for a reload."""

    errors: tuple[str, ...]
    in_use: str = ""
    by: str = "operator"


class SpawnSucceeded(Input):
    program: str
    token: str
    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int


class CheckpointsFound(Input):
    """A program's own checkpoints at its start. `left`: paths that could not be set aside."""

    program: str
    token: str
    found: OwnCheckpoint
    left: tuple[str, ...] = ()


class SpawnBroke(Input):
    program: str
    token: str
    error: str
    permanent: bool = False
    refused: bool = False  # another launcher refuses it: also permanent for a program that has run before


class Ended(Input):
    """An attempt and its whole tree are gone."""

    program: str
    token: str
    ending: Ending


class EvidenceTaken(Input):
    program: str
    token: str
    evidence: dict[str, str]


class SupervisionLooked(Input):
    """The deciding thread's own look at the other threads: `gone` are tokens of attempts that have no process any more."""

    failing: tuple[Failing, ...] = ()
    gone: frozenset[str] = frozenset()


class ClockMoved(Input):
    """The wall clock moved by `step_s` relative to CLOCK_BOOTTIME."""

    step_s: float


class FoundationsLooked(Input):
    """All present findings about the files and directories that the daemon relies on; posted when they change."""

    findings: tuple[Finding, ...] = ()


class SnapshotDue(Input):
    """Many facts were recorded since the newest snapshot. A new snapshot keeps the next start short."""

    facts: int


class Verb(enum.StrEnum):
    """An operator's request that changes something."""

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
    WHEN_DONE = "when-done"


class Asked(Input):
    """A request of an operator. `names` are program names, already expanded from `all`. `by` names the sender.

    For BACKUP, `text` is the label; for ROLLBACK, the name of the backup to restore; no names then means all. For OFFSITE it
    is `now`, `check` or `take-over`, for WHEN_DONE `cancel`, `delay` or `now`.
    """

    verb: Verb
    request_id: int
    names: tuple[str, ...] = ()
    signal: str = ""
    by: str = "operator"
    uid: int | None = None
    text: str = ""
    for_s: float | None = None  # of a delay, or of a pin, whose level is the only name; None: until further notice


class Terminated(Input):
    """The daemon got SIGTERM or SIGINT: an orderly end. `host`: the whole host is going down."""

    by: str
    host: bool = False
