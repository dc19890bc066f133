"""Frozen settings: `config.py` makes them from TOML, environment and flags, and the core decides by them.

Pure data with defaults; the settings of each policy are defined beside its rule in `supervisor/policy/`.
"""

from __future__ import annotations

import enum
import typing
from dataclasses import field, is_dataclass
from typing import Final

from supervisor.discovery import Extended, extended
from supervisor.keys import REQUIRED, key, script_key
from supervisor.model.launching import Launching
from supervisor.policy.box.gate import GateSettings
from supervisor.policy.box.lost_gpu import CPU, WHEN_NO_GPU
from supervisor.policy.box.prechecks import PrecheckSettings
from supervisor.policy.level.load import CLIMB, LoadSettings
from supervisor.policy.script.figures import Sources
from supervisor.policy.script.placeholders import OF_LEVEL, RESUME, Template, for_attempt, uses, variable
from supervisor.policy.script.service_health import HealthCheck
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.worker.checkpointing import CheckpointSettings
from supervisor.policy.worker.confinement import CgroupSettings
from supervisor.policy.worker.divergence import DivergenceSettings
from supervisor.policy.worker.ending import STOP_SIGNAL_TO, STOP_SIGNALS
from supervisor.policy.worker.health import ACTIONS, HealthSettings
from supervisor.policy.worker.restart import RESTARTS, RestartSettings
from supervisor.policy.worker.stall import StallSettings
from supervisor.records import Record, replace


class Progress(enum.StrEnum):
    """The source of a program's signs of progress."""

    AUTO = "auto"  # the best source that reports: beats, notifications, figures, then its log or its files
    BEAT = "beat"  # the contract's beat record: built-in workers and scripts that use the small client
    NOTIFY = "notify"  # sd_notify(3) datagrams: WATCHDOG=1, STATUS=, X_EXTRALIFE_STEPS=
    FIGURES = "figures"  # the steps in its log, its event files or its JSON lines (`policy/script/figures.py`)
    LOG = "log"  # its log files grow
    FILES = "files"  # files that match `progress_glob` appear or change
    NONE = "none"  # it is never judged stalled


SILENT: Final = frozenset({Progress.FIGURES, Progress.LOG, Progress.FILES})  # sources whose silence proves nothing


NAME_OF_LEVEL: Final = "[A-Za-z0-9_.-]{1,32}"
A_NAME_OF_LEVEL: Final = "one word of up to 32 letters, digits, _ . -"


@extended("settings", "LEVEL")
class Level(Extended, Record):
    """One level of the load: how many programs run at once, and how heavy each is, with the parts of features."""

    name: str = key("light", "name of this load in status and history", form=A_NAME_OF_LEVEL, pattern=NAME_OF_LEVEL)
    slots: int = key(2, "programs that run at once; the others wait in order of priority", high=1024)
    num_envs: int = key(32, "parallel environments of each built-in program", high=4096)
    batch_size: int = key(512, "transitions per update of each built-in program; a multiple of 8", high=65_536)
    threads: int | None = key(
        None, "CPU threads of each program (torch, envpool, OMP_NUM_THREADS)", high=1024, unset="cores / slots, at least 1"
    )
    memory_mb: int | None = key(
        None, "host memory of one program; a level whose programs need more than the box has is never used",
        high=100_000_000, unset="not checked",
    )  # fmt: skip

    @property
    def shape(self) -> str:
        """The identity of a level: a record with another shape belongs to another level."""
        more = "".join(f", {part}" for name in self.FIELDS.values() if (part := str(getattr(self, name))))
        return f"{self.slots} x {self.num_envs}, batch {self.batch_size}{more}"


LOG_AUTO, LOG_NONE = "AUTO", "NONE"  # Supervisor's spelling: a log in the state directory; no log
NAME: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"  # of a program or a group
A_NAME: Final = "1 to 64 letters, digits, _ . -, not beginning with . or -"
A_COMMAND: Final = "a string or a list of strings"
TRAINING, SERVICE = "training", "service"


class CommandKeys(Record):
    """The keys of a program with a command that no field of its spec has as they are."""

    command: tuple[str, ...] = script_key(
        (), 'the program and its arguments, `["python", "train.py"]` or `"python train.py"`, '
        "with [placeholders](any-script.md#placeholders)",
        unset="none: a built-in game", form=A_COMMAND,
    )  # fmt: skip
    shell: bool = script_key(
        False, "whether a shell reads `command`, one string then; without it `|`, `>` and `$HOME` mean nothing"
    )
    level_values: tuple[str, ...] = script_key(
        (), "values of the level that the script reads from `EXTRALIFE_NUM_ENVS` and its like, by itself",
        choices=OF_LEVEL, form='a list such as ["num_envs", "batch_size"]',
    )  # fmt: skip
    kind: str = script_key(
        TRAINING, "`service`: TensorBoard, a notebook: takes no slot, waits for no GPU memory, is not judged by progress",
        choices=(TRAINING, SERVICE),
    )  # fmt: skip


@extended("settings", "PROGRAM")
class ProgramSpec(Extended, Record):
    """One supervised training, ready to start, with the parts of features (`spec.of(NextJob)`).

    `digest` covers all settings that need a restart to change (argv, env, directory, progress source). Two specs with the
    same digest differ at most in settings that can change live (priority, limits, autostart). `own_digest` is the same
    without the settings of the level, to distinguish a change of level from a change of the program; empty: the program
    uses no setting of the level.
    """

    name: str
    argv: tuple[str, ...]
    digest: str
    group: str = key(
        "", "programs with the same word are a group: `extralifectl stop WORD:*`. Seeds are one by themselves",
        form=A_NAME, pattern=f"({NAME})?",
    )  # fmt: skip
    priority: int = key(100, "lower starts first", low=0, high=1_000_000)
    autostart: bool = key(True, "whether it starts by itself when it first appears in the configuration")
    stall_timeout_s: float | None = key(
        None, "limit without progress while training, in place of the learned one", unset="learned, see [stall]"
    )
    start_timeout_s: float | None = key(None, "limit from its start to its first sign of progress", unset="see [stall]")
    stop_grace_s: float = key(
        20.0, "time to save and exit between SIGTERM and SIGKILL; also for what a clean end leaves running", low=0
    )
    stop_signal: str = key(
        STOP_SIGNALS[0], "the signal that asks it to save and exit. Used from its next start on", choices=STOP_SIGNALS
    )
    stop_signal_to: str = key(
        STOP_SIGNAL_TO[0],
        "which processes get that signal first: the topmost that handle it; the one that was started; all of them. "
        "Used from its next start on",
        choices=STOP_SIGNAL_TO,
    )  # fmt: skip
    on_sick: str | None = key(
        None, "action after any illness of [health], in place of its three settings", choices=ACTIONS, unset="see [health]"
    )
    gpu: int | None = key(
        None, "index of its GPU as `nvidia-smi` lists them; it sees only this one (CUDA_VISIBLE_DEVICES)",
        low=0, high=63, unset="all GPUs; CUDA uses the first",
    )  # fmt: skip
    when_no_gpu: str | None = key(None, "in place of [gate]'s when_no_gpu", choices=WHEN_NO_GPU, unset="[gate]'s")
    min_free_mb: int | None = key(
        None, "in place of [gate]'s min_free_mb; 0: as much as it used before", low=0, high=10_000_000, unset="[gate]'s"
    )
    gate_poll_s: float | None = key(None, "in place of [gate]'s poll_s", low=0, high=60, unset="[gate]'s")
    gate_timeout_s: float | None = key(None, "in place of [gate]'s timeout_s", low=0, unset="[gate]'s")
    cpu_weight: int | None = key(
        None, "in place of [cgroups]'s cpu_weight; used from its next start on", high=10_000, unset="[cgroups]'s"
    )
    env: tuple[tuple[str, str], ...] = key((), 'environment variables of its own, `{ NAME = "value" }`', unset="none")
    directory: str = script_key(
        "", "working directory; a relative one is relative to this file",
        unset="its run directory", form="the path of a directory, a string",
    )  # fmt: skip
    follows_level: bool = script_key(
        True, "whether a climb restarts it with the settings of another level; false: it keeps the start's",
        unset='true with `checkpoint_glob`, `{resume}`, `level_values` or `progress = "beat"`',
    )  # fmt: skip
    progress: Progress = script_key(
        Progress.BEAT,
        "source of its signs of progress; `auto`: the best of beats, notifications, figures, log and files",
        choices=tuple(Progress), unset='"auto"',
    )  # fmt: skip
    progress_glob: str = script_key(
        "", 'files whose creation or change is progress, such as `"checkpoints/*.pt"`',
        unset='none; needed with progress = "files"', form='a pattern inside the directory, such as "checkpoints/*.pt"',
    )  # fmt: skip
    checkpoint_glob: str = script_key(
        "", 'checkpoints that it writes itself, files or directories, such as `"runs/**/*.ckpt"`: '
        "relative to its directory, or absolute",
        unset="none: what it saves is not looked at",
    )  # fmt: skip
    checkpoint_step: str = script_key(
        "", r"where the step of such a checkpoint stands: a regular expression on its path, `'step=(\d+)'`, "
        'or a file in it and a key, `"trainer_state.json:global_step"`',
        unset="not known",
    )  # fmt: skip
    checkpoint_check: tuple[str, ...] = script_key(
        (), "command that ends with 0 if a checkpoint is whole; its path is added as the last argument",
        unset="known formats", form=A_COMMAND,
    )  # fmt: skip
    checkpoint_check_timeout_s: float = script_key(
        60.0, "time limit of `checkpoint_check`; after that the result is unknown"
    )
    figures: Sources = field(default_factory=Sources)  # sources of figures in its own output; a change takes effect at once
    done_codes: tuple[int, ...] = script_key(
        (0,), "exit codes that mean that it has finished", low=0, high=255,
        form="a list of exit codes, 0 to 255, such as [0]",
    )  # fmt: skip
    restart: str = script_key(
        RESTARTS[0], "which ends cause a new start: any failure, any end at all, or none", choices=RESTARTS
    )
    health: HealthCheck | None = script_key(
        None, 'of a service: whether it answers, such as `{ http = "http://127.0.0.1:6006/" }` '
        "([any script](any-script.md#services-beside-the-training))",
        unset="none", form='a table such as { http = "http://127.0.0.1:6006/" }',
    )  # fmt: skip
    start_s: float | None = script_key(
        None, "it counts as started once it has lived for so long (Supervisor's `startsecs`)",
        low=0, unset="see [stall]'s settle_s; 1 with start_retries",
    )  # fmt: skip
    start_retries: int | None = script_key(
        None, "retries, 1, 2, 3 ... s apart, if it ends before `start_s`; then FATAL (`startretries`)",
        low=0, high=1_000_000, unset="see [restart]",
    )  # fmt: skip
    user: str = script_key(
        "", "user whose process it is, by name or number (`user`); for a daemon that runs as root", unset="the daemon's"
    )
    umask: str = script_key(
        "", 'its file mode creation mask, octal, such as `"022"` (`umask`)', unset="the daemon's",
        form='octal, a string such as "022"', pattern="[0-7]{0,4}",
    )  # fmt: skip
    stdin: bool = script_key(False, "whether its standard input is a pipe for `extralifectl fg`; otherwise it is empty")
    redirect_stderr: bool = script_key(
        False, "whether its standard error goes into the log of its standard output (`redirect_stderr`)"
    )
    stdout_log: str = script_key(
        LOG_AUTO, "log of its standard output: `AUTO`, `NONE` or an absolute path (`stdout_logfile`)"
    )
    stderr_log: str = script_key(LOG_AUTO, "log of its standard error, likewise (`stderr_logfile`)")
    log_max_bytes: int | None = script_key(
        None, "in place of [daemon]'s log_max_bytes; 0: never rotated (`stdout_logfile_maxbytes`)", low=0, unset="[daemon]'s"
    )
    log_backups: int | None = script_key(
        None, "in place of [daemon]'s log_backups (`stdout_logfile_backups`)", low=0, high=1000, unset="[daemon]'s"
    )
    builtin: bool = False
    game: str = ""
    service: bool = False  # TensorBoard, a notebook, a log shipper: it uses no slot, and is not judged by progress
    num_envs: int | None = None
    batch_size: int | None = None
    fallback_batch: int | None = None  # the first smaller batch after out of memory, in place of the next divisor
    own_digest: str = ""
    template: Template | None = None  # how `argv` and `env` are filled in at a start; None: they are used unchanged
    visible: str | None = None  # its CUDA_VISIBLE_DEVICES, where `gpu` does not set it (`policy/box/visible.py`)
    asks_gpu: str = ""  # the setting, other than `gpu` and `min_free_mb`, that asks for a GPU

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


class Rung(Record):
    """One level of the ladder, with the spec of every program at that level; the config makes all levels at once.

    So the core applies the settings of a level (environments, batch, threads) by using another tuple of specs. And a mistake
    at the highest level is found when the file is read, not in the night when the load climbs to it.
    """

    level: Level
    programs: tuple[ProgramSpec, ...]
    veto: str = ""  # why this box is too small for the level, by its configured budget; empty: it is large enough


class _Below:
    """The path of a file in one of the two directories of `Paths`."""

    def __init__(self, root: str, name: str) -> None:
        self._root, self._name = root, name

    def __get__(self, paths: object, _: type | None = None) -> str:
        return f"{getattr(paths, self._root)}/{self._name}"


class Paths(Record):
    """The paths of all files. `state_dir` is durable; `runtime_dir` is on tmpfs and gone after a reboot."""

    state_dir: str = key(
        REQUIRED, "durable state: journal, checkpoints, logs. In the file an absolute path, or one that begins with ~",
        unset="`$STATE_DIRECTORY`, `/var/lib/extralife` for root under systemd, else `~/.local/state/extralife`",
    )  # fmt: skip
    runtime_dir: str = key(
        REQUIRED, "control socket and beats: a directory on tmpfs, gone after a reboot; absolute, or begins with ~",
        unset="`$RUNTIME_DIRECTORY`, else `/run`, `$XDG_RUNTIME_DIR` or `/dev/shm` + `/extralife` + a mark of state_dir; "
        "with a `/dev/shm` below 256 MiB, below `/run` or `/tmp`",
    )  # fmt: skip
    config_file: str | None = None

    journal = _Below("state_dir", "journal.sqlite")
    recording = _Below("state_dir", "recording.sqlite")
    alive = _Below("state_dir", "alive")
    alert_log = _Below("state_dir", "reboot_alerts.log")
    last_config = _Below("state_dir", "last-config")
    backups = _Below("state_dir", "backups")
    offsite = _Below("state_dir", "offsite")
    main_log = _Below("state_dir", "extralife.log")
    lock = _Below("state_dir", "lock")
    socket = _Below("runtime_dir", "supervisor.sock")
    marker = _Below("runtime_dir", "boot-marker")
    programs = _Below("state_dir", "programs")

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


class DaemonSettings(Record):
    sample_period_s: float = key(1.0, "time between two samples of every worker", low=0.01, high=60)
    alive_period_s: float = key(
        5.0, "time between two durable signs of life, from which the downtime of a reboot is computed", low=0.1, high=3600
    )
    stop_within_s: float = key(
        0.0,
        "time that the box gives from SIGTERM to SIGKILL (`docker stop -t`, `terminationGracePeriodSeconds`); 0: not known "
        "([the rule](../supervisor/features/notices/rules.py))",
        low=0, high=86_400,
    )  # fmt: skip
    log_level: str = key("info", "least severity that is logged", choices=("debug", "info", "warning", "error", "critical"))
    log_format: str = key(
        "text", "format of the lines in the main log and in systemd's journal (`journalctl -u extralife`)",
        choices=("text", "json"),
    )  # fmt: skip
    log_max_bytes: int = key(50 * 2**20, "a worker's log is rotated once it is larger", low=4096)
    log_backups: int = key(3, "rotated logs kept for each of a worker's two channels; 0: none", low=0, high=1000)
    host_names: str = key(
        "", "host names, separated by spaces, for browsers that reach the socket through a proxy (no port)"
    )
    socket_group: str = key("", "group that may use the control socket; empty: only its owner")


class HttpSettings(Record):
    """A TCP port beside the control socket (`api/tcp.py`)."""

    listen: str = key("", "ADDRESS:PORT of a TCP port beside the control socket, such as `127.0.0.1:9001`; empty: none")
    user: str = key("extralife", "user name that clients send with the password")
    password_file: str = key("", "file with the password on one line, that only its owner may read (mode 0600)")
    host: str = ""  # from `listen`
    port: int = 0  # from `listen`
    password: str = field(default="", repr=False)  # from `password_file`


class JournalSettings(Record):
    """How much of the past stays in the journal; older facts are in the archive (`adapters/journal/archive.py`)."""

    keep_days: int = key(
        30, "days for which facts stay in the journal; older ones move to `journal-archive/` beside it", high=36_500
    )
    max_mb: int = key(256, "size beyond which more facts move, until the journal has half of it", high=1_000_000)


@extended("settings", "SECTIONS")
class Settings(Extended, Record):
    """All settings: those of the kernel here, and the sections of features (`settings.of(BackupSettings)`)."""

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
    http: HttpSettings = field(default_factory=HttpSettings)
    load: LoadSettings = field(default_factory=LoadSettings)
    cost: CostSettings = field(default_factory=CostSettings)
    cgroups: CgroupSettings = field(default_factory=CgroupSettings)
    ladder: tuple[Rung, ...] = ()  # lowest first; empty: `level` is the only level
    _by_name: dict[str, ProgramSpec] = field(init=False, repr=False, compare=False)
    _launching: Launching | None = field(init=False, repr=False, compare=False)  # in place of the kernel's launcher

    def __post_init__(self) -> None:
        """Index the programs by name: every look needs every program. And find the section that launches them."""
        object.__setattr__(self, "_by_name", {spec.name: spec for spec in self.programs})
        launching = (getattr(self, name) for kind, name in self.FIELDS.items() if issubclass(kind, Launching))
        object.__setattr__(self, "_launching", next((each for each in launching if each.remote), None))

    def logs(self, program: str) -> tuple[str, ...]:
        """The paths of a program's logs; for a program that left the configuration, the default paths."""
        spec, paths = self.program(program), self.paths
        of = (paths.log(program, each) if spec is None else paths.log_of(spec, each) for each in ("stdout", "stderr"))
        return tuple(path for path in of if path is not None)

    @property
    def log_users(self) -> dict[str, str]:
        """By log outside of the state directory: the configured user of the program that writes it; empty: none."""
        logs = ((spec.log_place(channel), spec.user) for spec in self.programs for channel in ("stdout", "stderr"))
        return {place: user for place, user in logs if place not in (LOG_AUTO, LOG_NONE)}

    def log_max_bytes(self, spec: ProgramSpec) -> int:
        """The size beyond which a log of this program is rotated; 0: never."""
        return self.daemon.log_max_bytes if spec.log_max_bytes is None else spec.log_max_bytes

    def log_backups(self, spec: ProgramSpec) -> int:
        return self.daemon.log_backups if spec.log_backups is None else spec.log_backups

    def min_free_mb(self, spec: ProgramSpec) -> int:
        return self.gate.min_free_mb if spec.min_free_mb is None else spec.min_free_mb

    def may_use_cpu(self, spec: ProgramSpec) -> bool:
        """Whether it may use the CPU if its GPU is lost (`policy/box/lost_gpu.py`)."""
        return (spec.when_no_gpu or self.gate.when_no_gpu) == CPU

    @property
    def remote(self) -> bool:
        """Whether programs run on other hosts than the daemon."""
        return self._launching is not None

    def asks_gpu(self, spec: ProgramSpec) -> str:
        """The settings that ask for a GPU; empty: none."""
        if self._launching is not None:
            return self._launching.asks_gpu(spec)
        pinned, least_mb = "" if spec.gpu is None else f"gpu = {spec.gpu}", self.min_free_mb(spec)
        return ", ".join(filter(None, (pinned, spec.asks_gpu, f"min_free_mb = {least_mb}" if least_mb else "")))

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
