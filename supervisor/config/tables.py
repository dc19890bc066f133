"""Every key of the configuration, in tables: type, default, bounds, meaning. The checks and docs/config.md use these tables.

Names, types and defaults of [daemon], [level], [restart], [stall] and [checkpoint] come from their dataclasses, so a new
field of a policy is a key of the configuration at once. This module adds only what a type cannot express: bounds and
meanings. Without an explicit bound, times are more than 0 and at most a year, and whole numbers are at least 1.
"""

from __future__ import annotations

import functools
import types
import typing
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from supervisor.config.validation import shown
from supervisor.model.settings import CLIMB, FIXED, SECTIONS, ProgramSpec, Progress
from supervisor.policy.box.gate import ON_TIMEOUT
from supervisor.policy.cluster.launcher import KINDS as KINDS_OF_LAUNCHER
from supervisor.policy.cluster.launcher import JobResources
from supervisor.policy.upkeep.alerting import SEVERITIES
from supervisor.policy.upkeep.notices import PROVIDERS
from supervisor.policy.worker.ending import STOP_SIGNAL_TO, STOP_SIGNALS
from supervisor.policy.worker.health import ACTIONS
from supervisor.policy.worker.restart import MOST_DEATHS, RESTARTS
from supervisor.records import dataclass
from workers.options import OPTIONS, Option, Value

TOP: Final = (*SECTIONS, "levels", "training", "program")
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS: Final = ("text", "json")

YEAR_S: Final = 366 * 86_400.0
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Key:
    """One key: an `Option` (type, bounds, meaning), and two properties that an `Option` lacks."""

    option: Option
    positive: bool = False  # 0 itself is refused
    unset: str = ""  # description of the default, where there is no plain one

    def check(self, value: object, name: str, *, text: bool = False) -> Value:
        """The checked value. `text`: it came as a string. Raises ValueError with one sentence that begins with `name`."""
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

_BOUNDS: Final[dict[str, tuple[float | None, float | None]]] = {  # inclusive; None: no bound
    "daemon.sample_period_s": (0.01, 60.0),
    "journal.keep_days": (1, 36_500),
    "journal.max_mb": (1, 1_000_000),
    "recorder.max_mb": (0, 1_000_000),
    "backup.keep": (1, 10_000),
    "notice.every_s": (0.1, 600.0),
    "notice.timeout_s": (0.1, 60.0),
    "offsite.every_s": (1.0, YEAR_S),
    "offsite.reboot_s": (0.0, 3600.0),
    "offsite.upload_kib_s": (0, 1_000_000_000),
    **dict.fromkeys([f"offsite.keep_{each}" for each in ("last", "hourly", "daily", "weekly", "monthly")], (0, 1_000_000)),
    "offsite.check_percent": (0, 100),
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
    "stall.settle_s": (0.0, YEAR_S),
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
    "launcher.gpus": (0, 64),
    "launcher.cpus": (1, 4096),
    "launcher.memory_mb": (1, 100_000_000),
    "launcher.time_limit_s": (60.0, YEAR_S),
    "launcher.signal_lead_s": (5.0, 65_535.0),
    "launcher.poll_s": (0.5, 3600.0),
    "launcher.node_faults": (1, 1000),
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
    "program.start_s": (0.0, YEAR_S),
    "program.start_retries": (0, 1_000_000),
    "program.log_max_bytes": (0, None),
    "program.log_backups": (0, 1000),
}
_CHOICES: Final = {
    "daemon.log_level": LOG_LEVELS,
    "daemon.log_format": LOG_FORMATS,
    "program.progress": tuple(Progress),
    "program.stop_signal": STOP_SIGNALS,
    "program.stop_signal_to": STOP_SIGNAL_TO,
    "program.restart": RESTARTS,
    "gate.on_timeout": ON_TIMEOUT,
    "load.mode": (FIXED, CLIMB),
    "launcher.kind": KINDS_OF_LAUNCHER,
    "alerts.min_severity": SEVERITIES,
    "notice.provider": PROVIDERS,
} | dict.fromkeys(("health.on_exploding", "health.on_collapsed", "health.on_falling", "program.on_sick"), ACTIONS)

# (section, low, high): `low` must not be more than `high`. The error message names both.
ORDERED: Final = (
    ("checkpoint", "min_s", "max_s"), ("restart", "base_delay_s", "max_delay_s"),
    ("restart", "slow_retry_s", "slow_retry_max_s"), ("load", "cool_s", "cool_max_s"),
    ("launcher", "signal_lead_s", "time_limit_s"),
)  # fmt: skip

MEANINGS: Final[dict[str, str]] = {
    "program.group": "programs with the same word are a group: `supervisorctl stop WORD:*`. Seeds are one by themselves",
    "daemon.state_dir": "durable state: journal, checkpoints, logs. In the file an absolute path, or one that begins with ~",
    "daemon.runtime_dir": "control socket and beats: a directory on tmpfs, gone after a reboot; absolute, or begins with ~",
    "daemon.sample_period_s": "time between two samples of every worker",
    "daemon.alive_period_s": "time between two durable signs of life, from which the downtime of a reboot is computed",
    "daemon.log_level": "least severity that is logged",
    "daemon.log_format": "format of the lines in the main log and in systemd's journal (`journalctl -u extralife`)",
    "daemon.log_max_bytes": "a worker's log is rotated once it is larger",
    "daemon.log_backups": "rotated logs kept for each of a worker's two channels; 0: none",
    "daemon.host_names": "host names, separated by spaces, for browsers that reach the socket through a proxy (no port)",
    "daemon.socket_group": "group that may use the control socket; empty: only its owner",
    "level.name": "name of this load in status and history",
    "level.slots": "programs that run at once; the others wait in order of priority",
    "level.num_envs": "parallel environments of each built-in program",
    "level.batch_size": "transitions per update of each built-in program; a multiple of 8",
    "level.threads": "CPU threads of each program (torch, envpool, OMP_NUM_THREADS)",
    "level.memory_mb": "host memory of one program; a level whose programs need more than the box has is never used",
    "load.mode": "`fixed`: the configured level; `climb`: the level that keeps the most work on this box, found by trials",
    "load.start": 'level that a new box begins with; with `mode = "fixed"`: the level that it keeps',
    "load.rotation_h": "hours after which a program gives its slot to an equal one that has waited as long; 0: never",
    "load.stagger_s": "time between two starts after a change of level, so that games are built one by one; not for jobs",
    "load.review_s": "time of training between two reviews of the level in force",
    "load.reboot_penalty_min": "minutes of training that a reboot costs you, beside downtime and lost work: your preference",
    "load.dwell_s": "time without change or reboot before the next higher level is tried",
    "load.trial_s": "least time of a trial",
    "load.climb_s": "least time of a trial on a box that has never rebooted under load",
    "load.cool_s": "wait before a level whose trial ended in a reboot is tried again; doubled after each further one",
    "load.cool_max_s": "longest wait before a level whose trial ended in a reboot is tried again",
    "load.rest_s": "wait before a level that was not faster is tried again",
    "restart.first_delay_s": "wait after the first death since the program was healthy",
    "restart.base_delay_s": "wait after the second death; it grows from there",
    "restart.factor": "growth of the wait from one death to the next",
    "restart.max_delay_s": "longest wait before the breaker opens",
    "restart.healthy_s": "after this much progress, earlier deaths no longer count",
    "restart.window_s": "the breaker counts deaths in a window of this length",
    "restart.window_deaths": "number of deaths in the window that opens the breaker: one trial start at a time",
    "restart.slow_retry_s": "wait before the first trial start; it doubles with each",
    "restart.slow_retry_max_s": "longest wait between two trial starts",
    "restart.poison_deaths": "number of deaths in a row after resuming from one checkpoint that sets it aside",
    "stall.floor_s": "shortest time without progress after which a training counts as stalled",
    "stall.coarse_floor_s": "`floor_s` of a program without beats; without notifications too, its longest time without work",
    "stall.factor": "the learned limit is this many times the largest healthy gap seen so far",
    "stall.live_s": "without a sign of other threads for this long, something holds the GIL",
    "stall.start_s": "limit from the start to the first sign of life",
    "stall.importing_s": "limit for importing",
    "stall.building_s": "limit for building environments, before the part for each environment (`building_s_per_env`)",
    "stall.building_s_per_env": "time added to `building_s` for each environment",
    "stall.restoring_s": "limit for restoring a checkpoint",
    "stall.compiling_s": "limit for compiling",
    "stall.evaluating_s": "limit for evaluating",
    "stall.saving_s": "limit for saving a checkpoint",
    "stall.leaving_s": "limit for exiting",
    "stall.cap_s": "latest deadline that a worker may set for itself",
    "stall.silence_max_s": "longest limit: each kill for silence doubles the limit until the program is healthy again",
    "stall.settle_s": "a program without beats or notifications counts as RUNNING only after this time",
    "stall.continue_s": "a stopped process (state T) is sent SIGCONT after this",
    "stall.grace_s": "a stalled worker's time between SIGTERM and SIGKILL",
    "stall.slow_ratio": "slower than this share of its own usual rate is reported as slow; 0: never",
    "stall.slow_for_s": "time below `slow_ratio`, or without an expected step, before a program counts as slow",
    "stall.slow_restart_s": "a program that alone is slow, or stands still, for this long saves, exits and is restarted",
    "stall.slow_restart_every_s": "shortest time between two restarts of a program because it is slow",
    "checkpoint.min_s": "shortest interval between two checkpoints",
    "checkpoint.max_s": "longest interval between two checkpoints",
    "checkpoint.first_s": "interval while the cost of a save is unknown",
    "checkpoint.move": "the interval is changed only when it would move by more than this share",
    "checkpoint.prior_failures": "weight of the assumed failure rate, in failures",
    "checkpoint.prior_mtbf_s": "assumed time between failures before any were measured",
    "divergence.rollbacks": "number of rollbacks to an older checkpoint before a diverged program is given up",
    "divergence.nan_for_s": "a worker has diverged when its losses are not finite in every sample for this long",
    "health.on_exploding": "action when a network's Q is far larger than the game's rewards allow",
    "health.on_collapsed": "action when a policy has lost its entropy without a good return",
    "health.on_falling": "action when the return is far below its own best",
    "health.q_factor": "Q has exploded when it exceeds this times its possible maximum, 1 / (1 - gamma)",
    "health.exploding_for_s": "Q has exploded when every sample for this long is above the limit of `q_factor`",
    "health.entropy_share": "a policy has collapsed below this share of the entropy that it could have",
    "health.collapsed_for_s": "time with every sample below `entropy_share`, and the return not near its best",
    "health.fall_share": "the return has fallen when it has lost more than this share of its gain",
    "health.fall_games": "number of games in a row for which the return must have fallen (`fall_share`)",
    "gate.min_free_mb": "MiB that must be free on its GPU before a program starts; 0: as much as it used before",
    "gate.poll_s": "time for which the memory must have been free, because other trainings allocate in bursts",
    "gate.timeout_s": "longest time that a program waits for the memory",
    "gate.on_timeout": "action after `timeout_s`, for programs without a fallback batch",
    "gate.fallback_batch": "smaller batch to start with after `timeout_s`, for programs without their own",
    "prechecks.margin_c": "a GPU within this many degrees C of its slowdown vetoes higher levels",
    "prechecks.clear_s": "time for which the reason of a veto must be gone before the veto is lifted",
    "prechecks.disk_free_mb": "with fewer free MiB on the disk of the state directory, higher levels are vetoed",
    "journal.keep_days": "days for which facts stay in the journal; older ones move to `journal-archive/` beside it",
    "journal.max_mb": "size beyond which more facts move, until the journal has half of it",
    "backup.calendar": "when an automatic backup is made, local time: `off`, `hourly`, `daily HH:MM`, `weekly DAY HH:MM`",
    "backup.keep": "number of automatic backups of each kind that are kept; those of `supervisorctl backup` stay",
    "backup.before_level": "whether a backup is made before a level's first trial and before a change of [level]",
    "offsite.repository": "where restic keeps the copies: a directory, `sftp:USER@HOST:/DIR`, `s3:...`; empty: no copies",
    "offsite.password_file": "file with the repository's password, that only its owner may read (mode 0600)",
    "offsite.env_file": "file with the backend's credentials, `NAME=VALUE` a line, that only its owner may read",
    "offsite.sftp_command": "the command that connects to an `sftp:` repository, such as `ssh -i KEY USER@HOST -s sftp`",
    "offsite.every_s": "time between two copies while something trains",
    "offsite.late_s": "age of the newest copy from which it is reported as too old",
    "offsite.timeout_s": "longest time of one copy",
    "offsite.reboot_s": "longest time for which an orderly reboot, or SIGTERM, waits for a last copy; 0: it does not wait",
    "offsite.upload_kib_s": "KiB a second that a copy may send; 0: no limit",
    "offsite.with_replay": "whether the replay buffers, which have gigabytes, are copied too",
    "offsite.forget": "when old copies are removed, local time; written as backup.calendar",
    "offsite.keep_last": "number of newest copies that stay (`restic forget --keep-last`)",
    "offsite.keep_hourly": "number of last hours of which the newest copy stays (`restic forget --keep-hourly`)",
    "offsite.keep_daily": "number of last days of which the newest copy stays (`restic forget --keep-daily`)",
    "offsite.keep_weekly": "number of last weeks of which the newest copy stays (`restic forget --keep-weekly`)",
    "offsite.keep_monthly": "number of last months of which the newest copy stays (`restic forget --keep-monthly`)",
    "offsite.check": "when the repository is verified (`restic check`), local time; written as backup.calendar",
    "offsite.check_percent": "share of the data that `check` reads back, in per cent; 0: only the structure",
    "notice.provider": "provider whose metadata service is polled; `auto`: the one that the firmware (DMI) names, if any",
    "notice.endpoint": "address of the metadata service, `http://HOST` or `http://HOST:PORT`",
    "notice.command": "a program that prints a line when this box ends (docs/offsite.md); no shell reads it; empty: none",
    "notice.file": "a file that appears when this box ends; empty: none",
    "notice.every_s": "time between two questions",
    "notice.timeout_s": "longest time for an answer",
    "recorder.max_mb": "size of the recorder's file; beyond it the oldest rows are removed. 0: nothing is recorded",
    "http.listen": "ADDRESS:PORT of a TCP port beside the control socket, such as `127.0.0.1:9001`; empty: none",
    "http.user": "user name that clients send with the password",
    "http.password_file": "file with the password on one line, that only its owner may read (mode 0600)",
    "cost.usd_per_hour": "price of an hour of this box; without it `cost` shows only hours and shares",
    "cgroups.use": "whether each worker gets a cgroup of its own, if cgroups are delegated to the daemon (docs/box.md)",
    "cgroups.parent": "directory of cgroup v2 that only extralife uses; empty: that of its service (Delegate=yes)",
    "cgroups.memory_slack": "a worker may exceed its level's memory_mb by this share, slowed down; beyond that it is killed",
    "cgroups.pids_max": "largest number of processes and threads of one worker",
    "cgroups.cpu_weight": "weight of a program's share of the processors, unless it has its own",
    "launcher.kind": "`local`: programs run on this machine; `slurm`: each start of a program is a job of a Slurm cluster",
    "launcher.partition": "partition of the jobs; empty: the cluster's default",
    "launcher.account": "account that the jobs are charged to; empty: your default account",
    "launcher.qos": "quality of service of the jobs; empty: the account's default",
    "launcher.constraint": "features that a node must have, as in `sbatch --constraint`",
    "launcher.gres": "generic resources in Slurm's own words, such as `gpu:a100:1`, in place of `gpus`",
    "launcher.gpus": "GPUs of each job",
    "launcher.cpus": "processors of each job; also the threads of a built-in program, unless its level says otherwise",
    "launcher.memory_mb": "memory of each job in MiB",
    "launcher.time_limit_s": "time limit of each job, rounded up to minutes; the next job continues where it ends",
    "launcher.signal_lead_s": "time before its time limit at which a job saves and exits; must be longer than a save takes",
    "launcher.setup": "lines of shell that each job runs first, such as `module load conda` and `conda activate rl`; "
    "a line that fails ends the job",
    "launcher.options": "more options of sbatch, one a line, such as `--reservation=night`",
    "launcher.arrays": "whether seeds of a game (or programs of one `group`) that start together are one job array",
    "launcher.poll_s": "time between two polls of the queue",
    "launcher.settle_s": "time to search for a job whose submission got no answer, before it counts as not submitted",
    "launcher.node_faults": "number of faults of one node after which new jobs avoid it",
    "launcher.node_exclude_s": "time for which new jobs avoid a node with too many faults",
    "alerts.urls": "targets as URLs of [Apprise](https://github.com/caronc/apprise); never shown anywhere",
    "alerts.urls_file": "file with more URLs of Apprise, one per line, that only its owner may read (mode 0600)",
    "alerts.command": "a program to run for each alert, which gets it as JSON on standard input; no shell reads it",
    "alerts.kinds": "kinds of alerts that are sent",
    "alerts.min_severity": "least severity that is sent",
    "alerts.at_most_per_h": "largest number sent in an hour; the others are counted and sent as one",
    "alerts.same_within_s": "an alert of the same kind and program is not sent again within this time, only counted",
    "alerts.timeout_s": "longest time of one try",
    "alerts.keep_days": "days for which delivery is tried",
    "alerts.report_at": "when the daily report is sent, such as `08:00`, local time; its window is the day before",
    "program.priority": "lower starts first",
    "program.autostart": "whether it starts by itself when it first appears in the configuration",
    "program.stall_timeout_s": "limit without progress while training, in place of the learned one",
    "program.start_timeout_s": "limit from its start to its first sign of progress",
    "program.stop_grace_s": "time to save and exit between SIGTERM and SIGKILL; also for what a clean end leaves running",
    "program.stop_signal": "the signal that asks it to save and exit. Used from its next start on",
    "program.stop_signal_to": (
        "which processes get that signal first: the topmost that handle it; the one that was started; all of them. "
        "Used from its next start on"
    ),
    "program.on_sick": "action after any illness of [health], in place of its three settings",
    "program.gpu": "index of its GPU as `nvidia-smi` lists them; it sees only this one (CUDA_VISIBLE_DEVICES)",
    "program.min_free_mb": "in place of [gate]'s min_free_mb; 0: as much as it used before",
    "program.gate_poll_s": "in place of [gate]'s poll_s",
    "program.gate_timeout_s": "in place of [gate]'s timeout_s",
    "program.cpu_weight": "in place of [cgroups]'s cpu_weight; used from its next start on",
    "program.env": 'environment variables of its own, `{ NAME = "value" }`',
    "program.command": (
        'the program and its arguments, `["python", "train.py"]` or `"python train.py"`, '
        "with [placeholders](any-script.md#placeholders)"
    ),
    "program.shell": "whether a shell reads `command`, one string then; without it `|`, `>` and `$HOME` mean nothing",
    "program.directory": "working directory; a relative one is relative to this file",
    "program.follows_level": "whether a climb restarts it with the settings of another level; false: it keeps the start's",
    "program.level_values": "values of the level that the script reads from `EXTRALIFE_NUM_ENVS` and its like, by itself",
    "program.progress": "source of its signs of progress; `auto`: the best of beats, notifications, figures, log and files",
    "program.progress_glob": 'files whose creation or change is progress, such as `"checkpoints/*.pt"`',
    "program.checkpoint_glob": (
        'checkpoints that it writes itself, files or directories, such as `"runs/**/*.ckpt"`: relative to its directory, or '
        "absolute"
    ),
    "program.checkpoint_step": (
        r"where the step of such a checkpoint stands: a regular expression on its path, `'step=(\d+)'`, or a file in it and "
        'a key, `"trainer_state.json:global_step"`'
    ),
    "program.checkpoint_check": "command that ends with 0 if a checkpoint is whole; its path is added as the last argument",
    "program.checkpoint_check_timeout_s": "time limit of `checkpoint_check`; after that the result is unknown",
    "program.log_regex": "named groups of it are [figures](any-script.md#figures-from-what-it-already-writes) in its log",
    "program.json_lines": 'files of JSON lines with its figures, such as `"runs/*/metrics.jsonl"`',
    "program.csv_glob": 'CSV files with its figures: a line of names, then lines of numbers: `"logs/progress.csv"`',
    "program.events_glob": 'TensorBoard event files with its figures, such as `"runs/**/events.out.tfevents.*"`',
    "program.figures": 'what keys and tags mean, where their names do not say it: `{ return = "eval/score" }`',
    "program.target_steps": (
        "the step at which it ends itself, for STEPS, ETA, cost and [whether it is done](any-script.md#when-is-it-done)"
    ),
    "program.steps_begin_anew": "whether it counts its steps from 0 again after it has loaded a checkpoint",
    "program.kind": "`service`: TensorBoard, a notebook: takes no slot, waits for no GPU memory, is not judged by progress",
    "program.restart": "which ends cause a new start: any failure, any end at all, or none",
    "program.done_codes": "exit codes that mean that it has finished",
    "program.health": (
        'of a service: whether it answers, such as `{ http = "http://127.0.0.1:6006/" }` '
        "([any script](any-script.md#services-beside-the-training))"
    ),
    "program.start_s": "it counts as started once it has lived for so long (Supervisor's `startsecs`)",
    "program.start_retries": "retries, 1, 2, 3 ... s apart, if it ends before `start_s`; then FATAL (`startretries`)",
    "program.user": "user whose process it is, by name or number (`user`); for a daemon that runs as root",
    "program.umask": 'its file mode creation mask, octal, such as `"022"` (`umask`)',
    "program.stdin": "whether its standard input is a pipe for `supervisorctl fg`; otherwise it is empty",
    "program.redirect_stderr": "whether its standard error goes into the log of its standard output (`redirect_stderr`)",
    "program.stdout_log": "log of its standard output: `AUTO`, `NONE` or an absolute path (`stdout_logfile`)",
    "program.stderr_log": "log of its standard error, likewise (`stderr_logfile`)",
    "program.log_max_bytes": "in place of [daemon]'s log_max_bytes; 0: never rotated (`stdout_logfile_maxbytes`)",
    "program.log_backups": "in place of [daemon]'s log_backups (`stdout_logfile_backups`)",
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
    "launcher.memory_mb": "the partition's default",
    "load.mode": "`climb` where the file has [levels], else `fixed`",
    "load.start": "the lowest",
    "alerts.urls": "none",
    "alerts.command": "none",
    "alerts.kinds": "all",
    "program.stall_timeout_s": "learned, see [stall]",
    "program.start_timeout_s": "see [stall]",
    "program.on_sick": "see [health]",
    "program.gpu": "all GPUs; CUDA uses the first",
    "program.min_free_mb": "[gate]'s",
    "program.gate_poll_s": "[gate]'s",
    "program.gate_timeout_s": "[gate]'s",
    "program.cpu_weight": "[cgroups]'s",
    "program.env": "none",
    "program.command": "none: a built-in game",
    "program.shell": "false",
    "program.directory": "its run directory",
    "program.level_values": "[]",
    "program.follows_level": 'true with `checkpoint_glob`, `{resume}`, `level_values` or `progress = "beat"`',
    "program.progress": '"auto"',
    "program.progress_glob": 'none; needed with progress = "files"',
    "program.checkpoint_glob": "none: what it saves is not looked at",
    "program.checkpoint_step": "not known",
    "program.checkpoint_check": "known formats",
    "program.checkpoint_check_timeout_s": "60",
    "program.log_regex": "none",
    "program.json_lines": "none",
    "program.csv_glob": "none",
    "program.events_glob": "none",
    "program.figures": "by their names",
    "program.target_steps": "not known",
    "program.steps_begin_anew": "learned",
    "program.kind": '"training"',
    "program.restart": '"failed"',
    "program.health": "none",
    "program.done_codes": "[0]",
    "program.start_s": "see [stall]'s settle_s; 1 with start_retries",
    "program.start_retries": "see [restart]",
    "program.user": "the daemon's",
    "program.umask": "the daemon's",
    "program.log_max_bytes": "[daemon]'s",
    "program.log_backups": "[daemon]'s",
}

COMMON_KEYS: Final = (
    "group", "priority", "autostart", "stall_timeout_s", "start_timeout_s", "stop_grace_s", "stop_signal", "stop_signal_to",
    "on_sick", "gpu", "min_free_mb", "gate_poll_s", "gate_timeout_s", "cpu_weight", "env",
)  # fmt: skip
ALERT_LISTS: Final = ("urls", "command", "kinds")  # of [alerts]: `config/alerts.py` checks them
HTTP_MADE: Final = ("host", "port", "password")  # of [http]: `config/http.py` computes them from its keys
PROCESS_KEYS: Final = (
    "start_s", "start_retries", "user", "umask", "stdin", "redirect_stderr", "stdout_log", "stderr_log", "log_max_bytes",
    "log_backups",
)  # fmt: skip
FIGURE_KEYS: Final = ("log_regex", "json_lines", "csv_glob", "events_glob", "figures", "target_steps", "steps_begin_anew")
FOREIGN_KEYS: Final = (
    "command", "shell", "directory", "level_values", "follows_level", "progress", "progress_glob", "checkpoint_glob",
    "checkpoint_step", "checkpoint_check", "checkpoint_check_timeout_s", *FIGURE_KEYS, "done_codes", "kind", "restart",
    "health", *PROCESS_KEYS,
)  # fmt: skip
KINDS: Final = ("training", "service")
DIRECTORIES: Final = ("state_dir", "runtime_dir")


@functools.cache
def section_keys(section: str) -> dict[str, Key]:
    """The keys of a section that is a dataclass."""
    others = {"alerts": ALERT_LISTS, "http": HTTP_MADE, "level": ("launcher",)}.get(section, ())
    return _keys_of(SECTIONS[section], section, [each.name for each in fields(SECTIONS[section]) if each.name not in others])


@functools.cache
def program_keys() -> dict[str, Key]:
    """The plain keys of any program (`env` is a table and is checked separately)."""
    return _keys_of(ProgramSpec, "program", [key for key in COMMON_KEYS if key != "env"])


@functools.cache
def process_keys() -> dict[str, Key]:
    """The plain keys of a command about its process."""
    return _keys_of(ProgramSpec, "program", list(PROCESS_KEYS))


def ladder_keys() -> dict[str, Key]:
    """The keys of one level of [levels]: those of [level] without `name`, because its section has the name."""
    return {key: rule for key, rule in section_keys("level").items() if key != "name"}


def resource_keys() -> dict[str, Key]:
    """The keys of [levels.NAME.launcher]: those of [launcher] that a level may override."""
    return {each.name: section_keys("launcher")[each.name] for each in fields(JobResources)}


def directory_keys() -> dict[str, Key]:
    """[daemon]'s two directories, which `Settings` holds as `paths`."""
    names = [f"daemon.{key}" for key in DIRECTORIES]
    return {key: _key(name, str, None) for key, name in zip(DIRECTORIES, names, strict=True)}


def unset(name: str) -> str:
    """The description of the default, for a key without a plain one."""
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
