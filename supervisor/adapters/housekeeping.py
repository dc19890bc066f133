"""Runs scheduled work through APScheduler: log rotation, journal growth, backups, offsite copies. No healing depends on it.

APScheduler compares wall clocks: after a step of -1 h it runs no job for that hour (measured). So nothing that a training
needs to survive may run here. Healing uses the `wake_at` deadlines of the deciding loop.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog
from apscheduler.executors.pool import BasePoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from supervisor.adapters import threads
from supervisor.adapters.journal import archive as journal_archive
from supervisor.adapters.journal import spare
from supervisor.adapters.process.logs import LogGuard
from supervisor.model.inputs import BackupDue, OffsiteDue, ReportDue, SnapshotDue
from supervisor.model.settings import Settings
from supervisor.policy.box import wall_clock
from supervisor.policy.upkeep.backups import last_due
from supervisor.ports import Clock, Inbox

log = structlog.get_logger()

_LOGS: Final = dt.timedelta(seconds=60)
_JOURNAL: Final = dt.timedelta(hours=1)
_FIRST_LOOK: Final = dt.timedelta(seconds=60)  # to the first journal check: a daemon's first minute has more urgent work
_CALENDAR: Final = dt.timedelta(seconds=20)
_JOBS: Final = 3
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


class _Scheduler(BackgroundScheduler):  # type: ignore[misc]  # APScheduler is untyped
    """One whose thread goes on after any error."""

    def _main_loop(self) -> None:
        threads.repeat("calendar", super()._main_loop, lambda: not self.running)


class _Pool(BasePoolExecutor):  # type: ignore[misc]  # APScheduler is untyped
    """One thread per job, so that no job waits for another."""

    def __init__(self) -> None:
        super().__init__(threads.begun(_JOBS, "housekeeping"))


class Housekeeping:
    """A background scheduler with its few jobs."""

    def __init__(
        self, settings: Callable[[], Settings], inbox: Inbox, clock: Clock, report: Callable[[], str] = lambda: ""
    ) -> None:
        """`settings` returns the settings in force, so a reread needs no restart. `report` makes the daily report."""
        self._settings, self._inbox, self._clock, self._report = settings, inbox, clock, report
        self.journal_defect = ""  # found when the journal was last copied
        self._report_posted_s: float | None = None
        self._over = threading.Event()
        self._backup_posted_s: float | None = None
        self._offsite_posted_s: dict[str, float] = {}
        self._logs = LogGuard(settings)
        self._scheduler = _Scheduler(executors={"default": _Pool()}, timezone="UTC")

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
        """Keep every worker's logs within their size limit."""
        self._logs.look()

    def check_calendar(self) -> None:
        """Post each calendar time once it has passed; the core knows whether that time was already handled.

        Nothing is posted while the clock is not set: a time in 1970 is no calendar time.
        """
        if not wall_clock.is_set(self._clock.wall_s()):
            return
        now = dt.datetime.fromtimestamp(self._clock.wall_s(), dt.UTC).astimezone()
        due = last_due(self._settings().backup.calendar, now)
        if due is not None and due.timestamp() != self._backup_posted_s:
            self._backup_posted_s = due.timestamp()
            self._inbox.post(BackupDue(self._clock.now_s(), self._backup_posted_s))
        rules = self._settings().offsite
        for operation, calendar in (("forget", rules.forget), ("check", rules.check)) if rules.on else ():
            due = last_due(calendar, now)
            if due is not None and due.timestamp() != self._offsite_posted_s.get(operation):
                self._offsite_posted_s[operation] = due.timestamp()
                self._inbox.post(OffsiteDue(self._clock.now_s(), operation, due.timestamp()))
        report_at = self._settings().alerts.report_at
        report_due = last_due(f"daily {report_at}", now) if report_at else None
        if report_due is not None and report_due.timestamp() != self._report_posted_s:
            self._post_report(report_due.timestamp())

    def _post_report(self, due_wall_s: float) -> None:
        """Make and post the daily report. If that fails, the next check tries again."""
        try:
            text = self._report()
        except Exception as error:  # noqa: BLE001  the report reads files that may be damaged
            log.warning("no_report", error=str(error))
            return
        self._report_posted_s = due_wall_s
        self._inbox.post(ReportDue(self._clock.now_s(), due_wall_s, text))

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
            _log_move(moved)
        try:
            self.journal_defect = spare.renew(path)
        except OSError as error:
            log.critical("journal_not_copied", error=str(error))


def _log_move(moved: journal_archive.Compaction | None) -> None:
    if moved is not None:
        log.info("journal_compacted", facts=moved.facts, archive=str(moved.archive))
        if moved.differs:
            log.warning("snapshot_differs_from_facts", fields=list(moved.differs))
