"""A daemon that keeps ending begins again after longer and longer waits, and whoever stops it ends the wait."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools import ROOT

from supervisor.adapters.host import known_mount, starts


def test_the_first_two_wait_for_nothing_then_twice_as_long_each_up_to_a_minute():
    assert [starts.delay_s(n) for n in range(10)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert starts.delay_s(100_000) == 60


@pytest.fixture
def service(tmp_path):
    """What a service manager gives its service, and its end of the notify socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(tmp_path / "notify"))
    sock.settimeout(30)
    (tmp_path / "state").mkdir()
    paths = {"NOTIFY_SOCKET": "notify", "RUNTIME_DIRECTORY": "", "STATE_DIRECTORY": "state"}
    yield {name: str(tmp_path / path) for name, path in paths.items()}, sock
    sock.close()


def began(environ, *ages_s):
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    Path(environ["RUNTIME_DIRECTORY"], "starts").write_text(json.dumps([now_s - age_s for age_s in ages_s]))


def recorded(environ):
    """The ages of the starts on record, rounded to ten seconds."""
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return [round(now_s - at_s, -1) for at_s in json.loads(Path(environ["RUNTIME_DIRECTORY"], "starts").read_text())]


WAIT = """
import os, signal
from supervisor.adapters.host import starts
before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
begins = starts.wait_for_turn(dict(os.environ))
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before | {signal.SIGUSR2}, "signals arrive as before"
assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "no alarm is left"
raise SystemExit(10 + begins)
"""


def waiting(environ, before=""):
    """A start in a process of its own: 11 when it begins, 10 when it is to end."""
    return subprocess.Popen([sys.executable, "-c", before + WAIT], cwd=ROOT, env=os.environ | environ)


def said(sock):
    """The next message to the service manager: its status, and for how long it may take."""
    status, extend = sock.recv(4096).decode().split("\n")
    return status.removeprefix("STATUS="), extend.removeprefix("EXTEND_TIMEOUT_USEC=")


def test_without_a_service_manager_nothing_waits_and_nothing_is_written(tmp_path):
    assert starts.wait_for_turn({"RUNTIME_DIRECTORY": str(tmp_path)})
    assert starts.wait_for_turn({"RUNTIME_DIRECTORY": str(tmp_path), "NOTIFY_SOCKET": ""})
    assert starts.wait_for_turn({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert starts.wait_for_turn({"NOTIFY_SOCKET": str(tmp_path / "notify"), "RUNTIME_DIRECTORY": str(tmp_path / "none")})
    assert list(tmp_path.iterdir()) == []


def test_the_wait_is_told_and_over_by_itself(service):
    environ, sock = service
    began(environ, 30.0, 20.0)
    # In a process of its own: SIGALRM, which ends the wait, may reach another thread of this one.
    assert waiting(environ).wait(30) == 11
    assert said(sock) == ("start 3 within 10m: waits 1s; journalctl says why the others ended", "61000000")
    assert len(recorded(environ)) == 3
    assert not Path(environ["STATE_DIRECTORY"], "reboot_alerts.log").exists(), "the fourth is an alert"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 10), (signal.SIGINT, 10), (signal.SIGHUP, 11)])
def test_a_stop_ends_the_wait_and_the_next_start_is_at_once(service, number, code):
    environ, sock = service
    began(environ, *range(1, 10))
    process = waiting(environ)
    assert said(sock) == ("start 10 within 10m: waits 1m; journalctl says why the others ended", "120000000")
    assert recorded(environ)[-1] <= -20, "for the time at which it begins"
    process.send_signal(number)
    assert process.wait(30) == code
    assert not Path(environ["RUNTIME_DIRECTORY"], "starts").exists()


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
    text = r'[0-9T:+-]{25} DAEMON ends again and again starts=4 within=0:0(\d):(\d\d) why="journalctl -u extralife"'
    within = re.fullmatch(text, lines[0])
    assert 90 <= 60 * int(within[1]) + int(within[2]) <= 120, lines[0]


def test_an_alert_that_cannot_be_sent_delays_no_start(service):
    hangs = "from supervisor.adapters.host import starts; starts._TELL_S = 0.1\nstarts._tell = lambda *_: signal.pause()\n"
    lacks = "from supervisor.adapters import threads\ndef start(_): raise RuntimeError\nthreads.Thread.start = start\n"
    for why in (f"import signal\n{hangs}", lacks):
        began(service[0], 90.0, 60.0, 30.0)
        assert waiting(service[0], why).wait(60) == 11


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


def test_the_alert_goes_to_the_targets_of_the_configuration_without_its_time(tmp_path, monkeypatch):
    from supervisor.features.alerts import failure

    told = []
    monkeypatch.setattr(failure, "tell", lambda *args, **more: told.append((args, more)))
    environ = {"STATE_DIRECTORY": f"{tmp_path}:/elsewhere", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    thread = starts._alert(environ, "extralife.toml", 4, 10.0)
    assert thread.daemon, "it keeps no daemon from its end"
    assert told == [], "it has not begun"
    thread.run()
    text = 'DAEMON ends again and again starts=4 within=0:00:10 why="journalctl -u extralife"'
    assert told == [((text, "extralife.toml", environ), {"pauses_s": (0.0, 1.0)})]
    assert (tmp_path / "reboot_alerts.log").read_text().endswith(f" {text}\n")
