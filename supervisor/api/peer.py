"""Who is at the other end of the control socket, as the kernel knows it (SO_PEERCRED, unix(7))."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

PEER_KEY: Final = "extralife.peer"
_UCRED: Final = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """Taken when the connection was made: it cannot be forged, and it does not change with a later setuid."""

    pid: int
    uid: int
    gid: int


class PeerProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which also puts the connection's `Peer` into each request's scope."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = _peer_of(transport)
        if peer is not None:
            self.app = _with_peer(self.app, peer)


def _peer_of(transport: asyncio.Transport) -> Peer | None:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    try:
        return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))
    except OSError:
        return None  # gone already


def _with_peer(app: Any, peer: Peer) -> ASGIApp:
    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER_KEY] = peer
        await app(scope, receive, send)

    return with_peer
