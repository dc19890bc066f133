"""Calendar work through APScheduler: log rotation. Never on the path of healing.

APScheduler compares wall clocks: after a step of -1 h it stays silent for that hour (measured), so nothing that a
training's life depends on may run here. Deadlines of healing are `wake_at` of the deciding loop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from supervisor.adapters.logs import rotate
from supervisor.core.settings import Settings

log = structlog.get_logger()


class Housekeeping:
    """A background scheduler with its few jobs."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        """`settings` gives those in force: a reread is followed without a restart."""
        self._settings = settings
        self._scheduler = BackgroundScheduler(timezone="UTC")

    def start(self) -> None:
        # Explicit: the default grace of one second silently drops a job that a busy box ran late.
        self._scheduler.add_job(
            self.rotate_logs,
            "interval",
            seconds=60,
            id="rotate-logs",
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def rotate_logs(self) -> None:
        """Keep every worker's logs within their bound."""
        settings = self._settings()
        for spec in settings.programs:
            for channel in ("stdout", "stderr"):
                path = Path(settings.paths.log(spec.name, channel))
                try:
                    if rotate(path, settings.daemon.log_max_bytes, settings.daemon.log_backups):
                        log.info("log_rotated", path=str(path))
                except OSError as error:
                    log.warning("log_rotation_failed", path=str(path), error=str(error))
