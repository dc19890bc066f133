"""Every answer of a command and a file to the word: what is asked, what is made of it, what is kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attempts_kit import eventually
from fakes import FakeClock
from leaks import open_files
from notices_kit import WALL_S
from structlog.testing import capture_logs

from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.notices import detect
from supervisor.adapters.notices.local import Command, File, NoticeWatch, Unreadable, notice
from supervisor.model.inputs import EndNoticesRead
from supervisor.model.settings import Paths, Settings
from supervisor.policy.upkeep.notices import END, RISK, EndNotice, NoticeSettings
from supervisor.shell.inbox import Inbox

Asked = list[tuple[str, str, dict[str, str]]]
AT = "2027-01-15T08:01:00Z"  # a minute after WALL_S
ACTION, REBALANCE = "/latest/meta-data/spot/instance-action", "/latest/meta-data/events/recommendations/rebalance"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at_s=1000.0, at_wall_s=WALL_S)


def read(of: Command | File) -> tuple[EndNotice, ...] | str:
    try:
        return of.read()
    except Unreadable as error:
        return str(error)


# --- a line, a file, a command -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("  30   evicted ", (END, "evicted", 1030.0)), (" risk   30  soon ", (RISK, "soon", None)),
        ("30s evicted", (END, "30s evicted", None)), ("Risk", (RISK, "an end may come", None)),
        ("0", (END, "an end", 1000.0)), ("0.5 x", (END, "x", 1000.5)), ("-5", (END, "-5", None)),
        ("risk 2592001", "2592001 s are more than 30 days"), ("٣٠ x", (END, "٣٠ x", None)),
        ("2027-01-15T" + "9" * 60, f"{'2027-01-15T' + '9' * 60!r:.40} is no time such as 2026-11-23T08:22:00Z"),
        ("2027-01-15T08:01:00.123456", "'2027-01-15T08:01:00.123456' has no zone: append Z, or an offset such as +01:00"),
        ("risk " + "y" * 201, (RISK, "y" * 200, None)),
    ],
)  # fmt: skip
def test_each_part_of_a_line(clock, line, found):
    try:
        told: object = notice(line, "command", clock)
    except Unreadable as error:
        told = str(error)
    assert told == (found if isinstance(found, str) else EndNotice(f"command {found[0]}", "command", *found))


def test_a_file_is_closed_and_only_its_first_line_and_four_kilobytes_count(tmp_path, clock):
    path = tmp_path / "end"
    asked = File(str(path), clock)
    before = open_files()
    path.write_bytes(b"caf\xe9\nmore")
    assert asked.read() == (EndNotice("file end", "file", END, "caf\N{REPLACEMENT CHARACTER}"),)
    path.write_bytes(b" " * 4095 + b"ab")
    assert asked.read() == (EndNotice("file end", "file", END, "a"),)
    path.unlink()
    path.mkdir()
    assert read(asked) == f"{path} cannot be read (a directory, not a regular file)"
    path.rmdir()
    path.symlink_to("/etc/hostname")
    assert read(asked) == f"{path} cannot be read ({os.strerror(40)})"
    assert open_files() <= before


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "end?"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"'{path}' 'a b'"


def test_a_command_runs_by_itself_and_its_words_are_those_of_a_shell(tmp_path, clock, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("MINE", "kept")
    out = tmp_path / "out"
    body = f"""exec 3> '{out}'
{{ pwd; readlink /proc/$$/fd/0; readlink /proc/$$/fd/2; cut -d ' ' -f 5 /proc/$$/stat; echo $$; echo "$#$1"; env; }} >&3
echo late >&2; printf '\\n 3'; printf '0 x \\nmore'"""
    asked = Command(script(tmp_path, body), 60.0, clock)
    before = open_files()
    assert asked.read() == (EndNotice("command end", "command", END, "x", 1030.0),)
    assert open_files() <= before
    directory, stdin, stderr, group, pid, words, *env = out.read_text().splitlines()
    assert (directory, stdin, stderr, words) == ("/", "/dev/null", "/dev/null", "1a b")
    assert group == pid, "it leads a process group, which is ended with it"
    assert "MINE=kept" in env
    assert not any(each.startswith("NOTIFY_SOCKET=") for each in env)
    (mark,) = [each for each in env if each.startswith("EXTRALIFE_CHILD_OF=")] if env else [""]
    assert mark.endswith(f":{os.getsid(0)}"), "the daemon's next start ends it if it is left behind"


def test_the_same_line_of_a_command_is_a_new_moment_only_after_another(tmp_path, clock):
    said = tmp_path / "said"
    asked = Command(script(tmp_path, f"cat '{said}'"), 60.0, clock)
    for text, until_s in (
        ("30\n", 1030.0),
        ("30 x\n", 1031.0),
        ("30\n", 1032.0),
        ("30\n\nmore", 1032.0),
        ("", None),
        ("30", 1035.0),
    ):
        said.write_text(text)
        assert [each.until_s for each in asked.read()] == ([] if until_s is None else [until_s])
        clock.advance(1.0)


@pytest.mark.parametrize(
    ("body", "timeout_s", "found"),
    [
        ("kill -9 $$", 60.0, "it ended with status -9"), ("exec >&-; exit 0", 60.0, ()), ("exec >&-; exit 3", 60.0, "it ended with status 3"),
        ("printf 'caf\\351'", 60.0, (EndNotice("command end", "command", END, "caf\N{REPLACEMENT CHARACTER}"),)),
        ("echo 30; exec sleep 300", 0.25, "it took longer than 250ms"),
        ("head -c 4095 /dev/zero | tr '\\0' '\\n'; echo ab", 60.0, (EndNotice("command end", "command", END, "a"),)),
    ],
)  # fmt: skip
def test_what_is_made_of_a_command(tmp_path, clock, body, timeout_s, found):
    before = open_files()
    assert read(Command(script(tmp_path, body), timeout_s, clock)) == found
    assert open_files() <= before


# --- which provider --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"product_name": b"Google Compute Engine"}, ""), ({"sys_vendor": b"Google\xff"}, ""),
        ({"sys_vendor": b"Google\n", "product_name": b" Google Compute Engine \n"}, "google"),
        ({"sys_vendor": b"Google", "chassis_asset_tag": b"7783-7084-3265-9085-8269-3286-77\n"}, "azure"),
        ({"sys_vendor": b"Amazon EC2"}, "aws"), ({"sys_vendor": b"amazon ec2"}, ""),
    ],
)  # fmt: skip
def test_the_firmware_s_words(tmp_path, files, found):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert detect.provider(BootFiles(folder=tmp_path)) == found


# --- the threads -----------------------------------------------------------------------------------------------------------


class Watched:
    def __init__(self, clock: FakeClock, rules: NoticeSettings) -> None:
        self.inbox, self.settings = Inbox(), Settings(Paths("/s", "/r"), notice=rules)
        self.watch = NoticeWatch(lambda: self.settings, self.inbox, clock)

    def takes(self) -> EndNoticesRead:
        item = self.inbox.take(30.0)
        assert isinstance(item, EndNoticesRead)
        return item


@pytest.fixture
def watched(clock: FakeClock) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []
    assert eventually(nobody_watches), "what an earlier test began would be in the log of this one"

    def make(rules: NoticeSettings) -> Watched:
        made.append(Watched(clock, rules))
        made[-1].watch.start()
        return made[-1]

    yield make
    for each in made:
        each.watch.stop()
    assert eventually(nobody_watches)


def nobody_watches() -> bool:
    return not any(each.name.startswith("notices-") for each in threading.enumerate())


def test_all_that_is_posted_is_in_the_order_of_the_sources(watched, tmp_path):
    path = tmp_path / "end"
    path.write_text("risk it may")
    rules = NoticeSettings(script(tmp_path, "echo 30 of the command"), str(path), every_s=0.05, timeout_s=60.0)
    first = watched(rules).takes()
    threads = {each.name: each.daemon for each in threading.enumerate() if each.name.startswith("notices-")}
    assert threads == {"notices-command": True, "notices-file": True}
    assert first == EndNoticesRead(1000.0, (
        EndNotice("command end", "command", END, "of the command", 1030.0), EndNotice("file risk", "file", RISK, "it may"),
    ), {})  # fmt: skip


def test_an_error_is_printable_and_is_logged_again_when_it_is_another(watched, tmp_path):
    path = tmp_path / "end\x1b"
    path.mkdir()
    with capture_logs() as logged:
        found = watched(NoticeSettings(file=str(path), every_s=0.05))
        first = f"{tmp_path}/end\\x1b cannot be read (a directory, not a regular file)"
        assert found.takes() == EndNoticesRead(1000.0, (), {"file": first})
        aside = tmp_path / "aside"
        aside.symlink_to("/etc/hostname")
        path.rmdir()
        aside.rename(path)
        second = f"{tmp_path}/end\\x1b cannot be read ({os.strerror(40)})"
        while (item := found.takes()).errors != {"file": second}:
            assert item == EndNoticesRead(1000.0, (), {}), "between the two there is no file"
        assert eventually(lambda: any(second in each.values() for each in logged))
    assert [each for each in logged if each.get("error") in (first, second)] == [
        {"event": "notices_not_read", "source": "file", "error": told, "log_level": "warning"} for told in (first, second)
    ]


def test_a_time_that_moves_by_more_than_some_seconds_is_posted(watched, tmp_path):
    path = tmp_path / "end"

    def says(left_s: int) -> None:
        aside = tmp_path / "aside"
        aside.write_text(str(left_s))
        os.utime(aside, (WALL_S, WALL_S))
        aside.rename(path)

    says(30)
    found = watched(NoticeSettings(file=str(path), every_s=0.02))
    assert [each.until_s for each in found.takes().found] == [1030.0]
    says(60)
    assert [each.until_s for each in found.takes().found] == [1060.0]
