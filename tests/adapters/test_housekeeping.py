"""Calendar work: what is due is done, and never more than that."""

import datetime as dt
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import preload
import pytest
from fakes import FakeClock, FakeSources
from structlog.testing import capture_logs

from supervisor.adapters.host.clock import SystemClock
from supervisor.adapters.housekeeping import Housekeeping
from supervisor.adapters.parts import World
from supervisor.adapters.parts import parts as parts_of
from supervisor.model.settings import DaemonSettings, Paths, ProgramSpec, Settings
from supervisor.shell.inbox import Inbox


def keeper(settings):
    return Housekeeping(settings, Inbox(), SystemClock(0.0))


@pytest.fixture
def settings(tmp_path):
    programs = tuple(ProgramSpec(name, ("x",), "d") for name in ("Pong", "Qbert"))
    paths = Paths(str(tmp_path), str(tmp_path / "run"))
    for program in programs:
        Path(paths.run_dir(program.name)).mkdir(parents=True)
    return Settings(paths, programs=programs, daemon=DaemonSettings(log_max_bytes=100, log_backups=2))


SCHEDULED = """
import datetime as dt, sys, threading
sys.path.insert(0, "tests")
from pathlib import Path
import preload
from supervisor.adapters import housekeeping

directory, step_s, ran = Path(sys.argv[1]), int(sys.argv[2]), threading.Event()
keeper = housekeeping.Housekeeping(lambda: None, None, None)
keeper._scheduler.start()
if not step_s:
    preload.no_forks(directory, refused=True)
keeper._scheduler.add_job(ran.set, housekeeping._Every(dt.timedelta(seconds=0.2)), id="job")
print(ran.wait(20.0), flush=True)
if step_s:
    preload.set_clock(directory, step_s)
    keeper.clock_moved()
ran.clear()
ran.wait(1.0)  # one that was under way
ran.clear()
print(ran.wait(20.0), flush=True)
if not step_s:
    preload.no_forks(directory, refused=False)
keeper._scheduler.shutdown(wait=False)
"""


@pytest.mark.parametrize("step_s", [-3600, 3600, 0])
def test_jobs_go_on_when_the_wall_clock_was_set_and_while_no_thread_can_be_begun(tmp_path, step_s):
    """Real APScheduler, real steps of the clock that it reads. Left alone it is silent for the hour that was put back."""
    done = subprocess.run(
        [sys.executable, "-c", SCHEDULED, tmp_path, str(step_s)],
        env={**os.environ, **preload.environment(tmp_path), "PYTHONPATH": "."}, capture_output=True, text=True, check=True,
        timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"]
    assert "Traceback" not in done.stderr


@pytest.fixture
def keep():
    """Makes the housekeeping of a daemon with all of its features."""
    parts = []

    def make(settings, inbox, clock):
        world = World(settings().paths, settings, inbox, clock, "1", str, FakeSources, lambda *_: None)
        parts.extend(parts_of(world))
        return Housekeeping(settings, inbox, clock, lambda: (work for part in parts for work in part.calendar()))

    yield make
    for part in parts:
        part.stop()


def due(keeper, inbox):
    """What one look at the calendar posts."""
    keeper.check_calendar()
    return [*iter(lambda: inbox.take(0), None)]


def test_the_daily_report_is_made_once_for_its_time_and_tried_again_if_it_cannot_be(settings, keep, monkeypatch):
    from supervisor.features.alerts import part as alerts
    from supervisor.features.alerts.messages import ReportDue
    from supervisor.features.alerts.settings import AlertSettings
    from supervisor.features.backups.settings import BackupSettings

    inbox, clock = Inbox(), FakeClock(9.0, 1_800_000_000.0)
    reports = Mock(side_effect=[OSError("no journal"), "all trained", "all trained again"])
    settings = replace(settings, backup=BackupSettings(calendar="off"), alerts=AlertSettings(report_at="08:00"))
    monkeypatch.setattr(alerts, "daily_report", reports)
    keeper = keep(lambda: settings, inbox, clock)
    with capture_logs() as said:
        assert due(keeper, inbox) == []
    assert said == [{"event": "calendar_work_not_posted", "work": "report", "error": "no journal", "log_level": "warning"}]
    (told,) = due(keeper, inbox)
    assert told == ReportDue(9.0, told.due_wall_s, "all trained")
    assert due(keeper, inbox) == []
    assert dt.datetime.fromtimestamp(told.due_wall_s, dt.UTC).astimezone().strftime("%H:%M") == "08:00"
    clock.step_wall(86_400)
    assert due(keeper, inbox) == [ReportDue(9.0, told.due_wall_s + 86_400, "all trained again")]
    clock.step_wall(86_400)
    settings = replace(settings, alerts=AlertSettings(report_at=""))
    assert due(keeper, inbox) == []
