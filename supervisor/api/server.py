"""The thread that serves the control socket (`listener.py`): uvicorn on AF_UNIX, and on TCP if [http] says so.

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
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                self._api.app(host_names, passwords), http=BoundedProtocol, ws="none", loop="asyncio", lifespan="off",
                interface="asgi3", log_config=None, access_log=False, server_header=False, date_header=False,
                proxy_headers=False, backlog=ACCEPTED_AT_ONCE, h11_max_incomplete_event_size=MOST_HEAD_BYTES,
                timeout_graceful_shutdown=_LAST_ANSWERS_S, timeout_keep_alive=_IDLE_S,
            )
        )  # fmt: skip
        self.tcp = TcpPort(passwords, self._uvicorn.accept, self._uvicorn.close_listener)
        self._uvicorn.then = self.tcp.start
        self._ending = False
        self._lack: BaseException | None = None
        self._thread = Lasting("api", self._serve, lambda: self._ending, vital=True)

    def start(self) -> None:
        """Start the thread; return once requests are served. Raises RuntimeError or the lack if the server cannot start."""
        logger = logging.getLogger("uvicorn")
        logger.handlers = [_ToStructlog()]
        logger.propagate = False
        self._thread.start()
        if not self._uvicorn.ready.wait(_START_S) or not self._uvicorn.started:
            self._ending = True
            raise self._lack or RuntimeError("the API did not start; the log says why")

    def stop(self) -> None:
        """Finish the running requests within a time limit, close the connections and end the thread."""
        self._ending = True
        self._api.end()
        self._uvicorn.end()
        self._thread.join(_STOP_S)
        self._api.close()

    def _serve(self) -> None:
        try:
            # uvicorn closes the sockets that it serves, but the listener must stay open.
            self._uvicorn.run(sockets=[_LongQueueSocket(fileno=os.dup(self._listener.sock.fileno()))])
        except BaseException as error:
            if is_lack(error) and not self._uvicorn.ready.is_set():
                self._lack, self._ending = error, True  # `start` raises it
            raise
        finally:
            self._uvicorn.ready.set()
        if not self._ending:
            raise RuntimeError("uvicorn has ended")


class _LongQueueSocket(socket.socket):
    """A listening socket with a longer queue: asyncio uses one number for the queue and for what it accepts at once.

    Connections that wait already stay in the queue.
    """

    def listen(self, backlog: int = QUEUE, /) -> None:
        super().listen(max(backlog, QUEUE))


class _Uvicorn(uvicorn.Server):
    """uvicorn that sleeps until `end` is called: its own main loop wakes ten times a second to check."""

    then: Callable[[asyncio.AbstractEventLoop], None]  # called in the loop once it serves

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._ended: asyncio.Event | None = None
        self._serving: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._serving, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._serving.set_exception_handler(_on_loop_error)
        await self.on_tick(0)  # sets the headers that every answer has
        self.then(self._serving)
        self.ready.set()
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Clients whose connection has just been accepted can still send a request, and get an answer.

        uvicorn's own shutdown disconnects them before it reads their request. Worse, asyncio loses a connection if its
        server is closed between accept and protocol (`Server._attach` asserts): that client would wait forever.
        """
        await self._accept_no_more(self.servers)
        await super().shutdown(sockets)

    async def close_listener(self, server: asyncio.Server) -> None:
        """Close one of the listening sockets; its existing connections stay open."""
        await self._accept_no_more([server])
        server.close()
        self.servers.remove(server)

    @staticmethod
    async def _accept_no_more(servers: Iterable[asyncio.Server]) -> None:
        loop = asyncio.get_running_loop()
        for server in servers:
            for sock in server.sockets:
                loop.remove_reader(sock.fileno())
        await asyncio.sleep(_LAST_REQUESTS_S)

    async def accept(self, sock: socket.socket) -> asyncio.Server:
        """Accept on this socket, as uvicorn does on the sockets that it starts with. Runs in its loop."""

        def protocol() -> asyncio.Protocol:
            made = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            assert isinstance(made, asyncio.Protocol)  # noqa: S101  for the type checker
            return made

        queue, serving = _LongQueueSocket(fileno=sock.detach()), asyncio.get_running_loop()
        server = await serving.create_server(protocol, sock=queue, backlog=self.config.backlog)
        self.servers.append(server)
        return server

    def end(self) -> None:
        """End the main loop. May be called from any thread."""
        self.should_exit = True
        if self._serving is not None and self._ended is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._serving.call_soon_threadsafe(self._ended.set)


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
