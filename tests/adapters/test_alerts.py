"""reboot_alerts.log: one line a reboot that a person, grep and `tail -f` can read, on a real file."""

import datetime as dt
import re
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.adapters.host.reboot_log import append, clock_line, config_line, journal_line, reboot_line, service_line
from supervisor.model.commands import AlertClock, AlertReboot
from supervisor.model.facts import HostRebooted, JournalSalvaged
from supervisor.policy.worker.loss import ABOUT, AT_LEAST, UNKNOWN, Loss

WALL_S = dt.datetime(2026, 11, 21, 5, 1, 44, tzinfo=dt.UTC).timestamp()
REBOOT = HostRebooted(
    why="the host rebooted", old_boot_id="a" * 32, new_boot_id="b" * 32, cause="unclean", evidence="the boot id changed",
    down_s=41.4, up_s=1092.0, level="light", programs=("Breakout", "Pong"), steps={"Breakout": 5000},
)  # fmt: skip
ALERT = AlertReboot(REBOOT, 3, {"Pong": UNKNOWN, "Breakout": Loss(1200)}, ("Breakout", "Pong"))


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    __import__("time").tzset()
    yield
    monkeypatch.undo()
    __import__("time").tzset()


def test_the_line():
    assert reboot_line(ALERT, WALL_S) == (
        "2026-11-21T05:01:44+00:00 REBOOT n=3 cause=unclean kind=? up=0:18:12 down=0:00:41 level=light "
        'programs=Breakout,Pong lost=Breakout:1200,Pong:? resuming=Breakout,Pong evidence="the boot id changed"'
    )


def test_the_boxs_own_last_words_and_a_pattern_are_in_it_and_quotes_end_no_field():
    panic = replace(REBOOT, end="panic", last_words=('Kernel panic - not syncing: "x"', "another line"))
    line = reboot_line(replace(ALERT, reboot=panic, pattern="3 in 40m, all at light"), WALL_S + 0.75)
    assert line.startswith("2026-11-21T05:01:44+00:00 REBOOT n=3 cause=unclean kind=panic up=")
    evidence = "the boot id changed; Kernel panic - not syncing: 'x'"
    assert line.endswith(f' evidence="{evidence}" pattern="3 in 40m, all at light"')
    moved = reboot_line(replace(ALERT, reboot=replace(REBOOT, cause="moved")), WALL_S)
    assert moved.startswith("2026-11-21T05:01:44+00:00 MOVED cause=moved kind=? "), "another box has not rebooted"


def test_a_line_that_is_about_no_reboot():
    when = "2026-11-21T05:01:44+00:00"
    salvaged = JournalSalvaged("the journal was damaged", 'a "bad" page', "journal.sqlite.damaged-1", 70, 2)
    assert journal_line(salvaged, WALL_S) == (
        f"{when} JOURNAL damaged kept=70 lost=2 file=journal.sqlite.damaged-1 error=\"a 'bad' page\""
    )
    nothing = replace(salvaged, kept_as="", lost=None, error="\x1b[2J")
    assert journal_line(nothing, WALL_S) == f'{when} JOURNAL damaged kept=70 lost=? file=none error="\\x1b[2J"'
    assert config_line(('no "level"', "two\nlines"), "the last good one", WALL_S) == (
        f'{when} CONFIG refused in_use="the last good one" error="no \'level\'; two lines"'
    )
    assert service_line(5, 61.0, WALL_S) == (
        f'{when} DAEMON ends again and again starts=5 within=0:01:01 why="journalctl -u extralife"'
    )


def test_a_clock_that_is_not_set_gives_no_time_and_a_later_line_mends_it():
    assert reboot_line(ALERT, 12.0).startswith("? REBOOT n=3 ")
    line = clock_line(AlertClock(3, WALL_S, 41.4), WALL_S + 62.0)
    assert line == "2026-11-21T05:02:46+00:00 REBOOT n=3 clock=set at=2026-11-21T05:01:44+00:00 down=0:00:41"
    assert clock_line(AlertClock(3, WALL_S, None), WALL_S).endswith(" down=?")


def test_what_was_lost_is_told_as_far_as_it_is_known():
    losses = {"A": Loss(1200, 14.2, 0.031, AT_LEAST), "B": Loss(70, 1.0, None, ABOUT), "C": Loss(5), "D": UNKNOWN}
    line = reboot_line(replace(ALERT, losses=losses), WALL_S)
    assert " lost=A:>=1200/14s/3.1%,B:~70/1s,C:5,D:? " in line
    nothing = replace(REBOOT, down_s=None, up_s=None, level="", programs=(), steps={})
    line = reboot_line(AlertReboot(nothing, 1, {}, ()), WALL_S)
    assert " up=? down=? level=? programs=none lost=none resuming=none " in line


@given(st.text(), st.text())
def test_no_name_can_begin_a_line_or_steer_a_terminal(evidence, level):
    line = reboot_line(replace(ALERT, reboot=replace(REBOOT, evidence=evidence, level=level)), WALL_S)
    assert len(line.splitlines()) == 1
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", line)
    assert line.count('"') >= 2
    assert line.encode("utf-8", "strict")


def test_half_a_line_is_an_error_and_the_next_one_begins_anew(tmp_path):
    path = tmp_path / "reboot_alerts.log"
    append(path, "one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        error = append(path, "a longer line")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert error.startswith(f"cannot write the alert to {path}: No space left on device; ")
    assert append(path, "two") is None
    assert Path(path).read_text() == "one\na lo\ntwo\n"
