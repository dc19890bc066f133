"""`dashboard`: access to the dashboard, from this box and from a laptop.

Its forwarder leads from a port of the loopback device to the control socket, for the one user who started it.

The daemon opens no port, and the kernel still reports to it who asks: the user who runs this forwarder. Every user of the
box can connect to a port of 127.0.0.1. So a connection must meet three conditions before any byte is forwarded:

* The other end belongs to the same user (`adapters/tcp_owner.py`). A worker or browser of another user is refused even with
  the right cookie, because browsers send the cookies of one port to all ports of a host.
* Its request has the session's cookie. A browser gets the cookie once, for the token in the printed address.
* It carries one request. Later requests on the same connection are cut off, so they cannot use the cookie of the first one.

The forwarder passes on the answer as it arrives, streams too. The daemon does all other checks (`api/same_site.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import h11

from supervisor.ctl import text
from supervisor.ctl.outcome import OK, USAGE, DaemonRefused, Failed
from supervisor.ctl.session import Session, parse_int, parse_options
from supervisor.features.dashboard.adapters.tcp_owner import owner
from supervisor.users import name_of

_LAPTOP_PORT: Final = 8700
LOOPBACK: Final = "127.0.0.1"
MOST_CONNECTIONS: Final = 100
HEAD_S: Final = 10.0
UNREAD_S: Final = 60.0
_MOST_HEAD_BYTES: Final = 16 * 1024
_LOOK_S: Final = 1.0
_PIECE_BYTES: Final = 64 * 1024
_LOGIN: Final = "/login/"
_TEXT: Final = "text/plain; charset=utf-8"
_USED: Final = "this address was used already, or is not of this run: run `extralifectl dashboard` again\n"
_NO_COOKIE: Final = "open the address that `extralifectl dashboard` has printed\n"
_NOT_YOURS: Final = "this port is for the user who runs `extralifectl dashboard`\n"
# Not a redirect: a link clicked in a web terminal comes from another site, and so does the request for `/` after a redirect.
# SameSite=Strict would then withhold the cookie. A request that this page makes comes from this page.
_WELCOME: Final = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><a href="/">extralife</a>\n'


def dashboard(session: Session, args: list[str]) -> int:
    """`dashboard [--port N]`.

    Serve the dashboard on a port of this box that only you can use, until Ctrl-C. Prints its address, which is
    good once, and the ssh line for a laptop.
    """
    names, options = parse_options(args, valued=("--port",))
    if names:
        raise Failed("Error: dashboard takes no names", USAGE)
    port = parse_int(options.get("--port", "0"), "--port")
    if session.client.url.startswith(("http://", "https://")):  # there is no socket that a port could lead to
        raise Failed(f"Error: this daemon is served over TCP already: open {session.client.url} in a browser")
    try:
        session.client.read("/healthz")
    except DaemonRefused as unwell:
        session.warn(str(unwell))  # the dashboard shows it too
    with _listening(port) as sock:
        return _serve(session, sock)


def _listening(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(64)
    except (OSError, OverflowError) as error:
        sock.close()
        why = error.strerror if isinstance(error, OSError) else "there are no such ports"
        raise Failed(f"Error: port {port} of 127.0.0.1 cannot be used: {why}; choose another with --port") from None
    return sock


def _serve(session: Session, sock: socket.socket) -> int:
    try:
        owner(sock.getsockname(), sock.getsockname())
    except OSError as error:
        raise Failed(
            f"Error: {error.filename} cannot be read, so nobody could tell whose connection it is; use from a laptop:\n"
            f"  {_ssh_line(session.client.path)}"
        ) from None
    forwarder = Forwarder(session.client.path, sock)
    try:
        session.say(forwarder.address)
        session.say(
            f"  The address is good once, for a browser of {name_of(os.geteuid(), 'uid {}')} on this box. Ctrl-C ends it.\n"
        )
        session.say(f"From a laptop, with the address that you use for ssh:\n  {_ssh_line(session.client.path)}")
        session.say(f"  then open http://localhost:{_LAPTOP_PORT}")
        sys.stdout.flush()
        asyncio.run(forwarder.serve(lambda: text.pause_while_read(0.0)))
    except KeyboardInterrupt:
        session.say()
    return OK


def _ssh_line(path: str) -> str:
    """The command for an ssh tunnel to the control socket. It opens a port on the laptop only."""
    return f"ssh -L {_LAPTOP_PORT}:{shlex.quote(path)} {name_of(os.geteuid(), 'uid {}')}@{socket.gethostname()}"


# --- the forwarder ------------------------------------------------------------------------------------------------------


class Stop(Exception):
    """The forwarder's own answer, in place of the daemon's."""

    def __init__(self, status: int, body: str, media_type: str = _TEXT, *headers: tuple[str, str]) -> None:
        super().__init__(body)
        self.status, self.body, self.media_type, self.headers = status, body, media_type, headers


class Forwarder:
    """One run: a port, a token for one browser, and a session."""

    def __init__(self, path: str, sock: socket.socket) -> None:
        """`path` is the control socket, `sock` listens on the loopback device."""
        self._path, self._sock = path, sock
        self.port: int = sock.getsockname()[1]
        self._token, self._session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._cookie = f"extralife-{self.port}"  # a browser has one cookie jar for all ports of a host
        self._unused = True
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The login address, which works once."""
        return f"http://{LOOPBACK}:{self.port}{_LOGIN}{self._token}"

    async def serve(self, look: Callable[[], None]) -> None:
        """Serve until cancelled. Call `look` every second; its exception also ends the serving."""
        server = await asyncio.start_server(self._connected, sock=self._sock, limit=_PIECE_BYTES)
        try:
            while True:
                look()
                await asyncio.sleep(_LOOK_S)
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- one connection --------------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if len(self._tasks) >= MOST_CONNECTIONS or task is None:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._one(reader, writer)
        except Stop as stop:
            with contextlib.suppress(OSError):
                await _say(writer, stop)
        except (OSError, TimeoutError, h11.RemoteProtocolError, EOFError):
            pass  # the client has disconnected, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # `serve` has cancelled it, and asyncio would log an error for a cancelled handler
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if owner(writer.get_extra_info("sockname"), writer.get_extra_info("peername")) != os.geteuid():
            raise Stop(403, _NOT_YOURS)
        async with asyncio.timeout(HEAD_S):
            request, rest = await _head(reader)
        self._admit(request)
        try:
            from_daemon, to_daemon = await asyncio.open_unix_connection(self._path, limit=_PIECE_BYTES)
        except OSError as error:
            raise Stop(503, f"extralife does not answer: {self._path}: {error.strerror or error}\n") from None
        try:
            to_daemon.write(_passed_on(request) + rest)
            await _either(_pump(reader, to_daemon), _pump(from_daemon, writer))
        finally:
            to_daemon.close()

    def _admit(self, request: h11.Request) -> None:
        """Raises Stop unless the request belongs to the session."""
        cookies = [value for name, value in request.headers if name == b"cookie"]
        path = request.target.decode("latin-1")
        if _same(_cookie(cookies, self._cookie), self._session):
            if path.startswith(_LOGIN):
                raise Stop(200, _WELCOME, "text/html; charset=utf-8")
            return
        if not path.startswith(_LOGIN):
            raise Stop(403, _NO_COOKIE)
        if request.method != b"GET" or not _same(path.removeprefix(_LOGIN), self._token) or not self._unused:
            raise Stop(403, _USED)
        self._unused = False
        given = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
        raise Stop(200, _WELCOME, "text/html; charset=utf-8", ("Set-Cookie", given))


async def _head(reader: asyncio.StreamReader) -> tuple[h11.Request, bytes]:
    """The head of the first request, and the part of its body received so far. Raises h11.RemoteProtocolError, EOFError."""
    parser = h11.Connection(h11.SERVER, _MOST_HEAD_BYTES)
    while not isinstance(event := parser.next_event(), h11.Request):
        if event is not h11.NEED_DATA:
            raise EOFError
        parser.receive_data(await reader.read(_PIECE_BYTES))
    return event, parser.trailing_data[0]


def _passed_on(request: h11.Request) -> bytes:
    """The head for the daemon: without cookies, and with `connection: close`, because no other request follows."""
    dropped = {b"cookie", b"connection", b"keep-alive", b"proxy-connection", b"upgrade"}
    lines = [b"%b %b HTTP/1.1" % (request.method, request.target)]
    lines += [b"%b: %b" % (name, value) for name, value in request.headers if name not in dropped]
    return b"\r\n".join([*lines, b"connection: close", b"", b""])


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Forward each piece at once. A slow sink slows down its source; TimeoutError after UNREAD_S if it reads nothing."""
    while piece := await source.read(_PIECE_BYTES):
        sink.write(piece)
        async with asyncio.timeout(UNREAD_S):
            await sink.drain()


async def _either(up: Awaitable[None], down: Awaitable[None]) -> None:
    """Run both until one ends: the answer is complete, or the client has disconnected."""
    tasks = [asyncio.ensure_future(up), asyncio.ensure_future(down)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _say(writer: asyncio.StreamWriter, stop: Stop) -> None:
    body = stop.body.encode()
    head = {
        "Content-Type": stop.media_type, "Content-Length": str(len(body)), "Connection": "close",
        "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    }  # fmt: skip
    lines = [f"HTTP/1.1 {stop.status} {'OK' if stop.status == 200 else 'Refused'}"]
    lines += [f"{name}: {value}" for name, value in (*head.items(), *stop.headers)]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()


def _cookie(headers: list[bytes], name: str) -> str:
    for pair in b"; ".join(headers).decode("latin-1").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode(), wanted.encode())
