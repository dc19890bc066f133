"""Notices that this box ends: a command, a file."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest
from attempts_kit import eventually, gone
from fakes import FakeClock
from notices_kit import WALL_S
from structlog.testing import capture_logs

from supervisor.adapters.host import boot
from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.notices import detect
from supervisor.adapters.notices.local import Command, File, NoticeWatch, Unreadable, notice
from supervisor.model.settings import Paths, Settings
from supervisor.policy.upkeep.notices import END, RISK, EndNotice, NoticeSettings
from supervisor.shell.inbox import Inbox


@pytest.fixture
def clock():
    return FakeClock(at_s=1000.0, at_wall_s=WALL_S)


# --- a line --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "what", "until_s"),
    [
        ("30", END, "an end", 1030.0), ("120.5 evicted", END, "evicted", 1120.5), ("", END, "an end", None),
        ("maintenance at noon", END, "maintenance at noon", None), ("risk the price rises", RISK, "the price rises", None),
        ("risk", RISK, "an end may come", None), ("RISK 30 soon", RISK, "soon", None),
        (f"{int(WALL_S) + 60} gone", END, "gone", 1060.0), ("2027-01-15T08:01:00Z", END, "an end", 1060.0),
        ("2027-01-15T09:01:00+01:00 x", END, "x", 1060.0), ("a\x1b[31mb", END, "a\\x1b[31mb", None),
    ],
)  # fmt: skip
def test_what_a_line_announces(clock, line, kind, what, until_s):
    assert notice(line, "file", clock) == EndNotice(f"file {kind}", "file", kind, what, until_s)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("99999999 s", "99999999 s are more than 30 days"), ("2592000.1", "2592000.1 s are more than 30 days"),
        ("2027-01-15T08:01:00", "'2027-01-15T08:01:00' has no zone: append Z, or an offset such as +01:00"),
        ("2027-15-15T08:01:00Z", "'2027-15-15T08:01:00Z' is no time such as 2026-11-23T08:22:00Z"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_understood(clock, line, told):
    with pytest.raises(Unreadable) as refused:
        notice(line, "file", clock)
    assert str(refused.value) == told


def test_a_large_number_is_a_time_and_thirty_days_are_the_most(clock):
    assert notice("2592000", "file", clock).until_s == 1000.0 + 30 * 86_400
    assert notice("1000000000", "file", clock).until_s == 1000.0 + 1e9 - WALL_S
    assert notice("x" * 201, "file", clock).what == "x" * 200


def test_a_time_of_day_says_nothing_before_the_clock_is_set(clock):
    clock.at_wall_s = 5.0
    assert notice("2027-01-15T08:01:00Z", "file", clock).until_s is None
    assert notice("30", "file", clock).until_s == 1030.0


def test_a_file_counts_from_its_last_change(tmp_path, clock):
    path = tmp_path / "end"
    asked = File(str(path), clock)
    assert asked.read() == ()
    path.touch()
    assert asked.read()[0].until_s is None
    path.write_text("60 evicted\nmore\n")
    os.utime(path, (WALL_S - 10.0, WALL_S - 10.0))
    assert asked.read() == (EndNotice("file end", "file", END, "evicted", 1050.0),)
    os.utime(path, (WALL_S + 9e6, WALL_S + 9e6))
    assert asked.read()[0].until_s == 1060.0, "a change in the future counts from now"
    path.unlink()
    path.mkdir()
    with pytest.raises(Unreadable) as told:
        asked.read()
    assert re.fullmatch(rf"{re.escape(str(path))} cannot be read \(.+\)", str(told.value))


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "is it the end"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"'{path}' now"


def test_a_command_that_is_not_there_cannot_tell(clock):
    with pytest.raises(Unreadable, match=r"^/nowhere/x cannot be started \(No such file or directory\)$"):
        Command("/nowhere/x", 5.0, clock).read()


def test_what_a_command_leaves_running_is_ended_and_not_waited_for(tmp_path, clock):
    mark = tmp_path / "pid"
    asked = Command(script(tmp_path, f"sleep 300 & echo $! > '{mark}'; echo 30; yes | head -c 100000"), 20.0, clock)
    assert asked.read()[0].until_s == 1030.0
    assert eventually(lambda: gone(int(mark.read_text())))


# --- which provider --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, ""), ({"sys_vendor": "Amazon EC2\n"}, "aws"), ({"sys_vendor": "Google"}, ""),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "google"),
        ({"sys_vendor": "Microsoft Corporation"}, ""),
        ({"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({"sys_vendor": "QEMU"}, ""),
    ],
)  # fmt: skip
def test_the_provider_is_known_by_the_firmware(tmp_path, files, found):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    files = BootFiles.of({"EXTRALIFE_BOOT_FILES": str(tmp_path)})
    assert detect.provider(files) == found
    program = Path(__file__).parents[2] / "deploy" / "notices" / found
    assert detect.command(files) == (str(program) if found else "")
    assert os.access(program, os.X_OK)


def test_the_program_is_named_by_a_path_that_stays_after_an_upgrade(tmp_path, monkeypatch):
    root = tmp_path / "releases" / "1"
    (root / "deploy" / "notices").mkdir(parents=True)
    (root / "deploy" / "notices" / "aws").touch()
    (tmp_path / "sys_vendor").write_text("Amazon EC2")
    monkeypatch.setattr(detect, "_ROOT", root)
    assert detect.command(BootFiles(folder=tmp_path)) == f"{root}/deploy/notices/aws"
    (tmp_path / "current").symlink_to(root)
    assert detect.command(BootFiles(folder=tmp_path)) == f"{tmp_path}/current/deploy/notices/aws"


def test_daemons_of_tests_take_this_machine_for_no_provider_s():
    files = BootFiles.of(os.environ)
    assert files.folder is not None
    assert {each.name for each in files.folder.iterdir()} == {"boot_id", "pid1_stat"}
    assert boot.read_boot(files) == boot.read_boot(BootFiles())


# --- the threads -----------------------------------------------------------------------------------------------------------


class Watched:
    def __init__(self, clock, rules) -> None:
        self.inbox, self.settings = Inbox(), Settings(Paths("/s", "/r"), notice=rules)
        self.watch = NoticeWatch(lambda: self.settings, self.inbox, clock)
        self.watch.start()

    def takes(self):
        item = self.inbox.take(30.0)
        assert item is not None, "nothing was posted"
        return [each.id for each in item.found], item.errors


@pytest.fixture
def watched(clock):
    made = []

    def make(rules):
        made.append(Watched(clock, rules))
        return made[-1]

    yield make
    for each in made:
        each.watch.stop()


def says(path, text):
    """Whole: an empty file announces an end too, without a time."""
    aside = path.with_name("aside")
    aside.write_text(text)
    aside.rename(path)


def test_what_both_sources_say_is_posted_when_it_changes(watched, tmp_path):
    line, path = tmp_path / "line", tmp_path / "end"
    line.write_text("")
    command = script(tmp_path, f"read line < '{line}'; [ \"$line\" != fails ] || exit 4; echo $line")
    found = watched(NoticeSettings(command, str(path), every_s=0.05, timeout_s=60.0))
    assert found.takes() == ([], {})
    says(line, "120 evicted\n")
    assert found.takes() == (["command end"], {})
    says(line, "119 evicted\n")  # some seconds more or less are the same time
    says(path, "30")
    assert found.takes() == (["command end", "file end"], {})
    says(line, "fails\n")
    assert found.takes() == (["file end"], {"command": "it ended with status 4"})
    found.settings = Settings(Paths("/s", "/r"), notice=NoticeSettings(every_s=0.05))
    assert found.takes()[0] == [], "another configuration is followed"


def test_a_source_that_hangs_keeps_no_other_from_being_heard(watched, tmp_path):
    path = tmp_path / "end"
    found = watched(NoticeSettings(script(tmp_path, "sleep 60"), str(path), every_s=0.05, timeout_s=0.2))
    assert list(found.takes()[1]) == ["command"]
    path.touch()
    assert found.takes()[0] == ["file end"]


def test_a_bug_in_a_source_is_an_error_and_ends_no_thread(watched, monkeypatch, tmp_path):
    broken = threading.Event()
    broken.set()
    real = File.read
    monkeypatch.setattr(File, "read", lambda self: 1 / 0 if broken.is_set() else real(self))
    told = "it stopped at a bug (ZeroDivisionError); see the daemon's log"
    with capture_logs() as logged:
        found = watched(NoticeSettings(file=str(tmp_path / "end"), every_s=0.05))
        assert found.takes()[1] == {"file": told}
        assert eventually(lambda: len([each for each in logged if "error" in each]) == 1), "once, not at each look"
    assert {"event": "notices_not_read", "source": "file", "exc_info": True, "log_level": "error"} in logged
    assert {"event": "notices_not_read", "source": "file", "error": told, "log_level": "warning"} in logged
    broken.clear()
    assert found.takes() == ([], {})
