"""Keys of a command: its process, its logs, its own checkpoints, the health of a service.

Each key about the process means the same as Supervisor's key of the same purpose (docs/supervisor-compatibility.md). So a
supervisord.conf can be converted without a wrapper around its commands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from supervisor.as_user import acting_as, log_user
from supervisor.config import elsewhere
from supervisor.config.scripts import words
from supervisor.config.tables import Parsers, given, refuse_unknown, settings_of
from supervisor.config.validation import DEFAULT, Origin, Section, shown
from supervisor.model.settings import LOG_AUTO, LOG_NONE, ProgramSpec, Progress
from supervisor.policy.script.placeholders import uses
from supervisor.policy.script.service_health import HealthCheck
from supervisor.policy.worker.step_in_name import parsed
from supervisor.trust import why_movable
from supervisor.users import UnknownUser, is_another, refusal

_LEAST_BYTES: Final = 4096  # as in [daemon]: a smaller log would be copied every few lines
_START_S: Final = 1.0  # Supervisor's startsecs
# A change of these needs a new process, so the digest of a program that sets them covers them.
AT_START: Final = ("user", "umask", "stdin", "redirect_stderr", "stdout_log", "stderr_log")


def check_process(section: Section, values: dict[str, Any]) -> None:
    """Refuse keys that have no effect, and set the one that follows from another."""
    if values["redirect_stderr"] and "stderr_log" in section:
        section.refuse("stderr_log", "has no effect with redirect_stderr = true; remove one of the two")
    if values["start_retries"] is not None and values["start_s"] is None:
        values["start_s"] = _START_S


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
    below = () if spec.directory else ("checkpoint_glob", "progress_glob", "json_lines", "csv_glob", "events_glob")
    for key in (key for key in below if (pattern := section.body.get(key)) and not pattern.startswith("/")):
        section.refuse(key, f"needs `directory`, because {whose}; name a directory of its own")
    for key in ("stdout_log", "stderr_log"):
        place = getattr(spec, key)
        parent = Path(place).parent
        if place not in (LOG_AUTO, LOG_NONE) and parent.is_dir() and (user := log_user(place, spec.user)):
            with acting_as(user):
                may_write = os.access(parent, os.W_OK | os.X_OK, effective_ids=True)
            if not may_write:
                why = why_movable(parent)
                section.warn(key, f"{why}, so user {user!r} opens this log, but may not write there; name another directory")


# --- its own checkpoints --------------------------------------------------------------------------------------------------

CHECKPOINT_KEYS: Final = ("checkpoint_glob", "checkpoint_step", "checkpoint_check", "checkpoint_check_timeout_s")
_MOST_PARTS: Final = 16
_ALONE: Final = ': has no effect without checkpoint_glob; set it such as "checkpoints/*.pt", or remove this'


def check_checkpoints(section: Section, *, service: bool) -> None:
    """Refuse the keys that have no effect."""
    why = ": a service has no checkpoints; remove it, or the kind" if service else _ALONE
    alone = [key for key in CHECKPOINT_KEYS if key in section and (service or "checkpoint_glob" not in section)]
    for key in alone:
        section.refuse(key, why)
    if not alone and elsewhere.is_store(pattern := str(section.body.get("checkpoint_glob", ""))):
        why = "is the address of a store, and only files of this machine are looked at, so no checkpoint is found"
        section.warn("checkpoint_glob", f"{shown(pattern)} {why}; save to a directory here, name it, and copy from there")
    if not alone and "checkpoint_check_timeout_s" in section and "checkpoint_check" not in section:
        section.refuse("checkpoint_check_timeout_s", "has no effect without checkpoint_check; set that, or remove this")


def _checkpoint_glob(text: str) -> str:
    """A pattern below the program's directory, or one that begins with /."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts:
        raise ValueError('needs a pattern such as "checkpoints/*.pt"')
    if ".." in parts:
        raise ValueError(f'must not hold "..", as {shown(text)} does; begin it with / to name another directory')
    if text.startswith("~"):
        raise ValueError(
            f"is relative to the directory, and ~ is an ordinary name there; write the path in {shown(text)} out"
        )
    if len(parts) > _MOST_PARTS:
        raise ValueError(f"has {len(parts)} directories, at most {_MOST_PARTS} are looked through")
    if parts[-1] == "**" or parts.count("**") > 1 or any("**" in part and part != "**" for part in parts):
        raise ValueError('may hold ** once, as a directory of its own and not at the end, such as "runs/**/*.ckpt"')
    return text


def _step(text: str) -> str:
    parsed(text)
    return text


def _done_codes(value: Any) -> tuple[int, ...]:
    if isinstance(value, list) and value and all(type(code) is int and 0 <= code <= 255 for code in value):
        return tuple(sorted(set(value)))
    raise ValueError


PARSERS: Final[Parsers] = {
    "stdout_log": _log, "stderr_log": _log, "log_max_bytes": _size, "done_codes": _done_codes,
    "checkpoint_glob": _checkpoint_glob, "checkpoint_step": _step,
    "checkpoint_check": lambda value: words(value, '["python", "check.py"]'),
}  # fmt: skip


# --- the health of a service ----------------------------------------------------------------------------------------------

_ASKS: Final = ("http", "tcp", "command")
_HEALTH_EXAMPLE: Final = '{ http = "http://127.0.0.1:6006/" }'


def health_check(program: Section, *, service: bool) -> HealthCheck | None:
    """The configured health check. Mistakes go into the validation's errors."""
    if "health" not in program:
        program.note("health", None, Origin(DEFAULT))
        return None
    before = len(program.validation.errors)
    if not isinstance(program.body["health"], dict):
        program.refuse("health", f"must be a table such as {_HEALTH_EXAMPLE}, not {shown(program.body['health'])}")
        return None
    if not service:
        program.refuse("health", 'is for services; set kind = "service", or remove it')
    section, settings = program.inner("health"), settings_of(HealthCheck)
    refuse_unknown(section, settings, f"there are {', '.join(settings)}")
    if len(section.body.keys() & set(_ASKS)) != 1:
        section.refuse(None, f"must have exactly one of http, tcp and command, such as {_HEALTH_EXAMPLE}")
    values = given(section, settings, {"http": _url, "tcp": _port, "command": lambda value: words(value, '["pg_isready"]')})
    program.note("health", dict(section.body))
    return None if len(program.validation.errors) > before else HealthCheck(**values)


def _url(value: str) -> str:
    try:
        place = urlsplit(value)
        if place.scheme in ("http", "https") and place.hostname and place.port != 0 and value.isascii():
            return value
    except ValueError:
        pass
    raise ValueError


def _port(value: str) -> str:
    host, _, port = value.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 65536:
        return value
    raise ValueError
