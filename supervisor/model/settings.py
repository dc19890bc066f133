"""Frozen settings: `config.py` makes them from TOML, environment and flags, and the core decides by them.

Pure data with defaults; the settings of each policy are defined beside its rule in `supervisor/policy/`.
"""

from __future__ import annotations

import enum
import typing
from dataclasses import field, is_dataclass
from typing import Final

from supervisor.policy.box.gate import GateSettings
from supervisor.policy.box.prechecks import PrecheckSettings
from supervisor.policy.cluster.launcher import JobResources, LauncherSettings
from supervisor.policy.level import load
from supervisor.policy.upkeep.alerting import AlertSettings
from supervisor.policy.upkeep.backups import BackupSettings
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.upkeep.notices import NoticeSettings
from supervisor.policy.upkeep.offsite import OffsiteSettings
from supervisor.policy.upkeep.resolution import RecorderSettings
from supervisor.policy.worker.checkpointing import CheckpointSettings
from supervisor.policy.worker.confinement import CgroupSettings
from supervisor.policy.worker.divergence import DivergenceSettings
from supervisor.policy.worker.ending import STOP_SIGNAL_TO, STOP_SIGNALS
from supervisor.policy.worker.figures import Sources
from supervisor.policy.worker.health import HealthSettings
from supervisor.policy.worker.placeholders import RESUME, Template, for_attempt, uses, variable
from supervisor.policy.worker.restart import RESTARTS, RestartSettings
from supervisor.policy.worker.service_health import HealthCheck
from supervisor.policy.worker.stall import StallSettings
from supervisor.records import dataclass, replace


class Progress(enum.StrEnum):
    """The source of a program's signs of progress."""

    AUTO = "auto"  # the best source that reports: beats, notifications, figures, then its log or its files
    BEAT = "beat"  # the contract's beat record: built-in workers and scripts that use the small client
    NOTIFY = "notify"  # sd_notify(3) datagrams: WATCHDOG=1, STATUS=, X_EXTRALIFE_STEPS=
    FIGURES = "figures"  # the steps in its log, its event files or its JSON lines (`policy/worker/figures.py`)
    LOG = "log"  # its log files grow
    FILES = "files"  # files that match `progress_glob` appear or change
    NONE = "none"  # it is never judged stalled


SILENT: Final = frozenset({Progress.FIGURES, Progress.LOG, Progress.FILES})  # sources whose silence proves nothing


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the load: how many programs run at once, and how heavy each is."""

    name: str = "light"
    slots: int = 2
    num_envs: int = 32
    batch_size: int = 512
    threads: int | None = None  # CPU threads of each worker (torch and envpool); None: cores / slots
    memory_mb: int | None = None  # configured host memory of one program at this level; None: not configured
    launcher: JobResources = field(default_factory=JobResources)  # resources of its jobs, in place of [launcher]'s

    @property
    def shape(self) -> str:
        """The identity of a level: a record with another shape belongs to another level."""
        resources = "".join(f", {key} {value}" for key, value in self.launcher.given().items())
        return f"{self.slots} x {self.num_envs}, batch {self.batch_size}{resources}"


_RULE: Final = load.LoadSettings()
LOG_AUTO, LOG_NONE = "AUTO", "NONE"  # Supervisor's spelling: a log in the state directory; no log
FIXED: Final = "fixed"
CLIMB: Final = "climb"


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How the level is chosen: the rule itself is `policy/level/load.py`."""

    mode: str | None = None  # FIXED or CLIMB; the config resolves None
    start: str | None = None  # the level of a box without a record; None: the lowest
    rotation_h: float = 0.0  # `_rotate` in deciding/attempts.py; 0: never
    stagger_s: float = 2.0  # between two starts after a change of level
    review_s: float = 600.0  # training time between two reviews
    reboot_penalty_min: float = _RULE.reboot_penalty_min
    dwell_s: float = _RULE.dwell_s
    trial_s: float = _RULE.trial_s
    climb_s: float = _RULE.climb_s
    cool_s: float = _RULE.cool_s
    cool_max_s: float = _RULE.cool_max_s
    rest_s: float = _RULE.rest_s

    def rule(self, names: tuple[str, ...]) -> load.LoadSettings:
        """The settings in the form of the rule, for a ladder of these levels."""
        return load.LoadSettings(
            names=names, reboot_penalty_min=self.reboot_penalty_min, dwell_s=self.dwell_s, trial_s=self.trial_s,
            climb_s=self.climb_s, cool_s=self.cool_s, cool_max_s=self.cool_max_s, rest_s=self.rest_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """One supervised training, ready to start.

    `digest` covers all settings that need a restart to change (argv, env, directory, progress source). Two specs with the
    same digest differ at most in settings that can change live (priority, limits, autostart). `own_digest` is the same
    without the settings of the level, to distinguish a change of level from a change of the program; empty: the program
    uses no setting of the level.
    """

    name: str
    argv: tuple[str, ...]
    digest: str
    env: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    builtin: bool = False
    game: str = ""
    group: str = ""  # empty: a group of its own
    priority: int = 100  # lower starts first, as with Supervisor's `priority`
    autostart: bool = True
    progress: Progress = Progress.BEAT
    progress_glob: str = ""
    checkpoint_glob: str = ""  # paths of the checkpoints that it writes itself; empty: not configured
    checkpoint_step: str = ""  # where the step of a checkpoint is found (`policy/worker/step_in_name.py`)
    checkpoint_check: tuple[str, ...] = ()  # a command whose exit code says whether a checkpoint is whole
    checkpoint_check_timeout_s: float = 60.0
    figures: Sources = field(default_factory=Sources)  # sources of figures in its own output; a change takes effect at once
    stall_timeout_s: float | None = None  # overrides every learned limit while training
    start_timeout_s: float | None = None  # spawn to the first sign of progress
    stop_grace_s: float = 20.0  # SIGTERM to SIGKILL
    stop_signal: str = STOP_SIGNALS[0]  # the signal that asks it to save and leave
    stop_signal_to: str = STOP_SIGNAL_TO[0]  # the processes that get it first (`supervisor/shim.py`)
    on_sick: str | None = None  # action for any illness (`policy/worker/health.py`)
    done_codes: tuple[int, ...] = (0,)  # exit codes that mean "finished"
    service: bool = False  # TensorBoard, a notebook, a log shipper: it uses no slot, and is not judged by progress
    restart: str = RESTARTS[0]  # the ends after which it is started again
    start_s: float | None = None  # it counts as started once it has lived this long
    start_retries: int | None = None  # it is given up after `start_retries` + 1 such early ends in a row
    user: str = ""  # user of its process; empty: the daemon's user
    umask: str = ""  # octal; empty: the daemon's
    stdin: bool = False  # its standard input is a pipe that clients may write to
    redirect_stderr: bool = False  # its standard error goes to its standard output
    stdout_log: str = LOG_AUTO  # LOG_AUTO, LOG_NONE or an absolute path
    stderr_log: str = LOG_AUTO
    log_max_bytes: int | None = None  # in place of [daemon]'s; 0: its logs are never rotated
    log_backups: int | None = None  # in place of [daemon]'s
    health: HealthCheck | None = None  # health checks of a service
    num_envs: int | None = None
    batch_size: int | None = None
    fallback_batch: int | None = None  # the first smaller batch after out of memory, in place of the next divisor
    own_digest: str = ""
    follows_level: bool = True  # a climb may restart it: it resumes, or the operator wants it
    template: Template | None = None  # how `argv` and `env` are filled in at a start; None: they are used unchanged
    gpu: int | None = None  # the index of its GPU, in the order of the bus; None: CUDA's first
    visible: str | None = None  # its CUDA_VISIBLE_DEVICES, where `gpu` does not set it (`policy/box/visible.py`)
    min_free_mb: int | None = None  # in place of [gate]'s
    gate_poll_s: float | None = None
    gate_timeout_s: float | None = None
    cpu_weight: int | None = None  # in place of [cgroups]'s; takes effect at its next start
    job: JobResources = field(default_factory=JobResources)  # resources that its jobs request at this level

    @property
    def takes_resume(self) -> bool:
        """Whether its command or its environment names the checkpoint to resume from."""
        words = (*self.argv, *(text for _, text in self.env))
        return any(variable(RESUME) in word for word in words) or (self.template is not None and RESUME in uses(words))

    def log_place(self, channel: str) -> str:
        """LOG_AUTO, LOG_NONE or a path: the configured log of one channel of its output."""
        if channel == "stdout":
            return self.stdout_log
        return LOG_NONE if self.redirect_stderr else self.stderr_log

    def sources_at(self, rollbacks: int) -> Sources:
        """The sources of its figures after so many rollbacks: each changes the seed, which patterns may hold."""
        values = (
            ()
            if self.template is None
            else for_attempt(self.template, batch_size=None, rollbacks=rollbacks, resume=None).values
        )
        seed = dict(values).get("seed")
        return self.figures if seed is None else self.figures.at_seed(seed)

    def source(self, speaks: str) -> Progress:
        """Its source of progress. If that is `auto`, `speaks` names the source that a sample was made from."""
        if self.progress is not Progress.AUTO:
            return self.progress
        return Progress(speaks) if speaks else Progress.LOG


@dataclass(frozen=True, slots=True)
class Rung:
    """One level of the ladder, with the spec of every program at that level; the config makes all levels at once.

    So the core applies the settings of a level (environments, batch, threads) by using another tuple of specs. And a mistake
    at the highest level is found when the file is read, not in the night when the load climbs to it.
    """

    level: Level
    programs: tuple[ProgramSpec, ...]
    veto: str = ""  # why this box is too small for the level, by its configured budget; empty: it is large enough


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of all files. `state_dir` is durable; `runtime_dir` is on tmpfs and gone after a reboot."""

    state_dir: str
    runtime_dir: str
    config_file: str | None = None

    @property
    def journal(self) -> str:
        return f"{self.state_dir}/journal.sqlite"

    @property
    def recording(self) -> str:
        return f"{self.state_dir}/recording.sqlite"

    @property
    def alive(self) -> str:
        return f"{self.state_dir}/alive"

    @property
    def alert_log(self) -> str:
        return f"{self.state_dir}/reboot_alerts.log"

    @property
    def last_config(self) -> str:
        return f"{self.state_dir}/last-config"

    @property
    def backups(self) -> str:
        return f"{self.state_dir}/backups"

    @property
    def offsite(self) -> str:
        return f"{self.state_dir}/offsite"

    @property
    def main_log(self) -> str:
        return f"{self.state_dir}/extralife.log"

    @property
    def lock(self) -> str:
        return f"{self.state_dir}/lock"

    @property
    def socket(self) -> str:
        return f"{self.runtime_dir}/supervisor.sock"

    @property
    def marker(self) -> str:
        return f"{self.runtime_dir}/boot-marker"

    @property
    def programs(self) -> str:
        return f"{self.state_dir}/programs"

    def run_dir(self, program: str) -> str:
        return f"{self.programs}/{program}"

    def log(self, program: str, channel: str) -> str:
        """The default path of a log; `channel` is `stdout` or `stderr`."""
        return f"{self.run_dir(program)}/{channel}.log"

    def log_of(self, spec: ProgramSpec, channel: str) -> str | None:
        """The path of the log of one channel, by the program's configuration; None: it has none."""
        place = spec.log_place(channel)
        if place == LOG_NONE:
            return None
        return self.log(spec.name, channel) if place == LOG_AUTO else place

    def attempt_dir(self, program: str, attempt: int, token: str) -> str:
        return f"{self.run_dir(program)}/attempts/{attempt}-{token}"

    def beat(self, program: str, attempt: int) -> str:
        return f"{self.runtime_dir}/beats/{program}.{attempt}.beat"

    def control(self, program: str, attempt: int) -> str:
        return f"{self.runtime_dir}/beats/{program}.{attempt}.control"

    def leave_by(self, program: str, attempt: int) -> str:
        return f"{self.runtime_dir}/beats/{program}.{attempt}.leave-by"

    def shim_record(self, program: str) -> str:
        return f"{self.runtime_dir}/shims/{program}.json"

    def notify_socket(self, program: str) -> str:
        return f"{self.runtime_dir}/notify/{program}"


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """`[daemon]` in the config."""

    sample_period_s: float = 1.0
    alive_period_s: float = 5.0
    log_level: str = "info"
    log_format: str = "text"  # of the lines in the main log and in systemd's journal
    log_max_bytes: int = 50 * 2**20
    log_backups: int = 3
    host_names: str = ""  # host names under which a proxy or a tunnel reaches the control socket, besides localhost
    socket_group: str = ""  # group that may use the control socket (0660); empty: only the owner (0600)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """A TCP port beside the control socket (`api/tcp.py`)."""

    listen: str = ""  # ADDRESS:PORT; empty: none
    user: str = "extralife"
    password_file: str = ""
    host: str = ""  # from `listen`
    port: int = 0  # from `listen`
    password: str = field(default="", repr=False)  # from `password_file`


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How much of the past stays in the journal; older facts are in the archive (`adapters/journal/archive.py`)."""

    keep_days: int = 30
    max_mb: int = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the daemon, checked as a whole."""

    paths: Paths
    programs: tuple[ProgramSpec, ...] = ()
    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    level: Level = field(default_factory=Level)
    restart: RestartSettings = field(default_factory=RestartSettings)
    stall: StallSettings = field(default_factory=StallSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    divergence: DivergenceSettings = field(default_factory=DivergenceSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    prechecks: PrecheckSettings = field(default_factory=PrecheckSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    recorder: RecorderSettings = field(default_factory=RecorderSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    load: LoadSettings = field(default_factory=LoadSettings)
    backup: BackupSettings = field(default_factory=BackupSettings)
    offsite: OffsiteSettings = field(default_factory=OffsiteSettings)
    notice: NoticeSettings = field(default_factory=NoticeSettings)
    cost: CostSettings = field(default_factory=CostSettings)
    cgroups: CgroupSettings = field(default_factory=CgroupSettings)
    launcher: LauncherSettings = field(default_factory=LauncherSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    ladder: tuple[Rung, ...] = ()  # lowest first; empty: `level` is the only level
    _by_name: dict[str, ProgramSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the programs by name: every look needs every program."""
        object.__setattr__(self, "_by_name", {spec.name: spec for spec in self.programs})

    def logs(self, program: str) -> tuple[str, ...]:
        """The paths of a program's logs; for a program that left the configuration, the default paths."""
        spec = self.program(program)
        of = [
            self.paths.log(program, each) if spec is None else self.paths.log_of(spec, each) for each in ("stdout", "stderr")
        ]
        return tuple(path for path in of if path is not None)

    def log_max_bytes(self, spec: ProgramSpec) -> int:
        """The size beyond which a log of this program is rotated; 0: never."""
        return self.daemon.log_max_bytes if spec.log_max_bytes is None else spec.log_max_bytes

    def log_backups(self, spec: ProgramSpec) -> int:
        return self.daemon.log_backups if spec.log_backups is None else spec.log_backups

    def program(self, name: str) -> ProgramSpec | None:
        return self._by_name.get(name)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The ladder; a fixed level is a ladder with one level."""
        return self.ladder or (Rung(self.level, self.programs),)

    @property
    def climbs(self) -> bool:
        return self.load.mode == CLIMB

    @property
    def start(self) -> str:
        """The level of a box without a record; also the level in force where no rule chooses one."""
        return self.load.start or self.rungs[0].level.name

    def place(self, level: str) -> int | None:
        """The index of a level, the lowest is 0; None: it is not on the ladder."""
        return next((place for place, rung in enumerate(self.rungs) if rung.level.name == level), None)

    def at(self, level: str) -> Settings:
        """These settings with another level of the ladder in force; unchanged for a name that is not on the ladder."""
        if level == self.level.name:
            return self
        for rung in self.ladder:
            if rung.level.name == level:
                return replace(self, level=rung.level, programs=rung.programs)
        return self


# Every section of the configuration that is a dataclass, in the order of the file's documentation. This must stay the only
# list: a second one could lack a section that was added here, and `update` would still report that section as applied.
SECTIONS: Final[dict[str, type]] = {
    name: kind
    for name, kind in typing.get_type_hints(Settings).items()
    if isinstance(kind, type) and is_dataclass(kind) and kind is not Paths
}
