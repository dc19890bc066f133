"""What the box has left behind: each source as it is, missing, damaged, forbidden or slow."""

import json
import os
import struct
import time

import pytest

from supervisor.adapters.host import last_words
from supervisor.adapters.host.last_words import read
from supervisor.policy.box.reboot_cause import Journal, Line, judge

OLD, NEW = "a" * 32, "b" * 32
SINCE_S = 1_800_000_000.0


def entry(at_s, text, **fields):
    body = {"__REALTIME_TIMESTAMP": str(int(at_s * 1e6)), "MESSAGE": text, "__CURSOR": f"{at_s}-{text!r:.20}", **fields}
    return json.dumps(body)


class Journalctl:
    """Answers as journalctl would, from files: the real one is asked in the lab."""

    def __init__(self, directory, monkeypatch):
        self.directory = directory
        program = directory / "journalctl"
        program.write_text(
            f"""#!/bin/sh
echo "$*" >>{directory}/asked
env >{directory}/environment
readlink /proc/self/fd/0 >{directory}/input
case "$*" in
*grep*) cat {directory}/reason 2>/dev/null ;;
*lines=1*) cat {directory}/now 2>/dev/null ;;
*_TRANSPORT=kernel*) cat {directory}/kernel 2>/dev/null ;;
*{OLD}* | *--since=@1799999100\\ --until=@1800000050.250*) cat {directory}/then 2>/dev/null ;;
esac
"""
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")

    def says(self, name, *lines):
        (self.directory / name).write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def journalctl(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(last_words, "TIMEOUT_S", 60.0)  # a busy machine may take longer for a script than a start waits
    return Journalctl(tmp_path / "bin", monkeypatch)


@pytest.fixture
def look(tmp_path):
    """What is read of a box whose files are below tmp_path/root."""

    def look(old=OLD, **fields):
        given = {"own_stop": False, "since_wall_s": SINCE_S, "root": str(tmp_path / "root")} | fields
        return read(old, NEW, **given)

    return look


@pytest.fixture
def place(tmp_path):
    def place(name, data, mtime_s=SINCE_S):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (mtime_s, mtime_s))
        return path

    return place


# --- the journal -------------------------------------------------------------------------------------------------------------


def test_both_views_of_the_journal_are_one_in_order(journalctl, look):
    stuck = entry(90.0, "INFO: task a:1 blocked for more than 120 seconds.", _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel")
    journalctl.says("kernel", stuck)
    journalctl.says("then", entry(95.0, "one"), entry(100.0, "two"), stuck)
    found = look()
    assert found.journal is Journal.READ
    assert found.lines == (
        Line(10.0, "INFO: task a:1 blocked for more than 120 seconds.", kernel=True), Line(5.0, "one"), Line(0.0, "two"),
    )  # fmt: skip
    assert judge(found).kind == "hung"


@pytest.mark.parametrize(
    ("fields", "kernel"),
    [
        ({"_TRANSPORT": "kernel"}, True),
        ({"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel", "_UID": "0"}, True),
        ({"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel", "_UID": "1000"}, False),
        ({}, False),
    ],
)
def test_who_may_speak_for_the_kernel(journalctl, look, fields, kernel):
    journalctl.says("then", entry(1.0, "x", **fields))
    assert look().lines[0].kernel is kernel


def test_a_boot_that_the_journal_never_heard_of(journalctl, look, monkeypatch, tmp_path):
    assert look().journal is Journal.UNKNOWN, "it tells us nothing of this boot either: it is not for our eyes"
    journalctl.says("now", "anything")
    monkeypatch.setattr(last_words, "Path", lambda path: type(tmp_path)(str(path).replace("/var/log", f"{tmp_path}/log")))
    assert look().journal is Journal.UNKNOWN, "it is in memory alone"
    (tmp_path / "log/journal/1").mkdir(parents=True)
    (tmp_path / "log/journal/1/system.journal").write_text("")
    assert look().journal is Journal.LOST


def test_a_container_that_shares_its_hosts_boot_id_is_asked_by_time(journalctl, look):
    journalctl.says("then", entry(1.0, "x"))
    assert look(old=NEW, boot_wall_s=SINCE_S + 50.25).journal is Journal.READ


def test_one_that_does_not_come_back_is_not_waited_for(journalctl, look, monkeypatch):
    (journalctl.directory / "journalctl").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(last_words, "TIMEOUT_S", 0.3)
    began = time.monotonic()
    assert look().journal is Journal.UNKNOWN
    assert time.monotonic() - began < 55, "not the 60 s that it takes"


def test_the_processor_says_why_it_was_reset(journalctl, look):
    journalctl.says("reason", "x86/amd: Previous system reset reason [0x02000800]: hardware watchdog timer expired")
    assert look().reset_reason == "hardware watchdog timer expired"
    journalctl.says("reason", f"x86/amd: Previous system reset reason [0x1]:  {'a' * 500}")
    assert look().reset_reason == "a" * 400
    journalctl.says("reason", "x86/amd: Previous system reset reason unknown")
    assert look().reset_reason == ""
    journalctl.says("reason", "x86/amd: Previous system reset reason [0x02000800]: hardware watchdog timer expired")
    assert judge(look()).kind == "watchdog"


# --- files ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "run/extralife-last-words/var-lib-systemd-pstore-17-dmesg.txt", "sys/fs/pstore/dmesg-efi-1", "var/lib/systemd/pstore/1/001/dmesg.txt",
    ],
)  # fmt: skip
def test_a_dump_of_this_end_is_read_and_no_older_one(look, place, name):
    place("sys/fs/pstore/dmesg-old", b"Kernel panic - not syncing: long ago", SINCE_S - 500.0)
    place(name, b"<0>[    1.5] Kernel panic - not syncing: Fatal exception\n")
    found = look()
    assert found.dumps == ("<0>[    1.5] Kernel panic - not syncing: Fatal exception\n",)
    assert judge(found).kind == "panic"
    assert look(since_wall_s=None).dumps == (), "nobody knows which end it is of"


def utmp(kind, user, at_s):
    return struct.pack("<hxxi32s4s32s256shhiii16s20x", kind, 0, b"~", b"~~", user, b"", 0, 0, 0, int(at_s), 0, bytes(16))


@pytest.mark.parametrize(
    ("records", "down"),
    [
        ([utmp(2, b"reboot", SINCE_S - 900), utmp(1, b"shutdown", SINCE_S + 3), utmp(2, b"reboot", SINCE_S + 9)], True),
        ([utmp(1, b"shutdown", SINCE_S - 900), utmp(2, b"reboot", SINCE_S - 800)], None),
        ([utmp(1, b"runlevel", SINCE_S + 1)], None),
        ([utmp(7, b"shutdown", SINCE_S + 1)], None),
        ([b"torn"], None),
        ([utmp(2, b"reboot", 0)] * 500 + [utmp(1, b"shutdown", SINCE_S + 3)], True),
        ([utmp(2, b"reboot", 0)] * 500 + [utmp(1, b"shutdown", SINCE_S + 3), b"torn"], True),
        ([utmp(1, b"shutdown", SINCE_S + 3), b"torn"], True),
        ([utmp(1, b"shutdown", SINCE_S - 2)], True),
        ([utmp(1, b"shutdown", SINCE_S - 3)], None),
        ([utmp(1, b"shutdown", SINCE_S + 3)] + [utmp(2, b"reboot", 0)] * 169, True),
        ([utmp(1, b"shutdown", SINCE_S + 3)] + [utmp(2, b"reboot", 0)] * 170, None),
    ],
)
def test_wtmp(look, place, records, down):
    place("var/log/wtmp", b"".join(records))
    assert look().went_down is down
    assert look(since_wall_s=None).went_down is None


@pytest.mark.parametrize(("status", "reset"), [(b"32\n", True), (b"33\n", True), (b"0\n", False), (b"?", None)])
def test_the_watchdog(look, place, status, reset):
    place("sys/class/watchdog/watchdog0/bootstatus", status)
    assert look().watchdog is reset
