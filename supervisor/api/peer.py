"""Who is at the other end of the control socket, as the kernel knows it (SO_PEERCRED, unix(7))."""

from __future__ import annotations

import asyncio
import pwd
import select
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

PEER_KEY: Final = "extralife.peer"
_SOCKET_KEY: Final = "extralife.socket"
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
            self.app = _with_peer(self.app, peer, transport.get_extra_info("socket"))


def _peer_of(transport: asyncio.Transport) -> Peer | None:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    try:
        return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))
    except OSError:
        return None  # gone already


def _with_peer(app: Any, peer: Peer, sock: Any) -> ASGIApp:
    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER_KEY], scope[_SOCKET_KEY] = peer, sock
        await app(scope, receive, send)

    return with_peer


def who(scope: Scope) -> tuple[str, int | None]:
    """Who asks, by the kernel's word, as a name for people and as a uid."""
    peer: Peer | None = scope.get(PEER_KEY)
    if peer is None:
        return "operator", None
    try:
        return pwd.getpwuid(peer.uid).pw_name, peer.uid
    except KeyError:
        return f"uid {peer.uid}", peer.uid


def hung_up(scope: Scope) -> bool:
    """Has the client closed its end altogether? The kernel knows, also while the server does not read."""
    sock = scope.get(_SOCKET_KEY)
    if sock is None:
        return False
    try:
        look = select.poll()
        look.register(sock.fileno(), select.POLLHUP)
        return bool(look.poll(0))
    except (OSError, ValueError):
        return True  # closed on this side already
