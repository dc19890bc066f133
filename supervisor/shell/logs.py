"""Configures structlog once: lines for the main log, and for people (or the journal) on standard output.

The loop logs each committed fact once, so log and journal always agree. The main log has Supervisor's columns, time and
severity first: `2026-11-21 03:06:01,123 INFO Spawned program=Pong why='attempt 1 runs as pid 77'`. With
`daemon.log_format` it is JSON instead. Under systemd, standard output goes to systemd's journal, which adds the time and
stores the lines: they carry their severity and no time. On a terminal they are coloured. With `--detach` there is only the
file.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from supervisor.adapters.host import sd_journal
from supervisor.adapters.main_log import MainLog
from supervisor.model.settings import DaemonSettings
from supervisor.printable import printable


def configure(main_log: str, settings: DaemonSettings, *, to_stdout: bool) -> MainLog:
    """Set up both outputs. Call it once, before the first log line. Returns the file's handler."""
    logging.raiseExceptions = False  # otherwise a closed terminal causes a traceback for each line
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=False),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.setLevel(level)
    file = _file(main_log, settings, shared)
    root.handlers = [file]
    if to_stdout and sys.stdout is not None:
        root.addHandler(_stdout(settings, shared))
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return file


def _file(path: str, settings: DaemonSettings, shared: list[Any]) -> MainLog:
    handler = MainLog(path, max_bytes=settings.log_max_bytes, backups=settings.log_backups)
    plain = _plain(settings, shared)
    handler.setFormatter(plain if settings.log_format == "json" else _TimePrefixFormatter(plain))
    return handler


class _TimePrefixFormatter(logging.Formatter):
    """Puts time and severity before another formatter's lines, as in Supervisor's log."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return f"{self.formatTime(record)} {record.levelname} {self._inner.format(record)}"


def _stdout(settings: DaemonSettings, shared: list[Any]) -> logging.Handler:
    handler = logging.StreamHandler(sys.stdout)
    if sd_journal.is_stream(1, os.environ):
        handler.setFormatter(_SeverityPrefixFormatter(_plain(settings, shared)))
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), pad_event_to=20)
        handler.setFormatter(_formatter(renderer, shared, _printable))
    return handler


class _SeverityPrefixFormatter(_TimePrefixFormatter):
    """Another formatter's lines, each with its severity for systemd's journal."""

    def format(self, record: logging.LogRecord) -> str:
        severity = next((number for level, number in _SEVERITIES if record.levelno >= level), sd_journal.DEBUG)
        return sd_journal.prefixed(self._inner.format(record), severity)


_SEVERITIES = (
    (logging.CRITICAL, sd_journal.CRITICAL), (logging.ERROR, sd_journal.ERROR), (logging.WARNING, sd_journal.WARNING),
    (logging.INFO, sd_journal.INFO),
)  # fmt: skip


def _plain(settings: DaemonSettings, shared: list[Any]) -> logging.Formatter:
    if settings.log_format == "json":
        return _formatter(structlog.processors.JSONRenderer(), shared)
    renderer = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)
    return _formatter(renderer, shared, _without_stamp, _printable)


def _without_stamp(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove time and severity: systemd's journal stores its own for each line."""
    return {key: value for key, value in event.items() if key not in {"timestamp", "level"}}


def _formatter(renderer: Any, shared: list[Any], *before: Any) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *before, renderer],
        foreign_pre_chain=shared,
    )


def _printable(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters for terminals; a traceback keeps its lines. JSON is ASCII and needs no escaping."""
    return {
        printable(key): printable(value, lines=key == "exception") if isinstance(value, str) else value
        for key, value in event.items()
    }
