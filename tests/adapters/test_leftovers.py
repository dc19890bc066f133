"""Children of a daemon that was killed, ended by the next one: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from attempts_kit import REPO

from supervisor.adapters import leftovers, procfs

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
    monkeypatch.setattr(leftovers.procfs, "read_stat", lambda _pid: stat._replace(session=0))
    assert leftovers.mark(of_user=True)[leftovers.ENV].endswith(":0")
    assert leftovers.mark()[leftovers.ENV].endswith(":tree")
    monkeypatch.undo()
    value = f"{procfs.pid_namespace()}:{stat.pid}:1:0"  # that process has ended: its start ticks are another process's
    outside, background = stat._replace(pid=77, group=77, session=0), stat._replace(pid=78, group=78, session=78)
    assert leftovers._is_left_over(outside, value)
    assert not leftovers._is_left_over(background, value)


def dead():
    """A mark of this pid, as it was used long ago, without its last field."""
    return f"{os.stat('/proc/self/ns/pid').st_ino}:{os.getpid()}:1"


@pytest.mark.parametrize(
    ("daemon", "of", "group", "session", "left_over"),
    [
        ("dead", ":tree", 77, 78, True), ("dead", ":5", 77, 5, True),
        ("dead", ":5", 70, 5, False), ("dead", ":5", 77, 6, False),  # the command's own child; in the background
        ("alive", ":tree", 77, 78, False), ("alive", ":5", 77, 5, False),
        ("elsewhere", ":tree", 77, 78, False), ("elsewhere", ":5", 77, 5, False),
        ("dead", ":TREE", 77, 78, False), ("dead", ":tree:5", 77, 5, False), ("dead", "", 77, 1, False),
    ],
)  # fmt: skip
def test_who_is_left_over(daemon, of, group, session, left_over):
    stat = procfs.read_stat(os.getpid())
    namespace, pid, began = map(int, dead().split(":"))
    marks = {"dead": dead(), "alive": f"{namespace}:{pid}:{stat.start_ticks}", "elsewhere": f"{namespace + 1}:{pid}:{began}"}
    other = stat._replace(pid=77, group=group, session=session)
    assert leftovers._is_left_over(other, marks[daemon] + of) is left_over


ENDS = "from supervisor.adapters import leftovers; import os; print(leftovers.end(), 'EXTRALIFE_CHILD_OF' in os.environ)"


def test_a_daemon_does_not_end_itself_for_the_mark_of_its_own_parent():
    for _ in range(20):  # each daemon that starts beside this test takes it for a leftover
        done = subprocess.run(
            [sys.executable, "-c", ENDS], env={**os.environ, leftovers.ENV: f"{dead()}:tree"}, cwd=REPO,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != -signal.SIGKILL:
            break
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("] False\n"), "nor does it hand the mark on"
