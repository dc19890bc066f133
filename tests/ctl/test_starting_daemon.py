"""A daemon that was started a moment ago is waited for, however busy the machine is."""

import os
import shutil
import subprocess
import sys

import pytest

from supervisor.adapters import singleton
from supervisor.ctl import starting_daemon


def test_the_time_without_a_processor_does_not_make_a_daemon_old(monkeypatch):
    with subprocess.Popen(["/somewhere/supervisord", "60"], executable=shutil.which("sleep")) as daemon:
        try:
            assert daemon.pid in starting_daemon._young_daemons("/somewhere/socket")
            monkeypatch.setattr(starting_daemon, "_YOUNG_S", -1.0)
            assert daemon.pid not in starting_daemon._young_daemons("/somewhere/socket")
            monkeypatch.setattr(starting_daemon, "_waited_s", lambda pid: 60.0 if int(pid) == daemon.pid else 0.0)
            assert daemon.pid in starting_daemon._young_daemons("/somewhere/socket")
        finally:
            daemon.kill()


def test_daemons_that_start_and_fail_again_and_again_keep_no_client_waiting(tmp_path, monkeypatch):
    looks = iter([{1, 2}, {2, 3}, {3, 4}])
    monkeypatch.setattr(starting_daemon, "_young_daemons", lambda _: next(looks))
    assert not starting_daemon.daemon_comes(str(tmp_path / "socket"))


def test_a_process_in_the_middle_of_its_exec_may_be_a_daemon():
    """The kernel replaces the memory of a process first and gives it its arguments later; a busy machine stops it in between."""
    for _ in range(20):
        with subprocess.Popen(["/somewhere/supervisord", "60"], executable=shutil.which("sleep")) as daemon:
            assert starting_daemon._is_daemon(str(daemon.pid))
            daemon.kill()
            os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)
            assert not starting_daemon._is_daemon(str(daemon.pid)), "a zombie has no command line either"


def test_a_daemon_that_is_the_only_one_but_does_not_serve_yet_is_waited_for(tmp_path):
    """It holds its name in the kernel, which listens, while it still opens its journal."""
    code = f"from supervisor.adapters import singleton; held = singleton.claim({str(tmp_path)!r}); print('held', flush=True); input()"
    with subprocess.Popen(
        ["/somewhere/supervisord", "-c", code], executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as daemon:  # fmt: skip
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"held\n"
        with pytest.raises(singleton.Taken):
            singleton.claim(str(tmp_path))
        assert daemon.pid in starting_daemon._young_daemons("/somewhere/socket")
        daemon.kill()
