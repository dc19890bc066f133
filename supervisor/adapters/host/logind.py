"""The host is going down: heard of before anything is stopped, and delayed for as long as logind allows.

systemd-logind announces a shutdown on the system bus (PrepareForShutdown) and waits for whoever holds a delay lock, five
seconds unless InhibitDelayMaxSec= says more. So every worker begins to save while network, disks and everybody else are
still there, and the record says that it was the host. Without logind, without a bus, or where the lock is refused (a user
who is not root needs polkit for it), the service manager's SIGTERM is the first word, as ever.

jeepney speaks D-Bus (the extra `logind`). Without it, as without a bus, nothing is heard. A bus that goes away, or that
sends what jeepney cannot read, ends the watch, never the daemon.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from jeepney import Message
    from jeepney.io.blocking import DBusConnection

log = structlog.get_logger()

BUS: Final = "unix:path=/run/dbus/system_bus_socket"
_NAME: Final = "org.freedesktop.login1"
_PATH, _MANAGER, _SIGNAL = "/org/freedesktop/login1", f"{_NAME}.Manager", "PrepareForShutdown"
_MISSING: Final = "the package jeepney is not installed: pip install 'extralife[logind]' into extralife's environment"
_TIMEOUT_S: Final = 5.0


class HostWatch:
    """Hears of the host's shutdown and holds it up until `release`."""

    def __init__(self, goes_down: Callable[[], None], bus: str = BUS) -> None:
        """`goes_down` is called from a thread of our own, once."""
        self._goes_down, self._bus = goes_down, bus
        self._connection: DBusConnection | None = None
        self._lock_fd: int | None = None
        self._guard = threading.Lock()
        self.told = False  # that it goes down
        self.cancelled = threading.Event()  # and that it does not after all

    def start(self) -> None:
        """Begin to listen; without a bus or logind nothing is ever heard."""
        threading.Thread(target=self._run, name="logind", daemon=True).start()

    def _run(self) -> None:
        try:
            from jeepney import MatchRule
            from jeepney.bus_messages import message_bus
            from jeepney.io.blocking import Proxy, open_dbus_connection
        except ImportError:
            log.info("host_shutdown_not_announced", why=_MISSING)
            return
        try:
            with open_dbus_connection(self._bus, enable_fds=True, auth_timeout=_TIMEOUT_S) as connection:
                self._connection = connection
                rule = MatchRule(type="signal", sender=_NAME, interface=_MANAGER, member=_SIGNAL)
                Proxy(message_bus, connection, timeout=_TIMEOUT_S).AddMatch(rule)
                self._take_lock(connection)
                while True:
                    self._hear(connection.receive())
        except Exception as error:  # noqa: BLE001  jeepney trusts its bus: what it cannot read fails in any way
            event = "host_shutdown_not_announced" if self._connection is None else "host_shutdown_no_longer_announced"
            log.info(event, why=f"{type(error).__name__}: {error}")

    def _take_lock(self, connection: DBusConnection) -> None:
        from jeepney import DBusAddress, MessageType, new_method_call

        logind = DBusAddress(_PATH, _NAME, _MANAGER)
        words = ("shutdown", "extralife", "every worker saves and leaves", "delay")
        answer = connection.send_and_get_reply(new_method_call(logind, "Inhibit", "ssss", words), timeout=_TIMEOUT_S)
        if answer.header.message_type is MessageType.error:
            log.info("host_shutdown_not_delayed", why=str(answer.body))
            return
        fd = answer.body[0].to_raw_fd()
        os.set_inheritable(fd, False)  # a worker that had the lock would hold up every shutdown
        with self._guard:
            self._lock_fd = fd

    def _hear(self, message: Message) -> None:
        from jeepney import HeaderFields, MessageType

        header = message.header
        # The bus sees to it that a signal to all is logind's own. Anybody may send a message to us alone.
        if header.message_type is not MessageType.signal or HeaderFields.destination in header.fields:
            return
        if message.body != (True,):
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
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it wakes the thread, which closes it
                self._connection.sock.shutdown(socket.SHUT_RDWR)
