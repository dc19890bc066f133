"""Talks to the service manager: sd_notify(3) and its watchdog. Without NOTIFY_SOCKET every call is a no-op.

systemd-python sends the messages where it is installed; otherwise a plain datagram does the same. Without this fallback, a
Type=notify service that lacks the library would never become ready and would be restarted forever.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from typing import Final

_PATIENCE_S: Final = 2  # a service manager that does not read must not block the deciding thread


class Notifier:
    """Sends READY, STATUS, WATCHDOG, RELOADING, STOPPING, and descriptors that outlive this process.

    Its socket is opened once: a daemon that lacks descriptors for a minute must not look like one that hangs. Each message
    has the address, so the next one reaches a service manager that has begun anew.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises OSError for lack of descriptors or memory."""
        address = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + address[1:] if address.startswith("@") else address
        self.has_service_manager = bool(address)
        self._sock: socket.socket | None = None
        if address:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            weakref.finalize(self, self._sock.close)
            # The kernel's own limit. With Python's, MSG_DONTWAIT would wait too, and a full queue would be tried again.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _PATIENCE_S, 0))
        self._library = _library() if address else None
        self.watchdog_period_s = watchdog_period_s(environ, os.getpid())

    def busy(self, status: str, extend_s: float) -> None:
        """The start takes longer: ask for up to `extend_s` more."""
        self._send(f"STATUS={_line(status)}\nEXTEND_TIMEOUT_USEC={int(extend_s * 1e6)}")

    def store_fd(self, fd: int, name: str) -> None:
        """Let the service manager hold a descriptor: the next daemon gets it back, however this one ends."""
        self._send_own(f"FDSTORE=1\nFDNAME={name}", fd=fd)

    def remove_fd(self, name: str) -> None:
        """Remove a descriptor from the store: the next daemon must not get it."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={_line(text)}")

    def watchdog(self) -> None:
        """Only the deciding thread may call this, after a completed turn.

        It does not wait. If the queue is full of earlier pings, one more adds nothing. A service manager that does not read
        at the moment must not stop the healing (libsystemd's own call would wait forever).
        """
        if self.watchdog_period_s is not None:
            self._send_own("WATCHDOG=1", socket.MSG_DONTWAIT)

    def reloading(self) -> None:
        """Call before the re-execution. READY=1 of the new image ends it (Type=notify-reload needs the time)."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def stopping(self, extend_s: float) -> None:
        """Announce an orderly end that may take `extend_s`: workers are writing checkpoints."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(extend_s * 1e6)}")

    def _send(self, text: str) -> None:
        """Send with the library if it would not block: it blocks without a limit, and holds the GIL meanwhile."""
        sent = False
        if self._library is not None:
            with contextlib.suppress(OSError):
                sent = self._has_room() and self._library(text)
        if not sent:
            self._send_own(text)

    def _has_room(self) -> bool:
        """Whether a datagram would be accepted at once: queues hold some ten of them until the receiver reads."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(self._path)
            poller = select.poll()
            poller.register(sock, select.POLLOUT)
            return bool(poller.poll(0))

    def _send_own(self, text: str, flags: int = 0, fd: int | None = None) -> None:
        if self._sock is not None:
            rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))]
            with contextlib.suppress(OSError):
                self._sock.sendmsg([text.encode()], rights, flags, self._path)


def _library() -> Callable[[str], bool] | None:
    try:
        from systemd import daemon
    except ImportError:
        return None
    notify: Callable[[str], bool] = daemon.notify
    return notify


def passed_fds(environ: MutableMapping[str, str], pid: int) -> dict[str, int]:
    """The descriptors that the service manager holds for this process, by name (sd_listen_fds(3)).

    They come from its store or from a socket unit. The variables are removed: a later image of this process has the same
    pid, and must not take the descriptors again.
    """
    values = [environ.pop(f"LISTEN_{name}", "") for name in ("PID", "FDS", "FDNAMES")]
    if values[0] != str(pid) or not values[1].isdigit():
        return {}
    names = values[2].split(":")
    return dict(zip(names, range(3, 3 + int(values[1])), strict=False))  # SD_LISTEN_FDS_START is 3


def _line(text: str) -> str:
    """The text without newlines: a newline would begin another assignment."""
    return " ".join(text.split())


def watchdog_period_s(environ: Mapping[str, str], pid: int) -> float | None:
    """The watchdog period in seconds. None if systemd wants no pings, or wants them from another process."""
    usec, meant = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or (meant and meant != str(pid)):
        return None
    return int(usec) / 1e6
