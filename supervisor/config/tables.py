"""Every key of the configuration: type, default, bounds, meaning, as its field declares them (`supervisor/keys.py`).

The checks and docs/config.md use these tables.
"""

from __future__ import annotations

import functools
import types
import typing
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from supervisor import keys
from supervisor.config.validation import shown
from supervisor.model.settings import SECTIONS, Paths, ProgramSpec
from supervisor.policy.cluster.launcher import JobResources
from supervisor.records import dataclass
from workers.options import Option, Value

TOP: Final = (*SECTIONS, "levels", "training", "program")
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

MEANINGS: Final[dict[str, str]] = {
    "alerts.urls": "targets as URLs of [Apprise](https://github.com/caronc/apprise); never shown anywhere",
    "alerts.command": "a program to run for each alert, which gets it as JSON on standard input; no shell reads it",
    "alerts.kinds": "kinds of alerts that are sent",
    "when_done.command": "a program that stops this box; no shell reads it",
    "when_done.when": "`done`: every program is DONE; `stuck`: none can go on; `budget`: a limit of [cost] is reached",
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
}

_UNSET: Final = {
    "when_done.command": "none: this box is not stopped",
    "when_done.when": '["done"]',
    "alerts.urls": "none",
    "alerts.command": "none",
    "alerts.kinds": "all",
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
}

COMMON_KEYS: Final = (
    "group", "priority", "autostart", "stall_timeout_s", "start_timeout_s", "stop_grace_s", "stop_signal", "stop_signal_to",
    "on_sick", "gpu", "min_free_mb", "gate_poll_s", "gate_timeout_s", "cpu_weight", "env",
)  # fmt: skip
LISTS: Final = {"alerts": ("urls", "command", "kinds"), "when_done": ("command", "when")}  # checked by `config/lists.py`
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
    return _keys_of(SECTIONS[section], list(keys.declared(SECTIONS[section])))


@functools.cache
def program_keys() -> dict[str, Key]:
    """The plain keys of any program (`env` is a table and is checked separately)."""
    return _keys_of(ProgramSpec, [key for key in COMMON_KEYS if key != "env"])


@functools.cache
def process_keys() -> dict[str, Key]:
    """The plain keys of a command about its process."""
    return _keys_of(ProgramSpec, list(PROCESS_KEYS))


def ladder_keys() -> dict[str, Key]:
    """The keys of one level of [levels]: those of [level] without `name`, because its section has the name."""
    return {key: rule for key, rule in section_keys("level").items() if key != "name"}


def resource_keys() -> dict[str, Key]:
    """The keys of [levels.NAME.launcher]: those of [launcher] that a level may override."""
    return {each.name: section_keys("launcher")[each.name] for each in fields(JobResources)}


def directory_keys() -> dict[str, Key]:
    """[daemon]'s two directories, which `Settings` holds as `paths`."""
    return _keys_of(Paths, list(DIRECTORIES))


def unset(name: str) -> str:
    """The description of the default, for a key without a plain one."""
    return _UNSET[name]


def _keys_of(cls: Any, names: list[str]) -> dict[str, Key]:
    hints, declared = typing.get_type_hints(cls), keys.declared(cls)
    defaults = {field.name: None if field.default is MISSING else field.default for field in fields(cls)}
    return {name: _key(name, declared[name], hints[name], defaults[name]) for name in names}


def _key(name: str, declared: keys.Declaration, hint: Any, default: Any) -> Key:
    optional = isinstance(hint, types.UnionType)
    kind = next(arg for arg in typing.get_args(hint) if arg is not type(None)) if optional else hint
    low, high = declared.low, declared.high
    if high is None and kind is float and name.endswith("_s"):
        high = keys.YEAR_S
    positive = low is None and kind is float
    low = {int: 1, float: 0.0}.get(kind) if low is None else low
    option = Option(name, kind, default, declared.meaning, low=low, high=high, choices=declared.choices)
    return Key(option, positive, declared.unset)
