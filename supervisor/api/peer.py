"""Identifies the client at the other end of the control socket, by the kernel's credentials (SO_PEERCRED, unix(7))."""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import struct
import termios
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.records import Record
from supervisor.users import name_of

PEER_KEY: Final = "extralife.peer"
BY_KEY: Final = "extralife.by"  # name of the client that sent the right password
_ADDRESS_KEY: Final = "extralife.address"
_TRANSPORT_KEY: Final = "extralife.transport"
_UCRED: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")


class Peer(Record):
    """A client's credentials at connection time. They cannot be forged, and a later setuid does not change them."""

    pid: int
    uid: int
    gid: int


def _peer_of(transport: asyncio.Transport) -> Peer | None:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    try:
        return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))
    except OSError:
        return None  # the client has disconnected already


def tcp_address(transport: asyncio.Transport) -> str | None:
    """The client's address; None for a connection of the control socket."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_UNIX:
        return None
    name = transport.get_extra_info("peername")
    return str(name[0]).removeprefix("::ffff:") if isinstance(name, tuple) else "an unknown address"


def with_peer(app: Any, transport: asyncio.Transport) -> ASGIApp:
    """`app`, whose requests have the client of their connection in their scope."""
    peer, address = _peer_of(transport), tcp_address(transport)

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER_KEY], scope[_TRANSPORT_KEY], scope[_ADDRESS_KEY] = peer, transport, address
        await app(scope, receive, send)

    return known


def address_of(scope: Scope) -> str | None:
    """The client's address; None for a connection of the control socket, whose client the kernel identifies."""
    return scope.get(_ADDRESS_KEY)


def caller(scope: Scope) -> tuple[str, int | None]:
    """The client as (name for people, uid), both from the kernel. Over TCP, the user of the password, without a uid."""
    if BY_KEY in scope:
        return scope[BY_KEY], None
    peer: Peer | None = scope.get(PEER_KEY)
    if peer is None:
        return "operator", None
    return name_of(peer.uid, "uid {}"), peer.uid


def disconnected(scope: Scope) -> bool:
    """Whether the client has closed the connection. The kernel knows it even while the server does not read."""
    sock = _socket_of(scope)
    if sock is None:
        return False
    try:
        look = select.poll()
        look.register(sock.fileno(), select.POLLHUP)
        return bool(look.poll(0))
    except (OSError, ValueError):
        return True  # closed on this side already


def unread_bytes(scope: Scope) -> int:
    """Bytes of the answer, in this process and in the kernel, that the client has not read yet."""
    transport, sock = scope.get(_TRANSPORT_KEY), _socket_of(scope)
    if transport is None or sock is None:
        return 0
    waiting: int = transport.get_write_buffer_size()
    try:
        (unsent,) = _INT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
    except (OSError, ValueError):  # closed on this side already
        return waiting
    return waiting + int(unsent)


def abandon(scope: Scope) -> None:
    """Close the connection, and discard the unread part of the answer."""
    transport = scope.get(_TRANSPORT_KEY)
    if transport is not None:
        transport.abort()


def _socket_of(scope: Scope) -> Any:
    transport = scope.get(_TRANSPORT_KEY)
    return None if transport is None else transport.get_extra_info("socket")
