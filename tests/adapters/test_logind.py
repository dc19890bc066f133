"""The host's shutdown is heard of over a real message bus, and held up by a lock that is given back."""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading

import pytest
from attempts_kit import eventually
from jeepney import DBusAddress, HeaderFields, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import Proxy, open_dbus_connection
from structlog.testing import capture_logs
from tools import needs

from supervisor.adapters.host import logind as module
from supervisor.adapters.host.logind import HostWatch

NAME, PATH = "org.freedesktop.login1", "/org/freedesktop/login1"
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
"""


@pytest.fixture(autouse=True)
def _slow_bus(monkeypatch):
    """On a busy machine an answer may take longer than a daemon waits for it, and it asks once."""
    monkeypatch.setattr(module, "_TIMEOUT_S", 60.0)


@pytest.fixture
def bus(tmp_path):
    """The address of a message bus of our own, with nobody on it, and its process."""
    needs("dbus-daemon")
    path, config = tmp_path / "bus", tmp_path / "bus.conf"
    config.write_text(CONFIG.format(path=path))
    command = ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout.readline()  # it listens
        yield f"unix:path={path}", daemon
        daemon.kill()


def announce(connection, going, to=None):
    told = new_signal(DBusAddress(PATH, interface=f"{NAME}.Manager"), "PrepareForShutdown", "b", (going,))
    if to:
        told.header.fields[HeaderFields.destination] = to
    connection.send(told)


class Logind(threading.Thread):
    """Logind's side, as far as it matters. `held` is at its end once the lock that it gave is closed."""

    def __init__(self, address, *, refuses=False, answers=True):
        super().__init__(daemon=True)
        self.held, self._given = os.pipe()
        self._refuses, self._answers = refuses, answers
        self.asked = []  # (what it was asked, who asked)
        self.connection = open_dbus_connection(address, enable_fds=True)
        Proxy(message_bus, self.connection).RequestName(NAME)
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                message = self.connection.receive()
                if message.header.message_type is not MessageType.method_call:
                    continue
                self.asked.append((message.body, message.header.fields[HeaderFields.sender]))
                if not self._answers:
                    continue
                if self._refuses:
                    self.connection.send(new_error(message, f"{NAME}.OperationInProgress"))
                else:
                    self.connection.send(new_method_return(message, "h", (self._given,)))
                    os.close(self._given)

    def announces(self, going):
        announce(self.connection, going)

    def close(self):
        with contextlib.suppress(OSError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.join()
        self.connection.close()
        os.close(self.held)

    def is_released(self):
        return bool(select.select([self.held], [], [], 0)[0])


@pytest.fixture
def watching(bus):
    """A watch that has its lock, what it has heard, and logind."""
    with contextlib.closing(Logind(bus[0])) as logind:
        heard = []
        watch = HostWatch(lambda: heard.append(True), bus[0])
        watch.start()
        assert eventually(lambda: watch._lock_fd is not None)
        yield watch, heard, logind
        watch.stop()


def test_the_announcement_is_heard_once_and_its_withdrawal_too(watching):
    watch, heard, logind = watching
    logind.announces(going=True)
    logind.announces(going=True)
    assert eventually(lambda: heard)
    assert not watch.cancelled.is_set()
    logind.announces(going=False)
    assert watch.cancelled.wait(30)
    assert heard == [True]


def test_nobody_else_can_announce_a_shutdown(watching, bus):
    watch, heard, logind = watching
    with open_dbus_connection(bus[0]) as stranger:
        announce(stranger, going=True)
        announce(stranger, going=True, to=logind.asked[0][1])
        Proxy(message_bus, stranger).GetId()  # so the bus has passed on both before what follows
    logind.announces(going=False)
    logind.announces(going=True)
    assert eventually(lambda: heard)
    assert not watch.cancelled.is_set(), "nothing was announced before it was withdrawn"


def test_the_lock_is_held_until_it_is_released(watching):
    watch, _, logind = watching
    assert [body for body, _ in logind.asked] == [("shutdown", "extralife", "every worker saves and leaves", "delay")]
    assert not os.get_inheritable(watch._lock_fd), "a worker that had it would hold up every shutdown"
    assert not logind.is_released()
    watch.release()
    assert eventually(logind.is_released)
    watch.release()


def test_where_the_lock_is_refused_the_announcement_is_still_heard(bus):
    with capture_logs() as said, contextlib.closing(Logind(bus[0], refuses=True)) as logind:
        watch = HostWatch(lambda: None, bus[0])
        watch.start()
        assert eventually(lambda: said)
        assert said == [{"event": "host_shutdown_not_delayed", "why": "()", "log_level": "info"}]
        logind.announces(going=True)
        assert eventually(lambda: watch.announced)
        watch.stop()


def test_logind_that_does_not_answer_is_not_waited_for(bus, monkeypatch):
    monkeypatch.setattr(module, "_TIMEOUT_S", 3.0)
    with contextlib.closing(Logind(bus[0], answers=False)) as logind:
        assert ended("host_shutdown_no_longer_announced", HostWatch(lambda: None, bus[0]).start) == "TimeoutError: "
        assert len(logind.asked) == 1


def ended(event, watch):
    """Why the watch ended, with this event in the log."""
    with capture_logs() as said:
        watch()
        assert eventually(lambda: [each for each in said if each["event"] == event]), said
    assert said[-1] == {"event": event, "why": said[-1]["why"], "log_level": "info"}
    return said[-1]["why"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/nowhere/bus", "FileNotFoundError: [Errno 2] No such file or directory"),
        ("{tmp}/file", "ConnectionRefusedError: [Errno 111] Connection refused"),
    ],
)
def test_without_a_bus_nothing_is_heard_and_nothing_breaks(tmp_path, path, why):
    (tmp_path / "file").write_text("")
    watch = HostWatch(lambda: None, f"unix:path={path.format(tmp=tmp_path)}")
    assert ended("host_shutdown_not_announced", watch.start) == why
    watch.release()
    watch.stop()
    assert not watch.announced


def test_without_jeepney_the_log_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jeepney", None)
    why = ended("host_shutdown_not_announced", HostWatch(lambda: None).start)
    assert why == "the package jeepney is not installed: pip install 'extralife[logind]' into extralife's environment"


def test_a_bus_that_goes_away_ends_the_watch_and_nothing_else(bus, watching):
    watch, heard, _ = watching
    assert ended("host_shutdown_no_longer_announced", bus[1].kill)
    watch.release()
    assert heard == []
