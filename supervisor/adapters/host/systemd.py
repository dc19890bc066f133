"""Talks to the service manager: sd_notify(3) and its watchdog. Without NOTIFY_SOCKET every call is a no-op.

systemd-python sends the messages where it is installed; otherwise a plain datagram does the same. Without this fallback, a
Type=notify service that lacks the library would never become ready and would be restarted forever.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Final

_FIRST_FD: Final = 3  # SD_LISTEN_FDS_START
_PATIENCE_S: Final = 2.0  # a service manager that does not read must not block the deciding thread


def sender(environ: Mapping[str, str]) -> Callable[[str], None]:
    """A function that sends one message to the service manager."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return lambda _text: None
    try:
        from systemd import daemon
    except ImportError:
        return lambda text: _send(address, text)
    return lambda text: _notify(daemon.notify, address, text)


def _notify(notify: Callable[[str], bool], address: str, text: str) -> None:
    """Send with the library if it would not block: it blocks without a limit, and holds the GIL meanwhile."""
    try:
        sent = _has_room(address) and notify(text)
    except OSError:
        sent = False
    if not sent:
        _send(address, text)


def _has_room(address: str) -> bool:
    """Whether a datagram would be accepted at once: queues hold some ten of them until the receiver reads."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(_path(address))
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        return bool(poller.poll(0))


def _send(address: str, text: str, patience_s: float = _PATIENCE_S) -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(patience_s)
        sock.sendto(text.encode(), _path(address))


def _path(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address


class Notifier:
    """Sends READY, STATUS, WATCHDOG, RELOADING, STOPPING, and descriptors that outlive this process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._send, self._address = sender(environ), environ.get("NOTIFY_SOCKET", "")
        self.watchdog_period_s = watchdog_period_s(environ, os.getpid())

    @property
    def has_service_manager(self) -> bool:
        """Whether there is a service manager."""
        return bool(self._address)

    def busy(self, status: str, extend_s: float) -> None:
        """The start takes longer: ask for up to `extend_s` more."""
        self._send(f"STATUS={_line(status)}\nEXTEND_TIMEOUT_USEC={int(extend_s * 1e6)}")

    def store_fd(self, fd: int, name: str) -> None:
        """Let the service manager hold a descriptor: the next daemon gets it back, however this one ends."""
        self._with_descriptor(f"FDSTORE=1\nFDNAME={name}", fd)

    def remove_fd(self, name: str) -> None:
        """Remove a descriptor from the store: the next daemon must not get it."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def _with_descriptor(self, text: str, fd: int) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(_PATIENCE_S)
            sock.connect(_path(self._address))
            socket.send_fds(sock, [text.encode()], [fd])

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={_line(text)}")

    def watchdog(self) -> None:
        """Only the deciding thread may call this, after a completed turn.

        It does not wait. If the queue is full of earlier pings, one more adds nothing. A service manager that does not read
        at the moment must not stop the healing (libsystemd's own call would wait forever).
        """
        if self.watchdog_period_s is not None and self._address:
            _send(self._address, "WATCHDOG=1", patience_s=0.0)

    def reloading(self) -> None:
        """Call before the re-execution. READY=1 of the new image ends it (Type=notify-reload needs the time)."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def stopping(self, extend_s: float) -> None:
        """Announce an orderly end that may take `extend_s`: workers are writing checkpoints."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(extend_s * 1e6)}")


def passed_fds(environ: MutableMapping[str, str], pid: int) -> dict[str, int]:
    """The descriptors that the service manager holds for this process, by name (sd_listen_fds(3)).

    They come from its store or from a socket unit. The variables are removed: a later image of this process has the same
    pid, and must not take the descriptors again.
    """
    values = [environ.pop(f"LISTEN_{name}", "") for name in ("PID", "FDS", "FDNAMES")]
    if values[0] != str(pid) or not values[1].isdigit():
        return {}
    names = values[2].split(":")
    return {name: _FIRST_FD + number for number, name in zip(range(int(values[1])), names, strict=False)}


def _line(text: str) -> str:
    """The text without newlines: a newline would begin another assignment."""
    return " ".join(text.split())


def watchdog_period_s(environ: Mapping[str, str], pid: int) -> float | None:
    """The watchdog period in seconds. None if systemd wants no pings, or wants them from another process."""
    usec, meant = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or (meant and meant != str(pid)):
        return None
    return int(usec) / 1e6
