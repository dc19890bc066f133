"""/proc as it is: odd names, zombies, marks, descendants, signals that reach the right process or none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from attempts_kit import python

from supervisor.adapters import procfs


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


def test_a_zombie_is_dead_but_its_pidfd_says_so_too():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    fd = os.pidfd_open(pid)
    try:
        assert procfs.wait_gone(fd, 30)
        stat = procfs.read_stat(pid)
        assert stat is not None
        assert stat.state == "Z"
        assert not procfs.is_alive(pid, stat.start_ticks)
        assert procfs.open_verified(pid, stat.start_ticks) is None
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


def test_umask_is_read_without_changing_it():
    before = os.umask(0o027)
    try:
        assert procfs.umask() == 0o027
        assert subprocess.check_output(python("import os; print(os.umask(0))")) == b"23\n"
    finally:
        os.umask(before)
