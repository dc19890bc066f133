"""Calendar work through APScheduler: log rotation. Never on the path of healing.

APScheduler compares wall clocks: after a step of -1 h it stays silent for that hour (measured), so nothing that a
training's life depends on may run here. Deadlines of healing are `wake_at` of the deciding loop.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from supervisor.adapters.logs import LogGuard
from supervisor.core.settings import Settings

_PERIOD: Final = dt.timedelta(seconds=60)


class _Every(BaseTrigger):  # type: ignore[misc]  # APScheduler is untyped
    """The next time is one period from now, whatever was missed.

    APScheduler's own triggers count through every time that was missed, while they hold the scheduler's lock: a box that
    boots in 1970 and hears of the year 2026 a minute later has 29 million of them, some minutes and gigabytes.
    """

    def __init__(self, period: dt.timedelta) -> None:
        self._period = period

    def get_next_fire_time(self, _previous: dt.datetime | None, now: dt.datetime) -> dt.datetime:
        return now + self._period


class Housekeeping:
    """A background scheduler with its few jobs."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        """`settings` gives those in force: a reread is followed without a restart."""
        self._logs = LogGuard(settings)
        self._scheduler = BackgroundScheduler(timezone="UTC")

    def start(self) -> None:
        # Explicit: the default grace of one second silently drops a job that a busy box ran late.
        self._scheduler.add_job(
            self.rotate_logs,
            _Every(_PERIOD),
            id="rotate-logs",
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )
        self._scheduler.start()
        self._logs.start()

    def stop(self) -> None:
        self._logs.stop()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def rotate_logs(self) -> None:
        """Keep every worker's logs within their bound."""
        self._logs.look()
