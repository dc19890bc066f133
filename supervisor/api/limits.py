"""Limits for clients of the control socket: time, connections, memory. A client beyond a limit is disconnected.

    the whole head of a request    10 s and 16 KiB, counted from the connection or from its first byte
    the whole body of a request    20 s and 64 KiB (`app.py` and `rpc/http.py` check the size)
    an answer that is not read     30 s without a byte read
    connections                    384; the next one replaces the one that has been idle longest
    connections over TCP           128 of these 384; the next one replaces the longest idle TCP connection
    answers that are not read      64 MiB over all connections; requests of new connections are answered 503

A connection is idle while it serves no request: it has sent nothing, or half a head (slowloris), or it waits between two
requests. If the server refused new connections instead, 384 sleeping clients could keep `status` from answering. A new
connection is answered 503 only when all 384 are being served. Up to `QUEUE` (`listener.py`) more connections wait in the
kernel.

If a request's body is still arriving when its answer is complete, the connection is closed. `rest.py` has waited for the
body before; reading on would let one client send forever.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from supervisor.api.peer import tcp_address, with_peer

HEAD_S: Final = 10.0
BODY_S: Final = 20.0
UNREAD_S: Final = 30.0
MOST_HEAD_BYTES: Final = 16 * 1024
MOST_BODY_BYTES: Final = 64 * 1024
MOST_CONNECTIONS: Final = 384
MOST_OVER_TCP: Final = 128
MOST_UNREAD_BYTES: Final = 64 * 2**20
# Per loop turn. An answer takes several turns, and connections that are accepted meanwhile must not count as idle.
ACCEPTED_AT_ONCE: Final = 16

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 45\r\n\r\n"
    b'{"error": "too many connections: try again"}\n'
)

# States in which no byte of the next request has arrived. Empty lines before a request are ignored (RFC 9112, 2.2):
# Supervisor's client ends each GET with one line end too many, and h11 rejects it once the answer has said
# `connection: close`.
_BETWEEN: Final = frozenset({h11.IDLE, h11.DONE, h11.MUST_CLOSE})


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with these limits. All methods run in the server's own event loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase = ""
        self._since_s = self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._over_tcp = False

    # --- time --------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state in _BETWEEN and not self.conn.trailing_data[0]:
            data = data.lstrip(b"\r\n")
        if data:
            super().data_received(data)
            self._follow()

    def handle_events(self) -> None:
        try:
            super().handle_events()
        except h11.LocalProtocolError:  # garbage after a request that is being answered: it gets no answer
            self.transport.abort()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        super().on_response_complete()
        if self.idle:
            self._enter("head" if self.conn.trailing_data[0] else "between")  # uvicorn closes connections that stay idle
        self._watch_unread()

    def _follow(self) -> None:
        """Each part of a request has its own deadline. Further bytes of the same part do not extend it."""
        phase = "head" if self.idle else "body" if self.cycle.more_body else "serve"
        if phase != self._phase:
            self._enter(phase)

    def _enter(self, phase: str) -> None:
        self._phase, self._since_s = phase, self.loop.time()
        if self._deadline is not None:
            self._deadline.cancel()
        allowed_s = {"head": HEAD_S, "body": BODY_S}.get(phase)
        self._deadline = None if allowed_s is None else self.loop.call_later(allowed_s, self.transport.abort)

    @property
    def idle(self) -> bool:
        """No request is being served."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    # --- unread answers ----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def _watch_unread(self, before: int | None = None) -> None:
        """Disconnect a client that has read none of its waiting bytes since the last check."""
        size = self._unread_bytes()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if before is not None and size >= before:
            self.transport.abort()
        elif size:
            self._unread = self.loop.call_later(UNREAD_S, self._watch_unread, size)

    def _unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    # --- connections -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app = with_peer(self.app, transport)
        self._over_tcp = tcp_address(transport) is not None
        if not self._has_room():
            self.connections.discard(self)  # else the next newcomer would take its place as that of an idle connection
            transport.write(_FULL)
            transport.close()
            return
        if sum(other._unread_bytes() for other in self.connections) > MOST_UNREAD_BYTES:  # type: ignore[union-attr]
            self.app = service_unavailable
        self._follow()

    def _has_room(self) -> bool:
        """Whether this connection can be served. If necessary, this closes an idle one."""
        all_of_us = [other for other in self.connections if isinstance(other, BoundedProtocol)]
        over_tcp = [other for other in all_of_us if other._over_tcp]
        if self._over_tcp and len(over_tcp) > MOST_OVER_TCP:
            return self._make_room(over_tcp)
        return len(all_of_us) <= MOST_CONNECTIONS or self._make_room(all_of_us)

    def _make_room(self, among: list[BoundedProtocol]) -> bool:
        """Close the longest idle connection; False if there is none."""
        idle = [other for other in among if other is not self and other.idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda other: other._since_s)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
