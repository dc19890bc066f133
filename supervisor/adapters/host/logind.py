"""Learns of the host's shutdown before anything stops, and delays it for as long as logind allows.

systemd-logind announces a shutdown on the system bus (PrepareForShutdown). It waits for all holders of a delay lock, for
five seconds unless InhibitDelayMaxSec= sets more. So every worker begins to save while network, disks and other services
still run, and the journal records the host as the cause. The lock may be refused: a user other than root needs polkit.
Then, as without logind or a bus, the service manager's SIGTERM is the first notice.

jeepney (the extra `logind`) speaks D-Bus. Without it, as without a bus, no announcement arrives. If the bus goes away, or
sends data that jeepney cannot read, this ends the watch, never the daemon.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from supervisor.adapters.threads import Lasting
from supervisor.lack import is_lack

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
    """Receives the announcement of the host's shutdown and delays the shutdown until `release`."""

    def __init__(self, on_shutdown: Callable[[], None], bus: str = BUS) -> None:
        """A separate thread calls `on_shutdown`, once."""
        self._on_shutdown, self._bus = on_shutdown, bus
        self._connection: DBusConnection | None = None
        self._lock_fd: int | None = None
        self._guard = threading.Lock()
        self._ended = False  # no announcement will arrive any more
        self.announced = False  # a shutdown was announced
        self.cancelled = threading.Event()  # the announced shutdown was cancelled

    def start(self) -> None:
        """Begin to listen. Without a bus or logind no announcement ever arrives."""
        Lasting("logind", self._watch, lambda: self._ended).start()

    def _watch(self) -> None:
        try:
            from jeepney import MatchRule
            from jeepney.bus_messages import message_bus
            from jeepney.io.blocking import Proxy, open_dbus_connection
        except ImportError:
            log.info("host_shutdown_not_announced", why=_MISSING)
            self._ended = True
            return
        try:
            with open_dbus_connection(self._bus, enable_fds=True, auth_timeout=_TIMEOUT_S) as connection:
                self._connection = connection
                rule = MatchRule(type="signal", sender=_NAME, interface=_MANAGER, member=_SIGNAL)
                Proxy(message_bus, connection, timeout=_TIMEOUT_S).AddMatch(rule)
                self._take_lock(connection)
                while True:
                    self._on_message(connection.receive())
        except Exception as error:  # jeepney trusts its bus: bad data can raise any exception
            if is_lack(error):
                raise
            self._ended = True
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
        os.set_inheritable(fd, False)  # a worker that inherits the lock would delay every shutdown
        with self._guard:
            self._lock_fd = fd

    def _on_message(self, message: Message) -> None:
        from jeepney import HeaderFields, MessageType

        header = message.header
        # The bus guarantees that a broadcast signal comes from logind. Anybody may send a message to this connection alone.
        if header.message_type is not MessageType.signal or HeaderFields.destination in header.fields:
            return
        if message.body != (True,):
            if self.announced:
                self.cancelled.set()
        elif not self.announced:
            self.announced = True
            self._on_shutdown()

    def release(self) -> None:
        """All workers have saved: let the host shut down."""
        with self._guard:
            fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def stop(self) -> None:
        self.release()
        if self._connection is not None:
            with contextlib.suppress(OSError):  # this wakes the thread, which closes the connection
                self._connection.sock.shutdown(socket.SHUT_RDWR)
