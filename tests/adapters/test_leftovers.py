"""Children of a daemon that was killed, ended by the next one: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from supervisor.adapters import leftovers, procfs
from supervisor.adapters.process.health_checks import _command
from supervisor.records import replace

SLEEP = ["sleep", "300"]


@pytest.fixture
def children():
    """Starts one of a daemon that is killed at once, or of one that lives; its pid."""
    started = []

    def start(*, killed, of_user=False, argv=SLEEP, **how):
        read, write = os.pipe()
        daemon = os.fork()
        if daemon == 0:
            child = subprocess.Popen(argv, env=os.environ | leftovers.mark(of_user=of_user), **how)
            os.write(write, str(child.pid).encode())
            signal.pause()
        os.close(write)
        child = int(os.read(read, 20))
        os.close(read)
        started.append(child)
        pidfd = os.pidfd_open(child)  # before its daemon is gone: then the daemons of other tests may end it at any moment
        if killed:
            os.kill(daemon, signal.SIGKILL)
            os.waitpid(daemon, 0)
        else:
            started.append(daemon)
        return pidfd

    yield start
    for pid in reversed(started):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def gone(pidfd, timeout_s=30.0):
    return procfs.wait_gone(pidfd, timeout_s)


def test_a_child_whose_daemon_is_gone_is_ended_and_another_s_is_not(children):
    left, awaited = children(killed=True, start_new_session=True), children(killed=False)
    while "sleep" not in leftovers.end():  # each daemon that starts ends what it finds, and other tests start some
        assert gone(left)
        left = children(killed=True, start_new_session=True)
    assert gone(left)
    assert not gone(awaited, 0)


def test_of_a_user_s_command_only_itself_is_ended(children):
    command = children(killed=True, of_user=True, process_group=0)
    background = children(killed=True, of_user=True, start_new_session=True)
    leftovers.end()
    assert gone(command)
    assert not gone(background, 0), "what a command has put into the background was meant to stay"


def test_in_a_container_whose_session_began_outside_a_user_s_command_still_keeps_its_background(children, monkeypatch):
    """`docker exec` and `nsenter` leave the session leader outside: /proc then shows session 0."""
    stat = procfs.read_stat(os.getpid())
    monkeypatch.setattr(leftovers.procfs, "read_stat", lambda _pid: replace(stat, session=0))
    assert leftovers.mark(of_user=True)[leftovers.ENV].endswith(":0")
    assert leftovers.mark()[leftovers.ENV].endswith(":tree")
    monkeypatch.undo()
    value = f"{leftovers._namespace()}:{stat.pid}:1:0"  # that process has ended: its start ticks are another process's
    outside, background = replace(stat, pid=77, group=77, session=0), replace(stat, pid=78, group=78, session=78)
    assert leftovers._is_left_over(outside, value)
    assert not leftovers._is_left_over(background, value)


@pytest.mark.parametrize("mark", ["", "x", "1:2", "1:2:3:0", "1:2:3:tree", "é"])
def test_a_mark_of_another_namespace_or_none_at_all_means_nothing(mark):
    child = subprocess.Popen(SLEEP, env={**os.environ, leftovers.ENV: mark})
    try:
        leftovers.end()
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_daemon_that_inherited_a_mark_hands_it_on_to_nobody(monkeypatch):
    monkeypatch.setenv(leftovers.ENV, "1:2:3:0")
    leftovers.end()
    assert leftovers.ENV not in os.environ


def test_a_health_check_s_command_carries_the_mark(tmp_path):
    out = tmp_path / "env"
    check = SimpleNamespace(command=["sh", "-c", f"env >{out}; cut -d ' ' -f 1,5,6 /proc/$$/stat >>{out}"], timeout_s=20.0)
    _command(check, SimpleNamespace(user="", env=(), name="web", directory=""))
    *lines, last = out.read_text().splitlines()
    assert f"{leftovers.ENV}={leftovers.mark(of_user=True)[leftovers.ENV]}" in lines
    pid, group, session = map(int, last.split())
    assert (group, session) == (pid, os.getsid(0)), "an orphan's look takes children in other sessions for a worker's"
