"""Every key of the configuration, in tables: type, default, bounds, meaning. The checks and docs/config.md read the same.

Names, types and defaults of [daemon], [level], [restart], [stall] and [checkpoint] are those of their dataclasses, so a
field that a policy gains is a key of the configuration at once. Only what a type cannot say stands here: bounds and
meanings. Where no bound is given: times are more than 0 and at most a year, whole numbers at least 1.
"""

from __future__ import annotations

import functools
import types
import typing
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final

from supervisor.config.sheet import shown
from supervisor.model.settings import CLIMB, FIXED, SECTIONS, ProgramSpec, Progress
from supervisor.policy.box.gate import ON_TIMEOUT
from supervisor.policy.upkeep.alerting import SEVERITIES
from supervisor.policy.worker.ending import STOP_SIGNAL_TO
from supervisor.policy.worker.health import ACTIONS
from supervisor.policy.worker.restart import MOST_DEATHS
from workers.options import OPTIONS, Option, Value

TOP: Final = (*SECTIONS, "levels", "training", "program")
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS: Final = ("text", "json")

YEAR_S: Final = 366 * 86_400.0
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Key:
    """One key: an `Option` (type, bounds, meaning), and what that cannot say: more than zero, may be left out."""

    option: Option
    positive: bool = False  # 0 itself is refused
    unset: str = ""  # what holds when it is not given, where there is no plain default

    def check(self, value: object, name: str, *, text: bool = False) -> Value:
        """The value, checked; `text` when it came as a string. Raises ValueError with one sentence that begins `name`."""
        option = replace(self.option, name=name)
        if isinstance(value, int) and abs(value) > _MOST:
            raise ValueError(f"{name} does not fit into 64 bits; write a smaller number")
        if not text and isinstance(value, dict | list):
            raise ValueError(f"{name} must be {_KIND_NAMES[option.kind]}, not {shown(value)}")
        made = option.parse(value) if text and isinstance(value, str) else option.check(value)
        if self.positive and made == 0:
            raise ValueError(f"{name} must be more than 0")
        if isinstance(made, str) and "\0" in made:
            raise ValueError(f"{name} must not hold a NUL character")
        return made


_KIND_NAMES: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}

_BOUNDS: Final[dict[str, tuple[float | None, float | None]]] = {  # inclusive; None: none
    "daemon.sample_period_s": (0.01, 60.0),
    "journal.keep_days": (1, 36_500),
    "journal.max_mb": (1, 1_000_000),
    "recorder.max_mb": (0, 1_000_000),
    "backup.keep": (1, 10_000),
    "daemon.alive_period_s": (0.1, 3600.0),
    "daemon.log_max_bytes": (4096, None),
    "daemon.log_backups": (0, 1000),
    "restart.window_deaths": (1, MOST_DEATHS),
    "level.slots": (1, 1024),
    "level.num_envs": (OPTIONS["num_envs"].low, OPTIONS["num_envs"].high),
    "level.batch_size": (OPTIONS["batch_size"].low, OPTIONS["batch_size"].high),
    "level.threads": (OPTIONS["threads"].low, OPTIONS["threads"].high),
    "level.memory_mb": (1, 100_000_000),
    "load.rotation_h": (0.0, 8784.0),
    "load.stagger_s": (0.0, 600.0),
    "load.reboot_penalty_min": (0.0, 1440.0),
    "restart.first_delay_s": (0.0, YEAR_S),
    "restart.factor": (1.0, 100.0),
    "stall.factor": (1.0, 1000.0),
    "stall.slow_ratio": (0.0, 1.0),
    "checkpoint.move": (0.0, 1.0),
    "gate.min_free_mb": (0, 10_000_000),
    "gate.poll_s": (0.0, 60.0),
    "gate.timeout_s": (0.0, YEAR_S),
    "prechecks.margin_c": (0.0, 50.0),
    "prechecks.clear_s": (0.0, YEAR_S),
    "prechecks.disk_free_mb": (0, 1_000_000_000),
    "cgroups.memory_slack": (0.0, 10.0),
    "cgroups.pids_max": (16, 4_194_304),
    "cgroups.cpu_weight": (1, 10_000),
    "program.cpu_weight": (1, 10_000),
    "alerts.at_most_per_h": (1, 120),
    "alerts.same_within_s": (0.0, YEAR_S),
    "alerts.timeout_s": (1.0, 300.0),
    "alerts.keep_days": (1, 365),
    "program.gpu": (0, 63),
    "program.min_free_mb": (0, 10_000_000),
    "program.gate_poll_s": (0.0, 60.0),
    "program.gate_timeout_s": (0.0, YEAR_S),
    "health.q_factor": (1.0, 1e9),
    "health.entropy_share": (0.0, 0.5),
    "health.fall_share": (0.01, 100.0),
    "program.priority": (0, 1_000_000),
    "program.stop_grace_s": (0.0, YEAR_S),
}
_CHOICES: Final = {
    "daemon.log_level": LOG_LEVELS,
    "daemon.log_format": LOG_FORMATS,
    "program.progress": tuple(Progress),
    "program.stop_signal_to": STOP_SIGNAL_TO,
    "gate.on_timeout": ON_TIMEOUT,
    "load.mode": (FIXED, CLIMB),
    "alerts.min_severity": SEVERITIES,
} | dict.fromkeys(("health.on_exploding", "health.on_collapsed", "health.on_falling", "program.on_sick"), ACTIONS)

# At or above another key of the same section; the sentence names both.
ORDERED: Final = (
    ("checkpoint", "min_s", "max_s"), ("restart", "base_delay_s", "max_delay_s"),
    ("restart", "slow_retry_s", "slow_retry_max_s"), ("load", "cool_s", "cool_max_s"),
)  # fmt: skip

MEANINGS: Final[dict[str, str]] = {
    "daemon.state_dir": "durable state: journal, checkpoints, logs. In the file an absolute path, or one that begins with ~",
    "daemon.runtime_dir": "control socket and beats: a directory on tmpfs, gone after a reboot. Absolute or ~, as above",
    "daemon.sample_period_s": "time between two looks at every worker",
    "daemon.alive_period_s": "time between two durable signs of life, by which the downtime of a reboot is told",
    "daemon.log_level": "least severity that is logged",
    "daemon.log_format": "of the lines in systemd's journal (`journalctl -u extralife`). The main log is always JSON",
    "daemon.log_max_bytes": "a worker's log is rotated once it is larger",
    "daemon.log_backups": "rotated logs kept for each of a worker's two channels; 0: none",
    "daemon.host_names": "names, with spaces between them, by which browsers may reach the socket through a proxy (no port)",
    "daemon.socket_group": "group that may use the control socket; empty: the owner alone",
    "level.name": "what this load is called in status and history",
    "level.slots": "programs that run at once; the others wait in order of priority",
    "level.num_envs": "parallel environments of each built-in program",
    "level.batch_size": "transitions per update of each built-in program; a multiple of 8",
    "level.threads": "CPU threads of each program (torch, envpool, OMP_NUM_THREADS)",
    "level.memory_mb": "host memory of one program; a level whose programs need more than the box has is out of reach",
    "load.mode": "`fixed`: the level that is given; `climb`: the heaviest level that this box is shown to bear",
    "load.start": "level of a box that has no record yet (with `fixed`: the level)",
    "load.rotation_h": "hours after which a slot goes to one that has waited as long and is as important; 0: never",
    "load.stagger_s": "time between two starts after a change of level, so that eight games are not built at once",
    "load.review_s": "time of training between two looks at what the level has shown",
    "load.reboot_penalty_min": "minutes of training that a reboot costs beyond downtime and lost work: your preference",
    "load.dwell_s": "undisturbed time at a level before the next one up is tried",
    "load.trial_s": "least time of a trial",
    "load.climb_s": "the same on a box that has never rebooted under load",
    "load.cool_s": "a level whose trial ended in a reboot rests so long; twice as long after each further one",
    "load.cool_max_s": "longest rest",
    "load.rest_s": "rest of a level that turned out no faster",
    "restart.first_delay_s": "wait after the first death since the program was healthy",
    "restart.base_delay_s": "wait after the second death; it grows from there",
    "restart.factor": "growth of the wait from one death to the next",
    "restart.max_delay_s": "longest wait before the breaker opens",
    "restart.healthy_s": "so much time of progress forgives all deaths before it",
    "restart.window_s": "the breaker counts deaths in a window of this length",
    "restart.window_deaths": "so many deaths in the window open the breaker: one trial start at a time",
    "restart.slow_retry_s": "wait before the first trial start; it doubles with each",
    "restart.slow_retry_max_s": "longest wait between two trial starts",
    "restart.poison_deaths": "so many deaths in a row after resuming from one checkpoint set it aside",
    "stall.floor_s": "no training is called stalled sooner than this after its last progress",
    "stall.coarse_floor_s": "the same for programs whose progress is seen in their log or files only",
    "stall.factor": "times the largest healthy gap seen so far: the learned limit",
    "stall.live_s": "a live stamp older than this is stale: something holds the GIL",
    "stall.start_s": "spawn to the first sign of life",
    "stall.importing_s": "limit for importing",
    "stall.building_s": "limit for building environments, and",
    "stall.building_s_per_env": "so much more for each environment",
    "stall.restoring_s": "limit for restoring a checkpoint",
    "stall.compiling_s": "limit for compiling",
    "stall.evaluating_s": "limit for evaluating",
    "stall.saving_s": "limit for saving a checkpoint",
    "stall.leaving_s": "limit for leaving",
    "stall.cap_s": "no deadline that a worker names for itself counts beyond this",
    "stall.continue_s": "a stopped process (state T) is sent SIGCONT after this",
    "stall.grace_s": "a stalled worker's time between SIGTERM and SIGKILL",
    "stall.slow_ratio": "slower than this share of its own usual rate is reported as slow; 0: never",
    "stall.slow_for_s": "for this long",
    "stall.slow_restart_s": "slow for so long, alone among the programs: it saves, leaves and is started again",
    "stall.slow_restart_every_s": "no second restart of that kind within this time",
    "checkpoint.min_s": "shortest interval between two checkpoints",
    "checkpoint.max_s": "longest interval",
    "checkpoint.first_s": "interval while the cost of a save is not known",
    "checkpoint.move": "the interval is changed only when it would move by more than this share",
    "checkpoint.prior_failures": "weight of the assumed failure rate, in failures",
    "checkpoint.prior_mtbf_s": "assumed time between failures while nothing is known",
    "divergence.rollbacks": "so many times a diverged program goes back to an older checkpoint; then it is given up",
    "divergence.nan_for_s": "a worker whose losses are not finite for this long, look after look, has diverged",
    "health.on_exploding": "what follows when a network promises far more than the game can pay",
    "health.on_collapsed": "what follows when a policy has stopped trying without being good",
    "health.on_falling": "what follows when the return is far below its own best",
    "health.q_factor": "Q explodes beyond this times the most that it can truly be, 1 / (1 - gamma)",
    "health.exploding_for_s": "for this long, look after look",
    "health.entropy_share": "a policy has collapsed below this share of the entropy that it could have",
    "health.collapsed_for_s": "for this long, look after look, with a return that is not near its best",
    "health.fall_share": "the return has fallen when more than this share of what was gained is lost again",
    "health.fall_games": "for so many games",
    "gate.min_free_mb": "a program starts once so much of its GPU is free (MiB); 0: by what it held before",
    "gate.poll_s": "for so long it must have been free: bursts of another training must not look like room",
    "gate.timeout_s": "so long a program waits for it, at the most",
    "gate.on_timeout": "what then, where there is no fallback batch",
    "gate.fallback_batch": "the batch that it starts with then, where it has none of its own and this is smaller",
    "prechecks.margin_c": "a GPU so near to its slowdown, in degrees C, forbids higher levels",
    "prechecks.clear_s": "so long the reason of a veto must be gone before it is lifted",
    "prechecks.disk_free_mb": "less on the disk of the state directory forbids higher levels (MiB)",
    "journal.keep_days": "facts stay in the journal for so many days; older ones move to `journal-archive/` beside it",
    "journal.max_mb": "a journal that is larger moves more, down to half of this",
    "backup.calendar": "when one is made by itself, in local time: `off`, `hourly`, `daily HH:MM`, `weekly DAY HH:MM`",
    "backup.keep": "so many backups of each kind that nobody asked for are kept; those of `supervisorctl backup` stay",
    "backup.before_level": "whether one is made before a level's first trial, and before the config's level becomes another",
    "recorder.max_mb": "size of the recorder's file; one that is larger forgets the oldest rows. 0: nothing is recorded",
    "cost.usd_per_hour": "price of an hour of this box, on or off; without it `cost` tells hours and shares",
    "cgroups.use": "whether each worker gets a cgroup of its own, where the daemon has been given some (docs/box.md)",
    "cgroups.parent": "directory of cgroup v2 that is extralife's alone; empty: that of its service (Delegate=yes)",
    "cgroups.memory_slack": "beyond its level's memory_mb by this share a worker is ended; within it, it is slowed down",
    "cgroups.pids_max": "most processes and threads of one worker",
    "cgroups.cpu_weight": "share of the processors, against other workers, of a program that says nothing of its own",
    "alerts.urls": "whom to tell, by [Apprise](https://github.com/caronc/apprise)'s URLs; never shown anywhere",
    "alerts.urls_file": "a file of more of them, one a line, that nobody but its owner may read (mode 0600)",
    "alerts.command": "a program to run for each alert, which gets it as JSON on standard input; no shell reads it",
    "alerts.kinds": "which kinds are sent",
    "alerts.min_severity": "how severe they are at the least",
    "alerts.at_most_per_h": "so many are sent in an hour; the others are counted, and told as one",
    "alerts.same_within_s": "the same of the same program is not sent again within this time, but counted",
    "alerts.timeout_s": "so long one try may take",
    "alerts.keep_days": "so long it is tried to deliver an alert",
    "program.priority": "lower starts first",
    "program.autostart": "whether it runs without being asked for, the first time it is seen",
    "program.stall_timeout_s": "limit without progress while training, in place of the learned one",
    "program.start_timeout_s": "limit from its start to its first sign of progress",
    "program.stop_grace_s": "time to save and leave between SIGTERM and SIGKILL",
    "program.stop_signal_to": (
        "which processes get SIGTERM first: the topmost that handle it; the one that was started; all of them. "
        "Taken at its next start"
    ),
    "program.on_sick": "what follows from any illness of [health], in place of its three settings",
    "program.gpu": "index of its GPU as `nvidia-smi` lists them: it sees no other (CUDA_VISIBLE_DEVICES)",
    "program.min_free_mb": "in place of [gate]'s min_free_mb; 0: what it held before decides",
    "program.gate_poll_s": "in place of [gate]'s poll_s",
    "program.gate_timeout_s": "in place of [gate]'s timeout_s",
    "program.cpu_weight": "in place of [cgroups]'s cpu_weight; taken at its next start",
    "program.env": 'environment variables of its own, `{ NAME = "value" }`',
    "program.command": 'the program and its arguments: `["python", "train.py"]` or `"python train.py"`; no shell reads it',
    "program.directory": "working directory; a relative one is relative to this file",
    "program.progress": "where its signs of progress come from",
    "program.progress_glob": 'files whose appearing or changing is progress, such as `"checkpoints/*.pt"`',
    "program.done_codes": "exit codes that mean: finished, do not start again",
}

_UNSET: Final = {
    "daemon.state_dir": "`$STATE_DIRECTORY`, `/var/lib/extralife` for root under systemd, else `~/.local/state/extralife`",
    "daemon.runtime_dir": (
        "`$RUNTIME_DIRECTORY`, else `/run`, `$XDG_RUNTIME_DIR` or `/dev/shm` + `/extralife` + a mark of state_dir"
    ),
    "gate.fallback_batch": "none",
    "level.threads": "cores / slots, at least 1",
    "cost.usd_per_hour": "not known",
    "level.memory_mb": "not checked",
    "load.mode": "`climb` where the file has [levels], else `fixed`",
    "load.start": "the lowest",
    "alerts.urls": "none",
    "alerts.command": "none",
    "alerts.kinds": "all",
    "program.stall_timeout_s": "learned, see [stall]",
    "program.start_timeout_s": "see [stall]",
    "program.on_sick": "see [health]",
    "program.gpu": "all that are there; CUDA takes the first",
    "program.min_free_mb": "[gate]'s",
    "program.gate_poll_s": "[gate]'s",
    "program.gate_timeout_s": "[gate]'s",
    "program.cpu_weight": "[cgroups]'s",
    "program.env": "none",
    "program.command": "none: a built-in game",
    "program.directory": "its run directory",
    "program.progress": '"log"',
    "program.progress_glob": 'none; needed with progress = "files"',
    "program.done_codes": "[0]",
}

COMMON_KEYS: Final = (
    "priority", "autostart", "stall_timeout_s", "start_timeout_s", "stop_grace_s", "stop_signal_to", "on_sick", "gpu",
    "min_free_mb", "gate_poll_s", "gate_timeout_s", "cpu_weight", "env",
)  # fmt: skip
ALERT_LISTS: Final = ("urls", "command", "kinds")  # of [alerts]: `config/alerts.py` checks them
FOREIGN_KEYS: Final = ("command", "directory", "progress", "progress_glob", "done_codes")
DIRECTORIES: Final = ("state_dir", "runtime_dir")


@functools.cache
def section_keys(section: str) -> dict[str, Key]:
    """The keys of a section that is a dataclass."""
    lists = ALERT_LISTS if section == "alerts" else ()
    return _keys_of(SECTIONS[section], section, [each.name for each in fields(SECTIONS[section]) if each.name not in lists])


@functools.cache
def program_keys() -> dict[str, Key]:
    """The plain keys of any program (`env` is a table and is checked on its own)."""
    return _keys_of(ProgramSpec, "program", [key for key in COMMON_KEYS if key != "env"])


def ladder_keys() -> dict[str, Key]:
    """The keys of one level of [levels]: those of [level] but its name, which is that of its section."""
    return {key: rule for key, rule in section_keys("level").items() if key != "name"}


def directory_keys() -> dict[str, Key]:
    """[daemon]'s two directories, which `Settings` holds as `paths`."""
    names = [f"daemon.{key}" for key in DIRECTORIES]
    return {key: _key(name, str, None) for key, name in zip(DIRECTORIES, names, strict=True)}


def unset(name: str) -> str:
    """What holds for a key without a plain default when it is not given."""
    return _UNSET[name]


def _keys_of(cls: Any, section: str, names: list[str]) -> dict[str, Key]:
    hints = typing.get_type_hints(cls)
    defaults = {field.name: None if field.default is MISSING else field.default for field in fields(cls)}
    return {name: _key(f"{section}.{name}", hints[name], defaults[name]) for name in names}


def _key(name: str, hint: Any, default: Any) -> Key:
    optional = isinstance(hint, types.UnionType)
    kind = next(arg for arg in typing.get_args(hint) if arg is not type(None)) if optional else hint
    low, high, positive = _bounds(name, kind)
    option = Option(
        name.partition(".")[2], kind, default, MEANINGS.get(name, ""), low=low, high=high, choices=_CHOICES.get(name, ())
    )
    return Key(option, positive, _UNSET.get(name, ""))


def _bounds(name: str, kind: type) -> tuple[float | None, float | None, bool]:
    if name in _BOUNDS:
        return (*_BOUNDS[name], False)
    if kind is int:
        return 1, None, False
    if kind is float:
        return 0.0, YEAR_S if name.endswith("_s") else None, True
    return None, None, False
