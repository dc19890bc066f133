"""Runs scheduled work through APScheduler: log rotation, journal growth, backups, offsite copies. No healing depends on it.

APScheduler compares wall clocks: after a step of -1 h it runs no job for that hour (measured). So nothing that a training
needs to survive may run here. Healing uses the `wake_at` deadlines of the deciding loop.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import structlog
from apscheduler.executors.pool import BasePoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from supervisor import wall_clock
from supervisor.adapters import threads
from supervisor.adapters.host.clock import LocalZone
from supervisor.adapters.journal import archive as journal_archive
from supervisor.adapters.journal import spare
from supervisor.adapters.logs import LogGuard
from supervisor.model.inputs import SnapshotDue
from supervisor.model.settings import Settings
from supervisor.policy.upkeep.calendars import last_due
from supervisor.ports import CalendarWork, Clock, Inbox

log = structlog.get_logger()

_LOGS: Final = dt.timedelta(seconds=60)
_JOURNAL: Final = dt.timedelta(hours=1)
_FIRST_LOOK: Final = dt.timedelta(seconds=60)  # to the first journal check: a daemon's first minute has more urgent work
_CALENDAR: Final = dt.timedelta(seconds=20)
_JOBS: Final = 3  # a thread for each, so that none waits for another
_DAY_S: Final = 86_400.0


class _Every(BaseTrigger):  # type: ignore[misc]  # APScheduler is untyped
    """The next time is one period from now, however many times were missed.

    APScheduler's own triggers step through every missed time while they hold the scheduler's lock. A box that boots in 1970
    and learns a minute later that it is 2026 has missed 29 million times: that costs minutes, and gigabytes of memory.
    """

    def __init__(self, period: dt.timedelta, first: dt.timedelta | None = None) -> None:
        self._period, self._first = period, period if first is None else first

    def get_next_fire_time(self, previous: dt.datetime | None, now: dt.datetime) -> dt.datetime:
        return now + (self._first if previous is None else self._period)


class _Pool(BasePoolExecutor):  # type: ignore[misc]
    def __init__(self) -> None:
        # Threads begun before their first job: one that ends for lack of memory before it has reported keeps its starter for
        # ever, and with it a lock that all pools of the process share.
        super().__init__(threads.begun(_JOBS, "jobs"))


class Housekeeping:
    def __init__(
        self, settings: Callable[[], Settings], inbox: Inbox, clock: Clock,
        calendars: Callable[[], Iterable[CalendarWork]] = tuple,
    ) -> None:  # fmt: skip
        """`settings` returns the settings in force, so a reread needs no restart; `calendars` the work by the calendar."""
        self._settings, self._inbox, self._clock, self._calendars = settings, inbox, clock, calendars
        self.journal_defect = ""  # found when the journal was last copied
        self._over = threading.Event()
        self._posted_s: dict[str, float] = {}  # by name of the work
        self._logs = LogGuard(settings)
        self._scheduler = BackgroundScheduler(executors={"default": _Pool()}, timezone="UTC")

    def start(self) -> None:
        # Explicit: the default grace of one second silently drops a job that a busy box ran late.
        late: dict[str, Any] = {"misfire_grace_time": None}
        self._scheduler.add_job(self.rotate_logs, _Every(_LOGS), id="rotate-logs", **late)
        self._scheduler.add_job(self.care_for_journal, _Every(_JOURNAL, _FIRST_LOOK), id="journal", **late)
        self._scheduler.add_job(self.check_calendar, _Every(_CALENDAR), id="calendar", **late)
        self._scheduler.start()
        self._logs.start()

    def stop(self) -> None:
        self._over.set()
        self._logs.stop()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def clock_moved(self) -> None:
        """The wall clock was set: count every job's next time from now. Else no job runs for the hour that was set back."""
        if self._scheduler.running:
            now = dt.datetime.now(dt.UTC)
            for job in self._scheduler.get_jobs():
                job.modify(next_run_time=job.trigger.get_next_fire_time(now, now))

    def rotate_logs(self) -> None:
        self._logs.look()

    def check_calendar(self) -> None:
        """Post each calendar time once it has passed; the core knows whether that time was already handled.

        Nothing is posted while the clock is not set: a time in 1970 is no calendar time. If an input cannot be made (the
        daily report reads files that may be damaged), the next check tries again.
        """
        if not wall_clock.is_set(self._clock.wall_s()):
            return
        now = dt.datetime.fromtimestamp(self._clock.wall_s(), LocalZone())
        for work in self._calendars():
            due = last_due(work.calendar, now)
            due_wall_s = None if due is None else due.timestamp()
            if due_wall_s is None or due_wall_s == self._posted_s.get(work.name):
                continue
            try:
                self._inbox.post(work.input(self._clock.now_s(), due_wall_s))
                self._posted_s[work.name] = due_wall_s
            except Exception as error:  # noqa: BLE001
                log.warning("calendar_work_not_posted", work=work.name, error=str(error))

    def care_for_journal(self) -> None:
        """Ask for a snapshot if the next start would have to fold many facts; archive old facts; copy the journal."""
        settings = self._settings()
        path, rules = Path(settings.paths.journal), settings.journal
        try:
            count = journal_archive.since_snapshot(path)
            if count >= journal_archive.SNAPSHOT_FACTS:
                self._inbox.post(SnapshotDue(self._clock.now_s(), count))
            moved = journal_archive.compact(
                path, before_wall_s=self._clock.wall_s() - rules.keep_days * _DAY_S, most_bytes=rules.max_mb * 2**20,
                pause=self._over.wait,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            log.critical("journal_not_compacted", error=str(error))
        else:
            if moved is not None:
                log.info("journal_compacted", facts=moved.facts, archive=str(moved.archive))
        try:
            self.journal_defect = spare.renew(path, self._over.wait)
        except OSError as error:
            log.critical("journal_not_copied", error=str(error))
