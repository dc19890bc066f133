"""The thread that serves the control socket (`listener.py`): uvicorn's HTTP on AF_UNIX, and on TCP if [http] says so.

uvicorn's own server wakes ten times a second, and disconnects clients at its end whose request it has not read yet.

Its libraries are a fifth of the daemon's imports, and no training needs them. So they are imported last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import structlog
import uvicorn
from uvicorn.server import ServerState

from supervisor.adapters.threads import Lasting
from supervisor.api.app import Api
from supervisor.api.door import PasswordCheck
from supervisor.api.limits import ACCEPTED_AT_ONCE, MOST_HEAD_BYTES, BoundedProtocol
from supervisor.api.listener import QUEUE, Listener
from supervisor.api.port import Backend
from supervisor.api.tcp import TcpPort
from supervisor.lack import is_lack

log = structlog.get_logger()

_REPEAT_S: Final = 60.0  # the same warning about clients is logged once in this time
_START_S: Final = 30.0
_LAST_ANSWERS_S: Final = 3  # for requests that are being served when the server stops
_IDLE_S: Final = 600  # tools written for Supervisor keep a connection open and ask once a minute
_LAST_REQUESTS_S: Final = 0.1
_STOP_S: Final = 10.0


class Server:
    """Serves the API on a listener from `start` to `stop`. `stop` leaves the listener open, for the next image."""

    def __init__(
        self, backend: Backend, listener: Listener, now_s: Callable[[], float], host_names: Iterable[str] = ()
    ) -> None:
        self._listener = listener
        self._api, passwords = Api(backend, now_s), PasswordCheck(lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
        self._config = uvicorn.Config(
            self._api.app(host_names, passwords), http=BoundedProtocol, ws="none", loop="asyncio", lifespan="off",
            interface="asgi3", log_config=None, access_log=False, server_header=False, date_header=False,
            proxy_headers=False, h11_max_incomplete_event_size=MOST_HEAD_BYTES, timeout_keep_alive=_IDLE_S,
        )  # fmt: skip
        self.tcp = TcpPort(passwords, self._accept, self._close_listeners)
        self._ready, self._started, self._ending = threading.Event(), False, False
        self._lack: BaseException | None = None
        self._thread = Lasting("api", self._serve, lambda: self._ending, vital=True)

    def start(self) -> None:
        """Start the thread; return once requests are served. Raises RuntimeError or the lack if the server cannot start."""
        logger = logging.getLogger("uvicorn")
        logger.handlers = [_ToStructlog()]
        logger.propagate = False
        self._thread.start()
        if not self._ready.wait(_START_S) or not self._started:
            self._ending = True
            raise self._lack or RuntimeError("the API did not start; the log says why")

    def stop(self) -> None:
        """Finish the running requests within a time limit, close the connections and end the thread."""
        self._ending = True
        self._api.end()
        if self._started:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_STOP_S)
        self._api.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._serve_until_end())
        except BaseException as error:
            self._lack = error if is_lack(error) else None
            raise
        finally:
            self._ready.set()
        if not self._ending:
            raise RuntimeError("the server has ended")

    async def _serve_until_end(self) -> None:
        self._config.load()
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_on_loop_error)
        self._state, self._servers = ServerState(), list[asyncio.Server]()
        await self._accept(socket.socket(fileno=os.dup(self._listener.sock.fileno())))  # the listener itself stays open
        self.tcp.start(self._loop)
        self._started = True
        self._ready.set()
        await self._ended.wait()
        await self._close_listeners(*self._servers)
        for connection in tuple(self._state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_ANSWERS_S):
                while self._state.connections or self._state.tasks:  # noqa: ASYNC110  neither set has an event
                    await asyncio.sleep(_LAST_REQUESTS_S)

    async def _accept(self, sock: socket.socket) -> asyncio.Server:
        """Accept connections on a listening socket. Runs in the loop."""

        def protocol() -> asyncio.Protocol:
            return BoundedProtocol(self._config, self._state, {})

        queue = _LongQueueSocket(fileno=sock.detach())
        server = await self._loop.create_server(protocol, sock=queue, backlog=ACCEPTED_AT_ONCE)
        self._servers.append(server)
        return server

    async def _close_listeners(self, *servers: asyncio.Server) -> None:
        """Close listening sockets; existing connections stay open.

        Clients whose connection has just been accepted can still send a request, and get an answer. And asyncio loses a
        connection if its server is closed between accept and protocol (`Server._attach` asserts): that client would wait
        forever.
        """
        for server in servers:
            for sock in server.sockets:
                self._loop.remove_reader(sock.fileno())
        await asyncio.sleep(_LAST_REQUESTS_S)
        for server in servers:
            server.close()
            self._servers.remove(server)


class _LongQueueSocket(socket.socket):
    """A listening socket with a longer queue: asyncio uses one number for the queue and for what it accepts at once.

    Connections that wait already stay in the queue.
    """

    def listen(self, backlog: int = QUEUE, /) -> None:
        super().listen(max(backlog, QUEUE))


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Without descriptors, asyncio tries to accept each connection 16 times a second: a warning without a traceback."""
    error = context.get("exception")
    if error is None or not is_lack(error):
        loop.default_exception_handler(context)
    else:
        logging.getLogger("uvicorn").warning(context["message"], exc_info=error)


class _ToStructlog(logging.Handler):
    """Writes uvicorn's warnings to the daemon's log, without repeats: a client that sends garbage must not fill it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged: dict[str, tuple[float, int]] = {}  # warning -> (when it was logged, number of repeats since)

    def emit(self, record: logging.LogRecord) -> None:
        now_s, text = time.clock_gettime(time.CLOCK_BOOTTIME), str(record.msg)
        logged_s, repeats = self._logged.get(text, (-_REPEAT_S, 0))
        if now_s - logged_s < _REPEAT_S:
            self._logged[text] = logged_s, repeats + 1
            return
        self._logged[text] = now_s, 0
        error = record.exc_info[1] if record.exc_info else None
        log.warning("uvicorn", text=record.getMessage(), error=repr(error) if error else None, passed_over=repeats)
