"""structlog, configured once: JSON lines into the main log, and for people (or the journal) on standard output.

The loop logs each committed fact once, so log and journal never disagree. Under systemd standard output is the journal,
which stamps and stores the lines; on a terminal they are coloured; with `--detach` there is only the file.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from supervisor.core.settings import DaemonSettings
from supervisor.harmless import harmless


def configure(main_log: str, settings: DaemonSettings, *, to_stdout: bool) -> None:
    """Set up both ends; called once, before anything logs."""
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
    root.handlers = [_file(main_log, settings, shared)]
    if to_stdout:
        root.addHandler(_stdout(shared))
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _file(path: str, settings: DaemonSettings, shared: list[Any]) -> logging.Handler:
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=settings.log_max_bytes, backupCount=settings.log_backups, encoding="utf-8"
    )
    handler.setFormatter(_formatter(structlog.processors.JSONRenderer(), shared))
    return handler


def _stdout(shared: list[Any]) -> logging.Handler:
    handler = logging.StreamHandler(sys.stdout)
    if "JOURNAL_STREAM" in os.environ:  # under systemd
        handler.setFormatter(_formatter(structlog.processors.JSONRenderer(), shared))
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), pad_event_to=20)
        handler.setFormatter(_formatter(renderer, shared, _printable))
    return handler


def _formatter(renderer: Any, shared: list[Any], *before: Any) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *before, renderer],
        foreign_pre_chain=shared,
    )


def _printable(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For people's terminals; a traceback keeps its lines. JSON is ASCII and needs nothing."""
    return {
        harmless(key): harmless(value, lines=key == "exception") if isinstance(value, str) else value
        for key, value in event.items()
    }
