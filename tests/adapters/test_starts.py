"""A daemon that keeps ending begins again after longer and longer waits, and whoever stops it ends the wait."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supervisor.adapters.host import known_mount
from supervisor.adapters.process import starts

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_two_wait_for_nothing_then_twice_as_long_each_up_to_a_minute():
    assert [starts.delay_s(n) for n in range(10)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]


@pytest.fixture
def service(tmp_path):
    """What a service manager gives its service, and its end of the notify socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(tmp_path / "notify"))
    sock.settimeout(30)
    (tmp_path / "state").mkdir()
    yield (
        {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "RUNTIME_DIRECTORY": str(tmp_path),
            "STATE_DIRECTORY": str(tmp_path / "state"),
        },
        sock,
    )
    sock.close()


def began(environ, *ages_s):
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    Path(environ["RUNTIME_DIRECTORY"], "starts").write_text(json.dumps([now_s - age_s for age_s in ages_s]))


def waiting(environ):
    code = "import os; from supervisor.adapters.process import starts; raise SystemExit(10 + starts.wait_for_turn(dict(os.environ)))"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**environ, "PATH": "/usr/bin:/bin"})


def test_without_a_service_manager_nothing_waits_and_nothing_is_written(tmp_path):
    assert starts.wait_for_turn({"RUNTIME_DIRECTORY": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_a_start_after_few_or_old_ones_is_at_once(service):
    environ, _ = service
    began(environ, 700.0, 650.0, 601.0, 10.0)
    assert starts.wait_for_turn(environ)
    assert len(json.loads(Path(environ["RUNTIME_DIRECTORY"], "starts").read_text())) == 2


def test_a_record_that_is_none_counts_for_nothing(service):
    environ, _ = service
    for garbage in ("", "{}", "[1, null, true]", "\0"):
        Path(environ["RUNTIME_DIRECTORY"], "starts").write_text(garbage)
        assert starts.wait_for_turn(environ)


def test_the_wait_is_told_and_over_by_itself(service):
    environ, sock = service
    began(environ, 30.0, 20.0)
    # In a process of its own: SIGALRM, which ends the wait, may reach another thread of this one.
    assert waiting(environ).wait(30) == 11
    status, extend = sock.recv(4096).decode().split("\n")
    assert status.startswith("STATUS=start 3 within 10 min: waits 1 s")
    assert extend == "EXTEND_TIMEOUT_USEC=61000000"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 10), (signal.SIGHUP, 11)])
def test_a_stop_ends_the_wait_and_the_next_start_is_at_once(service, number, code):
    environ, sock = service
    began(environ, *range(1, 10))
    process = waiting(environ)
    assert "waits 60 s" in sock.recv(4096).decode()
    process.send_signal(number)
    assert process.wait(30) == code
    assert not Path(environ["RUNTIME_DIRECTORY"], "starts").exists()


def test_a_wait_that_was_stopped_beyond_its_end_is_over_and_no_request_to_end(service):
    """As on a box that is suspended: the wait's interrupted system call must not return a signal that nobody sent."""
    environ, sock = service
    began(environ, 30.0, 20.0, 10.0)
    process = waiting(environ)
    assert "waits 2 s" in sock.recv(4096).decode()
    time.sleep(0.5)  # it is in the middle of its wait then
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.0)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 11
    assert Path(environ["RUNTIME_DIRECTORY"], "starts").exists(), "only a request to end forgets the starts"


def test_the_fourth_start_is_an_alert_once(service):
    environ, sock = service
    for _ in range(2):
        began(environ, 90.0, 60.0, 30.0)
        process = waiting(environ)
        assert sock.recv(4096)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    began(environ, 90.0, 60.0)
    assert waiting(environ).wait(30) == 11
    lines = Path(environ["STATE_DIRECTORY"], "reboot_alerts.log").read_text().splitlines()
    assert len(lines) == 2
    assert " DAEMON ends again and again starts=4 within=0:0" in lines[0]


def test_no_line_is_written_below_a_mount_that_is_missing(tmp_path):
    state, cache = tmp_path / "state", tmp_path / "cache"
    state.mkdir()
    environ = {"STATE_DIRECTORY": str(state), "XDG_CACHE_HOME": str(cache), "RUNTIME_DIRECTORY": str(tmp_path)}
    record = known_mount.record_of(str(state), known_mount.cache_dir(environ))
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"state_dir": str(state), "mount_point": str(state)}))
    starts._alert(environ, None, 4, 10.0)
    assert list(state.iterdir()) == []
    record.unlink()
    starts._alert(environ, None, 4, 10.0)
    assert "ends again and again" in (state / "reboot_alerts.log").read_text()
