"""What the service manager is told, received on a real socket; with systemd-python and without it."""

import builtins
import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tools import PATIENCE, ROOT, needs, no_descriptors

from supervisor.adapters.host.systemd import Notifier, passed_fds, watchdog_period_s


class Manager:
    """The service manager's end."""

    def __init__(self, address):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("\0" + address[1:] if address.startswith("@") else address)
        self.sock.settimeout(30)
        self.environ = {"NOTIFY_SOCKET": address}

    def told(self):
        return self.sock.recv(4096).decode().strip().split("\n")


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path, monkeypatch):
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@extralife-test-{os.getpid()}")
    monkeypatch.setenv("NOTIFY_SOCKET", made.environ["NOTIFY_SOCKET"])  # systemd-python reads it there
    yield made
    made.sock.close()


@pytest.fixture(params=["systemd-python", "our own"])
def _library(request, monkeypatch):
    if request.param == "systemd-python":
        if importlib.util.find_spec("systemd") is None:
            pytest.skip("systemd-python is not installed")
        return
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.split(".")[0] == "systemd":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)


@pytest.mark.usefixtures("_library")
def test_each_message_has_its_words(manager):
    notifier = Notifier({**manager.environ, "WATCHDOG_USEC": "30000000"})
    notifier.ready("2 of 3 programs run\nMAINPID=1")
    assert manager.told() == ["READY=1", "STATUS=2 of 3 programs run MAINPID=1"]
    notifier.status("all is well")
    assert manager.told() == ["STATUS=all is well"]
    notifier.watchdog()
    assert manager.told() == ["WATCHDOG=1"]
    notifier.stopping(extend_s=2.5)
    assert manager.told() == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=2500000"]
    before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    reloading, stamp = manager.told()
    assert reloading == "RELOADING=1"
    name, _, value = stamp.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before_us <= int(value) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_without_a_service_manager_nothing_happens(monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    notifier = Notifier({})
    notifier.ready("x")
    notifier.watchdog()
    notifier.reloading()
    notifier.stopping(1.0)
    notifier.store_fd(0, "control")
    assert notifier.watchdog_period_s is None
    assert not notifier.has_service_manager


@pytest.mark.usefixtures("_library")
def test_a_service_manager_that_is_gone_is_no_trouble(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert notifier.has_service_manager
    notifier.ready("x")
    notifier.store_fd(0, "control")


def test_the_watchdog_is_only_fed_when_somebody_wants_it(manager):
    notifier = Notifier(manager.environ)
    notifier.watchdog()
    notifier.status("the next")
    assert manager.told() == ["STATUS=the next"]


@pytest.mark.parametrize(
    ("environ", "period_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "7"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "1"}, 1e-6),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": ""}, 0.5),
        ({"WATCHDOG_PID": "7"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_how_often_the_watchdog_wants_to_be_fed(environ, period_s):
    assert watchdog_period_s(environ, 7) == period_s


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_the_real_command_and_our_sender_speak_alike(manager):
    """systemd-notify is the reference: what it sends for --ready is what we send."""
    # --no-block: nobody here closes the descriptor that it would wait for
    command = [needs("systemd-notify"), "--no-block", "--ready", "--status=x"]
    subprocess.run(command, env={**os.environ, **manager.environ}, check=True)
    reference = manager.told()
    Notifier(manager.environ).ready("x")
    assert sorted(manager.told()) == sorted(reference)


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_the_daemons_messages_come_from_its_main_process(manager):
    """NotifyAccess=main drops what any other process says: no helper may do the sending."""
    manager.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    code = "import os; from supervisor.adapters.host.systemd import Notifier; Notifier(os.environ).ready('x'); print(os.getpid())"
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **manager.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT, check=True, capture_output=True,
    ).stdout  # fmt: skip
    _, ancillary, _, _ = manager.sock.recvmsg(4096, 128)
    assert int.from_bytes(ancillary[0][2][:4], sys.byteorder) == int(out)


@pytest.mark.usefixtures("_library")
def test_a_service_manager_that_does_not_read_stops_nobody(manager):
    """The queue of a datagram socket holds some ten: what does not fit is not waited for."""
    notifier = Notifier({**manager.environ, "WATCHDOG_USEC": "30000000"})
    began = time.monotonic()
    for _ in range(1000):
        notifier.watchdog()
    assert time.monotonic() - began < 10.0 * PATIENCE
    notifier.stopping(1.0)  # waited for, but not for ever
    assert time.monotonic() - began < 20.0 * PATIENCE
    assert manager.told() == ["WATCHDOG=1"]


def test_a_descriptor_is_handed_to_the_manager_and_taken_back(manager, tmp_path):
    notifier = Notifier(manager.environ)
    with (tmp_path / "kept").open("w+") as file:
        file.write("kept")
        file.flush()
        notifier.store_fd(file.fileno(), "control")
    text, fds, _, _ = socket.recv_fds(manager.sock, 4096, 4)
    assert text == b"FDSTORE=1\nFDNAME=control"
    (fd,) = fds
    assert os.pread(fd, 4, 0) == b"kept"
    os.close(fd)
    notifier.remove_fd("control")
    assert manager.told() == ["FDSTOREREMOVE=1", "FDNAME=control"]


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_a_notifier_without_descriptors_reaches_a_manager_that_has_begun_anew(manager, monkeypatch):
    """The library cannot open its socket then. Only a path can be bound again at once: an abstract name is taken as long as
    any process has the socket, also one that another thread is forking at this moment.
    """
    notifier, address = Notifier({**manager.environ, "WATCHDOG_USEC": "30000000"}), manager.environ["NOTIFY_SOCKET"]
    manager.sock.close()
    notifier.watchdog()  # nobody listens: the next one is sent all the same
    Path(address).unlink()
    monkeypatch.setattr(manager, "sock", Manager(address).sock)
    with no_descriptors():
        notifier.watchdog()
        notifier.status("x")
        notifier.store_fd(0, "control")
    assert [manager.told() for _ in range(3)] == [["WATCHDOG=1"], ["STATUS=x"], ["FDSTORE=1", "FDNAME=control"]]


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_a_library_is_not_asked_where_it_would_wait(manager, monkeypatch):
    """It would wait for ever, and hold the whole process up meanwhile."""
    said = []
    monkeypatch.setitem(sys.modules, "systemd", SimpleNamespace(daemon=SimpleNamespace(notify=said.append)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, contextlib.suppress(BlockingIOError):
        sock.setblocking(False)
        while True:
            sock.sendto(b"earlier", manager.environ["NOTIFY_SOCKET"])
    Notifier(manager.environ).status("x")
    assert said == []


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"LISTEN_PID": "7", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "control:other"}, {"control": 3, "other": 4}),
        ({"LISTEN_PID": "8", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "control"}, {}),  # meant for another process
        ({"LISTEN_PID": "7", "LISTEN_FDS": "many", "LISTEN_FDNAMES": "control"}, {}),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "1"}, {"": 3}),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "3", "LISTEN_FDNAMES": "a:b"}, {"a": 3, "b": 4}),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "a:b"}, {"a": 3}),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "0", "LISTEN_FDNAMES": "a"}, {}),
        ({"LISTEN_FDS": "1", "LISTEN_FDNAMES": "a"}, {}),
        ({}, {}),
    ],
)
def test_descriptors_that_the_manager_has_for_us_are_taken_once(environ, found):
    environ["KEPT"] = "1"
    assert passed_fds(environ, 7) == found
    assert environ == {"KEPT": "1"}, "a later image with the same pid does not take them again"


def test_a_long_start_asks_for_time(manager):
    Notifier(manager.environ).busy("reads the\njournal", 120.0)
    assert manager.told() == ["STATUS=reads the journal", "EXTEND_TIMEOUT_USEC=120000000"]
