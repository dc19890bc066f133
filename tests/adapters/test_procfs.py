"""/proc as it is: odd names, zombies, marks, descendants, signals that reach the right process or none."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from attempts_kit import eventually, python
from leaks import open_files

from supervisor.adapters import procfs
from supervisor.adapters.procfs import Stat


def test_a_state_file_belongs_to_the_process_and_not_to_its_number():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    before = procfs.open_files(os.getpid())
    file = procfs.StateFile(process.pid)
    assert file.state() in {"R", "S", "D"}
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert file.state() == "T"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert file.state() == "Z"
    process.communicate()
    assert file.state() is None
    with pytest.raises(FileNotFoundError):
        procfs.StateFile(process.pid)
    del file
    assert procfs.open_files(os.getpid()) < before, "closed with its last reader"


def test_umask_is_read_without_changing_it():
    before = os.umask(0o027)
    try:
        assert procfs.umask() == 0o027
        assert subprocess.check_output(python("import os; print(os.umask(0))")) == b"23\n"
    finally:
        os.umask(before)


@contextlib.contextmanager
def child(code: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """A Python that has said that it is ready, and ends with the test."""
    made = subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more)  # type: ignore[call-overload]
    with made:
        try:
            assert made.stdout.readline() == b"ready\n"
            yield made
        finally:
            made.kill()


WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


def ticks(pid: int) -> list[int]:
    """User and system time of a process, and of its ended children."""
    return [int(word) for word in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]


# --- one process --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "threads", "alive"),
    [("R", 1, True), ("S", 0, True), ("T", 1, True), ("Z", 1, False), ("X", 1, False), ("x", 1, False), ("Z", 2, True)],
)
def test_who_counts_as_alive(state: str, threads: int, alive: bool) -> None:
    assert Stat(1, 1, "a", state, 1, threads=threads).alive is alive


@pytest.mark.parametrize("data", [b"", b"12 (a) S 3", b"12 a) S 3"])
def test_what_is_no_stat_file_is_no_process(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(procfs, "_read", lambda _path: data)
    assert procfs.read_stat(1) is None
    assert procfs.scan().processes == {}


def test_all_that_is_known_of_a_child() -> None:
    before = open_files()
    with child(WAITS, start_new_session=True) as process:
        assert eventually(lambda: procfs.read_stat(process.pid).state == "S")  # type: ignore[union-attr]
        stat = procfs.read_stat(process.pid)
        assert stat is not None
        ids = {"group": process.pid, "session": process.pid}
        assert stat == Stat(process.pid, os.getpid(), stat.name, "S", stat.start_ticks, stat.ticks, **ids)
        assert stat.name == Path(f"/proc/{process.pid}/comm").read_text().strip()
        own = procfs.read_stat("self")
        assert own is not None
        assert 0 < own.start_ticks <= stat.start_ticks
        assert procfs.is_alive(process.pid, stat.start_ticks)
        assert not procfs.is_alive(process.pid, stat.start_ticks - 1)
        assert process.pid in procfs.pids()
        assert procfs.scan().processes[process.pid] == stat
        assert procfs.threads(process.pid) == [(process.pid, stat.name, "S")]
        assert procfs.open_files(process.pid) == 3
        fd = procfs.open_verified(process.pid, stat.start_ticks)
        assert fd is not None
        assert not os.get_inheritable(fd)
        assert not procfs.wait_gone(fd, 0.01)
        assert procfs.open_verified(process.pid, stat.start_ticks + 1) is None
        assert not procfs.send_verified(process.pid, stat.start_ticks + 1, signal.SIGKILL)
        assert procfs.send(fd, 0)
        assert procfs.send_verified(process.pid, stat.start_ticks, signal.SIGKILL)
        assert procfs.wait_gone(fd, 60.0)
        assert process.pid not in procfs.scan().processes, "a zombie is dead"
        process.wait()
        assert not procfs.send(fd, signal.SIGKILL)
        os.close(fd)
    assert not procfs.send_verified(process.pid, stat.start_ticks, signal.SIGKILL)
    assert (procfs.threads(process.pid), procfs.open_files(process.pid), procfs.read_stat(process.pid)) == ([], None, None)
    assert procfs.open_verified(process.pid, stat.start_ticks) is None
    assert open_files() <= before


# --- many ---------------------------------------------------------------------------------------------------------------

FAMILY = (
    """
import os, sys
there, tell = os.pipe()

def begin(name, more=None):
    if os.fork() == 0:
        open("/proc/self/comm", "w").write(name)
        if more:
            begin(more)
        os.write(tell, b"x")
        sys.stdin.read()
        os._exit(0)

begin("a", "a) of (a")
begin("b")
for _ in range(3):
    os.read(there, 1)
"""
    + WAITS
)


@pytest.fixture
def family() -> Iterator[int]:
    """The pid of a process with two children and a grandchild."""
    with child(FAMILY, start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_descendants_come_after_their_parents_and_once(family: int) -> None:
    found = procfs.descendants([family])
    assert sorted(stat.name for stat in found) == ["a", "a) of (a", "b"]
    names = {stat.pid: stat.name for stat in found}
    assert [stat.name for stat in found].index("a") < [stat.name for stat in found].index("a) of (a")
    assert sorted(stat.parent for stat in found if stat.name != "a) of (a") == [family, family]
    a = next(pid for pid, name in names.items() if name == "a")
    assert [stat.name for stat in procfs.descendants([a])] == ["a) of (a"]
    assert sorted(stat.name for stat in procfs.descendants([family, a, family])) == ["a) of (a", "b"], "no root itself"
    assert procfs.descendants([]) == []
    os.kill(a, signal.SIGKILL)
    assert eventually(lambda: not procfs.read_stat(a).alive)  # type: ignore[union-attr]
    assert a not in {stat.pid for stat in procfs.descendants([family])}, "a zombie is dead"


@pytest.mark.parametrize(
    ("hangup", "alone", "detached"),
    [(signal.SIG_DFL, False, False), (signal.SIG_DFL, True, True), (signal.SIG_IGN, False, True)],
    ids=["in its session", "in another one", "nohup"],
)
def test_who_is_to_outlive_its_parent(hangup, alone, detached):
    before = partial(signal.signal, signal.SIGHUP, hangup)  # these tests may run under nohup themselves
    with subprocess.Popen(["sleep", "60"], start_new_session=alone, preexec_fn=before) as process:  # noqa: PLW1509
        assert procfs.is_detached(process.pid, os.getsid(0)) is detached
        process.kill()
    assert procfs.is_detached(process.pid, os.getsid(0)) is False
