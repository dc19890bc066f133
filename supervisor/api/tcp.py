"""Opens, moves and closes the TCP port of [http] as the newest settings say, and retries while it cannot be opened.

A reload does not hand this port over: for some seconds, while one image of the daemon replaces another, connections are
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from supervisor.api.door import PasswordCheck
from supervisor.model.settings import HttpSettings

log = structlog.get_logger()

Accept = Callable[[socket.socket], Awaitable[asyncio.Server]]
Close = Callable[[asyncio.Server], Awaitable[None]]
RETRY_S: Final = 5.0


class TcpPort:
    """At most one listening socket. `want` and `view` may be called from any thread."""

    def __init__(self, passwords: PasswordCheck, accept: Accept, close: Close) -> None:
        """`accept` and `close` start and stop accepting on a listening socket, in the server's loop."""
        self._passwords, self._accept, self._close = passwords, accept, close
        self._wanted = HttpSettings()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._error = ""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the server's loop, once it serves."""
        self._loop = loop
        self._task = loop.create_task(self._keep())

    def want(self, http: HttpSettings) -> None:
        """Called by the deciding thread in each loop turn. Does nothing if the settings are the same."""
        if http is self._wanted or http == self._wanted:
            return
        self._wanted = http
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    def view(self) -> dict[str, Any] | None:
        """{"listen", "error"}; None: no port is wanted."""
        wanted = self._wanted
        return {"listen": wanted.listen, "error": self._error} if wanted.listen else None

    async def _keep(self) -> None:
        open_at: tuple[str, int] | None = None
        server: asyncio.Server | None = None
        while True:
            self._woken.clear()
            wanted = self._wanted
            self._passwords.use_password(wanted)
            at = (wanted.host, wanted.port) if wanted.password and wanted.listen else None
            if server is not None and at != open_at:
                await self._close(server)
                server = None
            if at is not None and server is None:
                server = await self._opened(at, wanted.listen)
            open_at = at if server is not None else None
            if at is None:
                self._error = f"it has no password: {wanted.password_file} could not be used" if wanted.listen else ""
            failed = at is not None and server is None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if failed else None):
                    await self._woken.wait()

    async def _opened(self, at: tuple[str, int], listen: str) -> asyncio.Server | None:
        family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        both = at[0] == "::" and socket.has_dualstack_ipv6()
        try:
            server = await self._accept(socket.create_server(at, family=family, dualstack_ipv6=both))
        except OSError as error:
            why = error.strerror or str(error)
            if why != self._error:
                log.error("http_port_not_open", listen=listen, error=why, retry_s=RETRY_S)  # noqa: TRY400  no traceback
            self._error = why
            return None
        self._error = ""
        log.info("serving_http", listen=listen)
        return server
