"""Keys of a command about its process: its user, its logs, when it counts as started.

Each key means the same as Supervisor's key of the same purpose (docs/supervisor-compatibility.md). So a supervisord.conf
can be converted without a wrapper around its commands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from supervisor.config.tables import Parsers
from supervisor.config.validation import Section, shown
from supervisor.model.settings import LOG_AUTO, LOG_NONE, ProgramSpec, Progress
from supervisor.policy.worker.placeholders import uses
from supervisor.users import UnknownUser, is_another, refusal

_LEAST_BYTES: Final = 4096  # as in [daemon]: a smaller log would be copied every few lines
_START_S: Final = 1.0  # Supervisor's startsecs
# A change of these needs a new process, so the digest of a program that sets them covers them.
_AT_START: Final = ("user", "umask", "stdin", "redirect_stderr", "stdout_log", "stderr_log")


def check_together(section: Section, values: dict[str, Any]) -> None:
    """Refuse keys that have no effect, and set the one that follows from another."""
    if values["redirect_stderr"] and "stderr_log" in section:
        section.refuse("stderr_log", "has no effect with redirect_stderr = true; remove one of the two")
    if values["start_retries"] is not None and values["start_s"] is None:
        values["start_s"] = _START_S


def changed_at_start(spec: ProgramSpec) -> dict[str, Any]:
    """The settings that are not at their default and that a running process cannot adopt."""
    return {key: getattr(spec, key) for key in _AT_START if getattr(spec, key) != getattr(_PLAIN, key)}


_PLAIN: Final = ProgramSpec("", (), "")


def _log(place: str) -> str:
    if place.upper() in (LOG_AUTO, LOG_NONE):
        return place.upper()
    if not place.startswith(("/", "~")) or place.endswith("/") or place.startswith(("/dev/", "/proc/")):
        raise ValueError(f"must be {LOG_AUTO}, {LOG_NONE} or the absolute path of a file, not {shown(place)}")
    return os.path.normpath(os.path.expanduser(place))  # noqa: PTH111  Path's raises for ~nobody


def _size(size_bytes: int) -> int:
    if 0 < size_bytes < _LEAST_BYTES:
        raise ValueError(f"must be 0 (never rotated) or at least {_LEAST_BYTES}, not {size_bytes}")
    return size_bytes


PARSERS: Final[Parsers] = {"stdout_log": _log, "stderr_log": _log, "log_max_bytes": _size}


def warn_about_process(section: Section, spec: ProgramSpec) -> None:
    """Warn of problems that may disappear, or that this box alone has: no reason to refuse every other program."""
    for key in ("stdout_log", "stderr_log"):
        place = getattr(spec, key)
        if place not in (LOG_AUTO, LOG_NONE) and not Path(place).parent.is_dir():
            section.warn(key, f"the directory of {place} does not exist (yet)")
    if spec.user:
        try:
            message = refusal(spec.user)
        except UnknownUser as unknown:
            message = str(unknown)
        if message:
            section.warn("user", message)
        else:
            _check_reach(section, spec)


def _check_reach(section: Section, spec: ProgramSpec) -> None:
    """Refuse settings that another user's process cannot use, because the daemon's directories are closed to it."""
    if not is_another(spec.user):
        return
    whose = f"the daemon's directories are closed to user {spec.user!r}"
    if spec.progress in (Progress.BEAT, Progress.NOTIFY):
        section.refuse("progress", f'cannot be "{spec.progress}", because {whose}; auto, log, files and figures work')
    run_dir = dict(spec.template.values)["run_dir"] if spec.template is not None else ""
    used = {
        "command": "run_dir" in uses(spec.argv),
        "env": "run_dir" in uses(dict(spec.env).values()),
        "directory": bool(run_dir) and Path(spec.directory or "/").is_relative_to(run_dir),  # it is filled in already
    }
    for key in (key for key, is_used in used.items() if is_used):
        section.refuse(key, f"cannot use {{run_dir}}, because {whose}; name a directory of its own")
