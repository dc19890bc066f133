"""The host's shutdown is heard of over a real message bus, and held up by a lock that is given back."""

import array
import os
import random
import select
import socket
import struct
import subprocess
import threading

import pytest
from attempts_kit import eventually
from tools import needs

from supervisor.adapters.host.logind import Bus, BusError, HostWatch, call, parse

LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
"""


@pytest.fixture
def bus(tmp_path):
    """A message bus of our own, with nobody on it."""
    needs("dbus-daemon")
    needs("dbus-send")
    path, config = tmp_path / "bus", tmp_path / "bus.conf"
    config.write_text(CONFIG.format(path=path))
    command = ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout.readline()  # it listens
        yield str(path)
        daemon.kill()


def announce(path, *, going):
    said = f"boolean:{str(going).lower()}"
    member = f"{LOGIND[2]}.PrepareForShutdown"
    command = ["dbus-send", f"--bus=unix:path={path}", "--type=signal", LOGIND[1], member, said]
    subprocess.run(command, check=True, timeout=30)


def test_the_announcement_is_heard_once_and_its_withdrawal_too(bus):
    heard = []
    watch = HostWatch(lambda: heard.append(True), bus)
    watch.start()
    # Nobody answers for logind here, so there is no lock; when the watch has begun to listen is not told.
    assert eventually(lambda: announce(bus, going=True) or heard)
    announce(bus, going=True)
    assert not watch.cancelled.is_set()
    announce(bus, going=False)
    assert watch.cancelled.wait(30)
    assert heard == [True]
    watch.stop()


def test_a_withdrawal_without_an_announcement_is_nothing(bus):
    watch = HostWatch(lambda: None, bus)
    watch.start()
    announce(bus, going=False)
    assert eventually(lambda: announce(bus, going=True) or watch.told)
    assert not watch.cancelled.is_set()
    watch.stop()


def test_what_a_real_bus_refuses_is_said(bus):
    connected = Bus(bus)
    with pytest.raises(BusError, match=r"Inhibit is refused: org.freedesktop.DBus.Error.(ServiceUnknown|NameHasNoOwner)"):
        connected.ask(LOGIND, "Inhibit", "shutdown", "a", "b", "delay")
    connected.close()


@pytest.mark.parametrize("path", ["/nowhere/bus", "{tmp}/file"])
def test_without_a_bus_nothing_is_heard_and_nothing_breaks(tmp_path, path):
    (tmp_path / "file").write_text("")
    watch = HostWatch(lambda: None, path.format(tmp=tmp_path))
    watch.start()
    watch.release()
    watch.stop()
    assert not watch.told


# --- a lock: logind's side, as far as it matters -----------------------------------------------------------------------------


def answer(serial, signature=b"h"):
    fields = bytes((5, 1)) + b"u\0" + struct.pack("<I", serial) + bytes((8, 1)) + b"g\0" + bytes((1,)) + signature + b"\0"
    head = struct.pack("<cBBBIII", b"l", 2, 1, 1, 4, 7, len(fields)) + fields
    return head + bytes(-len(head) % 8) + bytes(4)


class Logind(threading.Thread):
    """A bus and logind in one, for one client: answers every call, Inhibit with a descriptor."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.held, self._given = os.pipe()  # the client's end closes: `held` is at its end
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen()
        self.calls = []
        self.start()

    def run(self):
        self.client, _ = self.listener.accept()
        for said in (b"OK 1234\r\n", b"AGREE_UNIX_FD\r\n"):
            self.client.recv(1000)
            self.client.sendall(said)
        data = b""
        while True:
            data += self.client.recv(65536)
            data = data.removeprefix(b"BEGIN\r\n")
            while (found := parse(data)) is not None:
                message, size = found
                serial = struct.unpack_from("<I", data, 8)[0]
                data = data[size:]
                self.calls.append(message.fields[3])
                if message.fields[3] == "Inhibit":
                    fds = array.array("i", [self._given])
                    self.client.sendmsg([answer(serial)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
                    os.close(self._given)
                else:
                    self.client.sendall(answer(serial))

    def is_released(self):
        return bool(select.select([self.held], [], [], 0)[0])


def test_the_lock_is_held_until_it_is_released(tmp_path):
    logind = Logind(str(tmp_path / "bus"))
    watch = HostWatch(lambda: None, str(tmp_path / "bus"))
    watch.start()
    assert eventually(lambda: watch._lock_fd is not None)
    assert logind.calls == ["Hello", "AddMatch", "Inhibit"]
    assert not os.get_inheritable(watch._lock_fd), "a worker that had it would hold up every shutdown"
    assert not logind.is_released()
    watch.release()
    assert eventually(logind.is_released)
    watch.release()
    watch.stop()


# --- the wire ------------------------------------------------------------------------------------------------------------------


def test_a_message_is_whole_or_awaited():
    data = call(3, LOGIND, "Inhibit", "shutdown", "me", "why", "delay")
    for cut in range(len(data)):
        assert parse(data[:cut]) is None
    message, size = parse(data + b"more")
    assert size == len(data)
    assert (message.kind, message.fields[3], message.fields[6], message.fields[8]) == (1, "Inhibit", LOGIND[0], "ssss")


def test_garbage_is_refused_and_never_crashes():
    chance = random.Random(7)
    whole = call(3, LOGIND, "Inhibit", "shutdown", "me", "why", "delay")
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            parse(bytes(data))
        except BusError:
            continue
    with pytest.raises(BusError, match="no message"):
        parse(b"HTTP/1.1 400 Bad Request")
