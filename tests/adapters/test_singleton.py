"""One daemon per state directory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from attempts_kit import REPO

from supervisor.adapters.singleton import Taken, hold

HOLDER = (
    "import sys; from supervisor.adapters.singleton import hold; s = hold(sys.argv[1]); print(flush=True); sys.stdin.read()"
)


@pytest.fixture
def other_daemon(tmp_path):
    args = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(args, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_second_daemon_is_refused_and_told_the_first_ones_pid(tmp_path, other_daemon):
    with pytest.raises(Taken, match=rf"another supervisord \(pid {other_daemon.pid}\) runs on {tmp_path}: stop"):
        hold(str(tmp_path / "lock"))


def test_the_lock_goes_with_the_daemon_however_it_ends(tmp_path, other_daemon):
    other_daemon.kill()
    other_daemon.wait()
    lock = hold(str(tmp_path / "lock"))
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()
    hold(str(tmp_path / "lock")).release()


def test_workers_do_not_inherit_it(tmp_path):
    lock = hold(str(tmp_path / "lock"))
    with subprocess.Popen(["sleep", "60"], close_fds=False) as worker:
        lock.release()
        hold(str(tmp_path / "lock")).release()
        worker.kill()


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(OSError, match=f"cannot use {tmp_path}/none as state directory: No such file or directory; create"):
        hold(str(tmp_path / "none" / "lock"))
