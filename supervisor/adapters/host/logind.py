"""The host is going down: heard of before anything is stopped, and delayed for as long as logind allows.

systemd-logind announces a shutdown on the system bus (PrepareForShutdown) and waits for whoever holds a delay lock, five
seconds unless InhibitDelayMaxSec= says more. So every worker begins to save while network, disks and everybody else are
still there, and the record says that it was the host. Without logind, without a bus, or where the lock is refused (a user
who is not root needs polkit for it), the service manager's SIGTERM is the first word, as ever.

The few messages of D-Bus that this takes are put together here: three calls and one signal, in little endian. A library
for them would be one more thing to be installed on a box that must come back by itself. What is not understood is passed
over, and a bus that goes away ends the watch, never the daemon.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

log = structlog.get_logger()

BUS: Final = "/run/dbus/system_bus_socket"
_LOGIND: Final = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_DRIVER: Final = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
_MATCH: Final = f"type='signal',interface='{_LOGIND[2]}',member='PrepareForShutdown'"
_TIMEOUT_S: Final = 5.0
_CALL, _REPLY, _ERROR, _SIGNAL = 1, 2, 3, 4
_HEADER: Final = struct.Struct("<cBBBIII")
_MOST_BYTES: Final = 1024 * 1024
_FDS: Final = 4


class BusError(Exception):
    """What the bus, or logind, has refused; or what is no bus at all."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is needed of one that came in. `fields`: 3 member, 4 error name, 5 the serial that it answers."""

    kind: int
    fields: dict[int, object]
    body: bytes


# --- the wire --------------------------------------------------------------------------------------------------------------


def _aligned(data: bytes, to: int) -> bytes:
    return data + bytes(-len(data) % to)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def call(serial: int, to: tuple[str, str, str], member: str, *args: str) -> bytes:
    """A method call whose arguments are strings."""
    body = b""
    for text in args:
        body = _aligned(body, 4) + _string(text)
    fields = b""
    for code, kind, value in ((1, "o", to[1]), (2, "s", to[2]), (3, "s", member), (6, "s", to[0])):
        fields = _aligned(fields, 8) + bytes((code, 1)) + kind.encode() + b"\0" + _string(value)
    if args:
        fields = _aligned(fields, 8) + bytes((8, 1)) + b"g\0" + bytes((len(args),)) + b"s" * len(args) + b"\0"
    return _aligned(_HEADER.pack(b"l", _CALL, 0, 1, len(body), serial, len(fields)) + fields, 8) + body


def parse(data: bytes) -> tuple[Message, int] | None:
    """The first message in the data and its length; None while it is not whole. Raises BusError for what is none."""
    if len(data) < _HEADER.size:
        return None
    order, kind, _flags, version, body_size, _serial, fields_size = _HEADER.unpack_from(data)
    if order != b"l" or version != 1 or body_size + fields_size > _MOST_BYTES:
        raise BusError("the bus sent what is no message of D-Bus")
    begin = _HEADER.size + fields_size
    begin += -begin % 8
    if len(data) < begin + body_size:
        return None
    try:
        fields = _fields(data[_HEADER.size : _HEADER.size + fields_size])
    except (struct.error, IndexError, UnicodeDecodeError):
        raise BusError("the bus sent a damaged message") from None
    return Message(kind, fields, data[begin : begin + body_size]), begin + body_size


def _fields(data: bytes) -> dict[int, object]:
    """Strings and numbers; the header has nothing else."""
    found: dict[int, object] = {}
    at = 0
    while at < len(data):
        code, size = data[at], data[at + 1]
        kind = data[at + 2 : at + 2 + size]
        at += 3 + size
        if kind == b"g":
            size = data[at]
            found[code], at = data[at + 1 : at + 1 + size].decode(), at + size + 2
        else:
            at += -at % 4
            (number,) = struct.unpack_from("<I", data, at)
            at += 4
            found[code] = number
            if kind in (b"s", b"o"):
                found[code], at = data[at : at + number].decode(), at + number + 1
        at += -at % 8
    return found


class Bus:
    """One connection to a message bus."""

    def __init__(self, path: str) -> None:
        """Raises OSError or BusError."""
        self._data, self._fds, self._serial = b"", array.array("i"), 0
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._sock.settimeout(_TIMEOUT_S)
            self._sock.connect(path)
            self._greet()
            self.ask(_DRIVER, "Hello")
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        uid = str(os.getuid()).encode().hex()
        for said, expected in ((f"\0AUTH EXTERNAL {uid}\r\n", b"OK"), ("NEGOTIATE_UNIX_FD\r\n", b"AGREE_UNIX_FD")):
            self._sock.sendall(said.encode())
            while b"\r\n" not in self._data:
                self._receive()
            answer, _, self._data = self._data.partition(b"\r\n")
            if not answer.startswith(expected):
                raise BusError(f"the bus does not take us: {answer.decode('ascii', 'replace')[:80]}")
        self._sock.sendall(b"BEGIN\r\n")

    def ask(self, to: tuple[str, str, str], member: str, *args: str) -> list[int]:
        """Call a method and wait for its answer; the descriptors that came with it. Signals meanwhile are passed over."""
        self._serial += 1
        self._sock.sendall(call(self._serial, to, member, *args))
        while True:
            answer = self.next()
            if answer.kind in (_REPLY, _ERROR) and answer.fields.get(5) == self._serial:
                break
        fds, self._fds = list(self._fds), array.array("i")
        if answer.kind == _ERROR:
            raise BusError(f"{member} is refused: {answer.fields.get(4)}")
        return fds

    def next(self, *, patient: bool = False) -> Message:
        """The next message; `patient`: however long that takes. Raises OSError or BusError."""
        while (found := parse(self._data)) is None:
            self._sock.settimeout(None if patient and not self._data else _TIMEOUT_S)
            self._receive()
        self._data = self._data[found[1] :]
        return found[0]

    def _receive(self) -> None:
        # Close-on-exec: a worker that had the lock would hold up every shutdown.
        space = socket.CMSG_SPACE(_FDS * self._fds.itemsize)
        data, ancillary, _flags, _address = self._sock.recvmsg(65536, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise BusError("the bus has gone away")
        self._data += data
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._fds.frombytes(payload[: len(payload) - len(payload) % self._fds.itemsize])

    def close(self) -> None:
        """Also what another thread waits for."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


# --- the watch -------------------------------------------------------------------------------------------------------------


class HostWatch:
    """Hears of the host's shutdown and holds it up until `release`."""

    def __init__(self, goes_down: Callable[[], None], path: str = BUS) -> None:
        """`goes_down` is called from a thread of our own, once."""
        self._goes_down, self._path = goes_down, path
        self._bus: Bus | None = None
        self._lock_fd: int | None = None
        self._guard = threading.Lock()
        self.told = False  # that it goes down
        self.cancelled = threading.Event()  # and that it does not after all

    def start(self) -> None:
        """Begin to listen; without a bus or logind nothing is ever heard."""
        threading.Thread(target=self._run, name="logind", daemon=True).start()

    def _run(self) -> None:
        try:
            bus = self._bus = Bus(self._path)
        except (OSError, BusError) as error:
            log.info("host_shutdown_not_announced", why=str(error))
            return
        try:
            bus.ask(_DRIVER, "AddMatch", _MATCH)
            self._take_lock(bus)
            while True:
                self._hear(bus.next(patient=True))
        except (OSError, BusError) as error:
            log.info("host_shutdown_no_longer_announced", why=str(error))
        finally:
            bus.close()

    def _take_lock(self, bus: Bus) -> None:
        try:
            fds = bus.ask(_LOGIND, "Inhibit", "shutdown", "extralife", "every worker saves and leaves", "delay")
        except (OSError, BusError) as error:
            log.info("host_shutdown_not_delayed", why=str(error))
            return
        with self._guard:
            self._lock_fd = fds[0] if fds else None

    def _hear(self, message: Message) -> None:
        if message.kind != _SIGNAL or message.fields.get(3) != "PrepareForShutdown" or len(message.body) < 4:
            return
        if not struct.unpack_from("<I", message.body)[0]:
            if self.told:
                self.cancelled.set()
        elif not self.told:
            self.told = True
            self._goes_down()

    def release(self) -> None:
        """Everybody has saved: the host may go on."""
        with self._guard:
            fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def stop(self) -> None:
        self.release()
        if self._bus is not None:
            self._bus.close()
