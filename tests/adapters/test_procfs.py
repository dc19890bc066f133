"""/proc as it is: odd names, zombies, marks, descendants, signals that reach the right process or none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from attempts_kit import eventually, python

from supervisor.adapters import procfs


def test_a_name_with_spaces_and_parentheses_does_not_shift_the_fields():
    stat = procfs.parse_stat(b"12 (a) R (b c) S 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 7 0 9876 1 2 3\n")
    assert (stat.pid, stat.name, stat.state, stat.parent, stat.group, stat.session) == (12, "a) R (b c", "S", 3, 4, 5)
    assert (stat.threads, stat.start_ticks) == (7, 9876)


def test_no_process_and_no_stat_are_none():
    assert procfs.read_stat(2**22 + 1) is None
    with pytest.raises(ValueError, match="subsection not found"):
        procfs.parse_stat(b"nonsense")


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


def test_a_zombie_main_thread_with_living_threads_is_alive():
    zombie = procfs.parse_stat(b"12 (a) Z 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 9876 1\n")
    assert zombie.alive


def test_a_signal_reaches_only_the_process_of_these_ticks():
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        stat = procfs.read_stat(sleeper.pid)
        assert stat is not None
        assert not procfs.send_verified(sleeper.pid, stat.start_ticks + 1, signal.SIGKILL)  # the number was reused
        assert sleeper.poll() is None
        assert procfs.send_verified(sleeper.pid, stat.start_ticks, signal.SIGKILL)
        assert sleeper.wait(30) == -signal.SIGKILL


def test_marks_are_found_exactly():
    mark = f"one-{os.getpid()}"
    with (
        subprocess.Popen(["sleep", "60"], env={"XL_MARK": mark}) as one,
        subprocess.Popen(["sleep", "60"], env={"XL_MARK": f"{mark}-and-more", "XX_MARK": mark}) as other,
    ):
        try:
            found = lambda: procfs.marked("XL_MARK", [mark, "three"])  # noqa: E731
            assert eventually(lambda: found()[mark]), "an environment is there at the end of the exec"
            assert {value: [stat.pid for stat in stats] for value, stats in found().items()} == {
                mark: [one.pid],
                "three": [],
            }
        finally:
            one.kill()
            other.kill()


def test_descendants_are_found_through_generations():
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 60; :'; :"], start_new_session=True) as shell:
        try:
            found = lambda: [stat.name for stat in procfs.descendants([shell.pid])]  # noqa: E731
            assert eventually(lambda: "sleep" in found())
            assert found() == ["sh", "sleep"]
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_only_a_handler_of_its_own_counts_as_caught():
    code = "import signal, sys; signal.signal(signal.SIGUSR1, print); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as worker:  # type: ignore[call-overload]
        worker.stdout.readline()
        assert procfs.catches(worker.pid, signal.SIGUSR1)
        assert not procfs.catches(worker.pid, signal.SIGUSR2)
        assert procfs.open_files(worker.pid) == 3
        assert [(tid, name) for tid, name, state in procfs.threads(worker.pid)] == [
            (worker.pid, procfs.read_stat(worker.pid).name)
        ]
    assert not procfs.catches(worker.pid, signal.SIGUSR1)


def test_umask_is_read_without_changing_it():
    before = os.umask(0o027)
    try:
        assert procfs.umask() == 0o027
        assert subprocess.check_output(python("import os; print(os.umask(0))")) == b"23\n"
    finally:
        os.umask(before)
