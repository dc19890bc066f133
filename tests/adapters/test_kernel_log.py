"""What the kernel says of its OOM killer: found by pid, not when it is old, and never a reason to fail."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from leaks import nothing_stays_open

from supervisor.adapters.host import kernel_log
from supervisor.adapters.host.kernel_log import KMSG, KernelLog

SAID = "Memory cgroup out of memory: Killed process 24007 (python3) total-vm:221356kB, anon-rss:61184kB"


UNCOUNTED = "/nowhere/vmstat"  # a kernel that does not count such kills


def oom_kill_of(pid: int, path: str, vmstat: str) -> str:
    """The answer of a log that was not read before."""
    log = KernelLog(path, vmstat)
    try:
        return log.oom_kill_of(pid)
    finally:
        if log._fd >= 0:
            os.close(log._fd)


def log_of(tmp_path: Path, *records: str) -> str:
    """A log that gives one whole record a read, as /dev/kmsg does: a packet pipe would, a file with one record does."""
    path = tmp_path / "kmsg"
    path.write_text("".join(records))
    return str(path)


def record(text: str, ago_s: float) -> str:
    return f"6,1234,{int((time.monotonic() - ago_s) * 1e6)},-;{text}\n SUBSYSTEM=memory\n"


@pytest.mark.fault("oom-kill")
def test_the_sentence_about_this_very_process(tmp_path: Path) -> None:
    path = log_of(tmp_path, record(SAID, 1.0))
    assert oom_kill_of(24007, path, UNCOUNTED) == SAID
    assert oom_kill_of(2400, path, UNCOUNTED) == ""


def test_an_old_one_is_about_another_process_of_that_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_FRESH_S", 0.5)
    assert oom_kill_of(24007, log_of(tmp_path, record(SAID, 1.0)), UNCOUNTED) == ""
    assert oom_kill_of(24007, log_of(tmp_path, f"garbage;{SAID}\n"), UNCOUNTED) == ""


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        ("pgfault 7\noom_kill 0\nx 1\n", ""), ("oom_kill 3\n", SAID), ("oom_kill_extra 0\n", SAID), ("", SAID),
        ("\u00e9", SAID),
    ],
)  # fmt: skip
def test_a_kernel_that_killed_nobody_is_not_asked_for_whom(tmp_path: Path, counted: str, found: str) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text(counted, encoding="utf-8")
    assert oom_kill_of(24007, log_of(tmp_path, record(SAID, 1.0)), str(vmstat)) == found


class Log:
    """/dev/kmsg, whose every read is one whole record: a socket of packets reads alike."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *records: str) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        for each in records:
            theirs.send(each.encode("utf-8", "surrogateescape"))
        self.theirs = theirs
        monkeypatch.setattr(os, "open", lambda *_: os.dup(self.ours.fileno()))

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def test_the_newest_of_several_records_counts_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(
        Log(
            monkeypatch, record("first", 9.0), record(SAID, 5.0), record(f"  {SAID} again \udcff ", 1.0), record("last", 0.0)
        )
    ):
        with nothing_stays_open():
            assert oom_kill_of(24007, KMSG, UNCOUNTED) == f"{SAID} again \ufffd"


def test_a_record_that_was_overwritten_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers EPIPE for it, and the next read gives the oldest record that is left."""
    with contextlib.closing(Log(monkeypatch, record(SAID, 1.0))):
        real, broken = os.read, [BrokenPipeError(), BrokenPipeError()]

        def read(fd: int, size: int) -> bytes:
            if broken:
                raise broken.pop()
            return real(fd, size)

        monkeypatch.setattr(os, "read", read)
        assert oom_kill_of(24007, KMSG, UNCOUNTED) == SAID


def test_no_log_no_word(tmp_path: Path) -> None:
    assert oom_kill_of(1, str(tmp_path / "none"), UNCOUNTED) == ""
    assert oom_kill_of(1, str(tmp_path), UNCOUNTED) == ""


def test_reading_never_waits(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    holder = os.open(fifo, os.O_RDWR)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(oom_kill_of(1, str(fifo), UNCOUNTED)))
    reader.start()
    reader.join(60.0)
    os.close(holder)
    assert found == [""]
