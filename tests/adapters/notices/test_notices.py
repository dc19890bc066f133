"""Notices that this box ends: what a line, a file and a command announce, which provider there is, what the threads post."""

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

from supervisor.adapters.host.boot import BootFiles
from supervisor.features.notices.adapters import detect
from supervisor.features.notices.adapters.local import Command, File, NoticeWatch, Unreadable, notice
from supervisor.features.notices.messages import EndNotice, EndNoticesRead
from supervisor.features.notices.rules import END, RISK
from supervisor.features.notices.settings import NoticeSettings
from supervisor.model.settings import Paths, Settings
from supervisor.shell.inbox import Inbox


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at_s=1000.0, at_wall_s=WALL_S)


def read(of: Command | File) -> tuple[EndNotice, ...] | str:
    try:
        return of.read()
    except Unreadable as error:
        return str(error)


# --- a line --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("30", (END, "an end", 1030.0)), ("  120.5   evicted ", (END, "evicted", 1120.5)), ("", (END, "an end", None)),
        ("maintenance at noon", (END, "maintenance at noon", None)), ("30s evicted", (END, "30s evicted", None)),
        ("0", (END, "an end", 1000.0)), ("-5", (END, "-5", None)), ("٣٠ x", (END, "٣٠ x", None)),
        (" risk  the price rises", (RISK, "the price rises", None)), ("Risk", (RISK, "an end may come", None)),
        ("RISK 30  soon ", (RISK, "soon", None)), ("risk " + "y" * 201, (RISK, "y" * 200, None)),
        (f"{int(WALL_S) + 60} gone", (END, "gone", 1060.0)), ("2027-01-15T08:01:00Z", (END, "an end", 1060.0)),
        ("2027-01-15T09:01:00+01:00 x", (END, "x", 1060.0)), ("a\x1b[31mb", (END, "a\\x1b[31mb", None)),
        ("99999999 s", "99999999 s are more than 30 days"), ("2592000.1", "2592000.1 s are more than 30 days"),
        ("risk 2592001", "2592001 s are more than 30 days"),
        ("2027-01-15T08:01:00.123456", "'2027-01-15T08:01:00.123456' has no zone: append Z, or an offset such as +01:00"),
        ("2027-15-15T08:01:00Z", "'2027-15-15T08:01:00Z' is no time such as 2026-11-23T08:22:00Z"),
        ("2027-01-15T" + "9" * 60, f"{'2027-01-15T' + '9' * 60!r:.40} is no time such as 2026-11-23T08:22:00Z"),
    ],
)  # fmt: skip
def test_what_a_line_announces(clock, line, found):
    try:
        told: object = notice(line, "file", clock)
    except Unreadable as error:
        told = str(error)
    assert told == (found if isinstance(found, str) else EndNotice(f"file {found[0]}", "file", *found))


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


def test_a_command_that_is_not_there_cannot_tell(clock):
    with pytest.raises(Unreadable, match=r"^/nowhere/x cannot be started \(No such file or directory\)$"):
        Command("/nowhere/x", 5.0, clock).read()


# --- which provider --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, ""), ({"sys_vendor": b"Amazon EC2\n"}, "aws"), ({"sys_vendor": b"amazon ec2"}, ""), ({"sys_vendor": b"QEMU"}, ""),
        ({"sys_vendor": b"Google\xff"}, ""), ({"product_name": b"Google Compute Engine"}, ""),
        ({"sys_vendor": b"Google\n", "product_name": b" Google Compute Engine \n"}, "google"),
        ({"sys_vendor": b"Microsoft Corporation"}, ""),
        ({"sys_vendor": b"Google", "chassis_asset_tag": b"7783-7084-3265-9085-8269-3286-77\n"}, "azure"),
    ],
)  # fmt: skip
def test_the_provider_is_known_by_the_firmware(tmp_path, files, found):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    files = BootFiles.of({"EXTRALIFE_BOOT_FILES": str(tmp_path)})
    assert detect.provider(files) == found
    program = Path(__file__).parents[3] / "deploy" / "notices" / found
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


# --- the threads -----------------------------------------------------------------------------------------------------------


class Watched:
    def __init__(self, clock: FakeClock, rules: NoticeSettings) -> None:
        self.inbox, self.settings = Inbox(), Settings(Paths("/s", "/r"), notice=rules)
        self.watch = NoticeWatch(lambda: self.settings, self.inbox, clock)

    def takes(self) -> EndNoticesRead:
        item = self.inbox.take(30.0)
        assert isinstance(item, EndNoticesRead), "nothing was posted"
        return item

    def ids(self) -> tuple[list[str], dict[str, str]]:
        item = self.takes()
        return [each.id for each in item.found], item.errors


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
    assert found.ids() == ([], {})
    says(line, "120 evicted\n")
    assert found.ids() == (["command end"], {})
    says(line, "119 evicted\n")  # some seconds more or less are the same time
    says(path, "30")
    assert found.ids() == (["command end", "file end"], {})
    says(line, "fails\n")
    assert found.ids() == (["file end"], {"command": "it ended with status 4"})
    found.settings = Settings(Paths("/s", "/r"), notice=NoticeSettings(every_s=0.05))
    assert eventually(lambda: found.ids()[0] == []), "another configuration is followed, by one source after the other"


def test_a_source_that_hangs_keeps_no_other_from_being_heard(watched, tmp_path):
    path = tmp_path / "end"
    found = watched(NoticeSettings(script(tmp_path, "sleep 60"), str(path), every_s=0.05, timeout_s=0.2))
    assert list(found.ids()[1]) == ["command"]
    path.touch()
    assert found.ids()[0] == ["file end"]
