"""Keys of a command about its process: its user, its logs, when it counts as started.

Each key means the same as Supervisor's key of the same purpose (docs/supervisor-compatibility.md). So a supervisord.conf
can be converted without a wrapper around its commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from supervisor.config.tables import process_keys
from supervisor.config.taking import read_key
from supervisor.config.validation import Validation, label, shown
from supervisor.model.settings import LOG_AUTO, LOG_NONE, ProgramSpec, Progress
from supervisor.policy.worker.placeholders import uses
from supervisor.users import UnknownUser, is_another, refusal

_UMASK: Final = re.compile(r"[0-7]{1,4}")
_LEAST_BYTES: Final = 4096  # as in [daemon]: a smaller log would be copied every few lines
_START_S: Final = 1.0  # Supervisor's startsecs
# A change of these needs a new process, so the digest of a program that sets them covers them.
_AT_START: Final = ("user", "umask", "stdin", "redirect_stderr", "stdout_log", "stderr_log")


def process_settings(validation: Validation, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that these keys set. Mistakes go into the validation's errors."""
    values: dict[str, Any] = {}
    for key, rule in process_keys().items():
        value = read_key(validation, rule, ("program", name, key), table)
        values[key] = rule.option.default if value is None else value
    _check_umask(validation, name, values["umask"])
    _check_logs(validation, name, table, values)
    if values["start_retries"] is not None and values["start_s"] is None:
        values["start_s"] = _START_S
    return values


def changed_at_start(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not at their default and that a running process cannot adopt."""
    defaults = {key: rule.option.default for key, rule in process_keys().items()}
    return {key: values[key] for key in _AT_START if values[key] != defaults[key]}


def _check_umask(validation: Validation, name: str, umask: str) -> None:
    if umask and not _UMASK.fullmatch(umask):
        key = label("program", name, "umask")
        validation.error(
            validation.at("program", name, "umask"), f'{key} must be octal, a string such as "022", not {shown(umask)}'
        )


def _check_logs(validation: Validation, name: str, table: Mapping[str, Any], values: dict[str, Any]) -> None:
    for key in ("stdout_log", "stderr_log"):
        place = values[key]
        if place.upper() in (LOG_AUTO, LOG_NONE):
            values[key] = place.upper()
            continue
        if not place.startswith(("/", "~")) or place.endswith("/") or place.startswith(("/dev/", "/proc/")):
            message = f"must be {LOG_AUTO}, {LOG_NONE} or the absolute path of a file, not {shown(place)}"
            validation.error(validation.at("program", name, key), f"{label('program', name, key)} {message}")
        values[key] = os.path.normpath(os.path.expanduser(place))  # noqa: PTH111  Path's raises for ~nobody
    if values["redirect_stderr"] and "stderr_log" in table:
        message = "has no effect with redirect_stderr = true; remove one of the two"
        validation.error(validation.at("program", name, "stderr_log"), f"{label('program', name, 'stderr_log')} {message}")
    if values["log_max_bytes"] is not None and 0 < values["log_max_bytes"] < _LEAST_BYTES:
        message = f"must be 0 (never rotated) or at least {_LEAST_BYTES}, not {values['log_max_bytes']}"
        validation.error(
            validation.at("program", name, "log_max_bytes"), f"{label('program', name, 'log_max_bytes')} {message}"
        )


def warn_about_process(validation: Validation, spec: ProgramSpec) -> None:
    """Warn of problems that may disappear, or that this box alone has: no reason to refuse every other program."""
    for key in ("stdout_log", "stderr_log"):
        place = getattr(spec, key)
        if place not in (LOG_AUTO, LOG_NONE) and not Path(place).parent.is_dir():
            message = f"the directory of {place} does not exist (yet)"
            validation.warn(validation.at("program", spec.name, key), f"{label('program', spec.name, key)}: {message}")
    if spec.user:
        try:
            message = refusal(spec.user)
        except UnknownUser as unknown:
            message = str(unknown)
        if message:
            validation.warn(validation.at("program", spec.name, "user"), f"{label('program', spec.name, 'user')}: {message}")
        else:
            _check_reach(validation, spec)


def _check_reach(validation: Validation, spec: ProgramSpec) -> None:
    """Refuse settings that another user's process cannot use, because the daemon's directories are closed to it."""
    if not is_another(spec.user):
        return
    whose = f"the daemon's directories are closed to user {spec.user!r}"
    if spec.progress in (Progress.BEAT, Progress.NOTIFY):
        known = "auto, log, files and figures work"
        validation.refuse(spec.name, "progress", f'cannot be "{spec.progress}", because {whose}; {known}')
    run_dir = dict(spec.template.values)["run_dir"] if spec.template is not None else ""
    used = {
        "command": "run_dir" in uses(spec.argv),
        "env": "run_dir" in uses(dict(spec.env).values()),
        "directory": bool(run_dir) and Path(spec.directory or "/").is_relative_to(run_dir),  # it is filled in already
    }
    for key in (key for key, is_used in used.items() if is_used):
        validation.refuse(spec.name, key, f"cannot use {{run_dir}}, because {whose}; name a directory of its own")
