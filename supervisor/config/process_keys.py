"""Keys of a command that say how its process runs: whose it is, where its output goes, when it counts as started.

All of them mean what Supervisor's keys of the same purpose mean (docs/supervisor-compatibility.md), so a supervisord.conf
moves over without a wrapper around its commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from supervisor.config.sheet import Sheet, label, shown
from supervisor.config.tables import process_keys
from supervisor.config.taking import take
from supervisor.model.settings import LOG_AUTO, LOG_NONE, ProgramSpec, Progress
from supervisor.policy.worker.placeholders import uses
from supervisor.users import UnknownUser, is_another, refusal

_UMASK: Final = re.compile(r"[0-7]{1,4}")
_LEAST_BYTES: Final = 4096  # as [daemon]'s: a smaller log would be copied with every few lines
_START_S: Final = 1.0  # Supervisor's startsecs
# A change of these needs another process; they are in the digest of a program that sets them.
_AT_START: Final = ("user", "umask", "stdin", "redirect_stderr", "stdout_log", "stderr_log")


def process_settings(sheet: Sheet, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that these keys set. What is wrong is in the sheet's errors."""
    values: dict[str, Any] = {}
    for key, rule in process_keys().items():
        value = take(sheet, rule, ("program", name, key), table)
        values[key] = rule.option.default if value is None else value
    _check_umask(sheet, name, values["umask"])
    _check_logs(sheet, name, table, values)
    if values["start_retries"] is not None and values["start_s"] is None:
        values["start_s"] = _START_S
    return values


def changed_at_start(values: Mapping[str, Any]) -> dict[str, Any]:
    """What of these settings a running process cannot take over, where it is no default."""
    defaults = {key: rule.option.default for key, rule in process_keys().items()}
    return {key: values[key] for key in _AT_START if values[key] != defaults[key]}


def _check_umask(sheet: Sheet, name: str, umask: str) -> None:
    if umask and not _UMASK.fullmatch(umask):
        key = label("program", name, "umask")
        sheet.error(sheet.at("program", name, "umask"), f'{key} must be octal, a string such as "022", not {shown(umask)}')


def _check_logs(sheet: Sheet, name: str, table: Mapping[str, Any], values: dict[str, Any]) -> None:
    for key in ("stdout_log", "stderr_log"):
        place = values[key]
        if place.upper() in (LOG_AUTO, LOG_NONE):
            values[key] = place.upper()
            continue
        if not place.startswith(("/", "~")) or place.endswith("/") or place.startswith(("/dev/", "/proc/")):
            said = f"must be {LOG_AUTO}, {LOG_NONE} or the absolute path of a file, not {shown(place)}"
            sheet.error(sheet.at("program", name, key), f"{label('program', name, key)} {said}")
        values[key] = os.path.normpath(os.path.expanduser(place))  # noqa: PTH111  Path's raises for ~nobody
    if values["redirect_stderr"] and "stderr_log" in table:
        said = "has no effect with redirect_stderr = true; remove one of the two"
        sheet.error(sheet.at("program", name, "stderr_log"), f"{label('program', name, 'stderr_log')} {said}")
    if values["log_max_bytes"] is not None and 0 < values["log_max_bytes"] < _LEAST_BYTES:
        said = f"must be 0 (never rotated) or at least {_LEAST_BYTES}, not {values['log_max_bytes']}"
        sheet.error(sheet.at("program", name, "log_max_bytes"), f"{label('program', name, 'log_max_bytes')} {said}")


def warn_of_process(sheet: Sheet, spec: ProgramSpec) -> None:
    """What may come right by itself, or is so on another box: it is no reason to refuse every other program."""
    for key in ("stdout_log", "stderr_log"):
        place = getattr(spec, key)
        if place not in (LOG_AUTO, LOG_NONE) and not Path(place).parent.is_dir():
            said = f"the directory of {place} does not exist (yet)"
            sheet.warn(sheet.at("program", spec.name, key), f"{label('program', spec.name, key)}: {said}")
    if spec.user:
        try:
            said = refusal(spec.user)
        except UnknownUser as unknown:
            said = str(unknown)
        if said:
            sheet.warn(sheet.at("program", spec.name, "user"), f"{label('program', spec.name, 'user')}: {said}")
        else:
            _check_reach(sheet, spec)


def _check_reach(sheet: Sheet, spec: ProgramSpec) -> None:
    """What another user's process cannot do, because the daemon's directories are closed to it."""
    if not is_another(spec.user):
        return
    whose = f"the daemon's directories are closed to user {spec.user!r}"
    if spec.progress in (Progress.BEAT, Progress.NOTIFY):
        known = "auto, log, files and figures work"
        sheet.refuse(spec.name, "progress", f'cannot be "{spec.progress}", because {whose}; {known}')
    if spec.template is not None and "run_dir" in uses([*spec.argv, *dict(spec.env).values(), spec.directory]):
        sheet.refuse(spec.name, "command", f"cannot use {{run_dir}}, because {whose}; name a directory of its own")
