"""The HTTP side: POST /RPC2, and the two pages that the stock client's `tail -f` and `maintail -f` follow.

Those clients send one line end too many after a GET. uvicorn takes it for the start of another request and stops reading
the connection, so it does not notice that the client has disconnected. Instead, the kernel is asked at each read of the log.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import Response

from supervisor import discovery
from supervisor.api import logfiles
from supervisor.api.inputs import RequestRefused, body_of
from supervisor.api.lasting import LongLivedAnswers
from supervisor.api.peer import caller, disconnected
from supervisor.api.port import Backend, StatusPage
from supervisor.api.rpc import daemon, logs, programs, wire
from supervisor.api.rpc.calls import SYSTEM, Call, Table, dispatch, named
from supervisor.api.rpc.wire import Fault
from supervisor.model import codes

log = structlog.get_logger()

discovery.modules("rpc")  # they add to the table of the daemon's methods
TABLE: Final[Table] = {**daemon.TABLE, **programs.TABLE, **logs.TABLE, **SYSTEM}

MOST_FOLLOWERS: Final = 64
_BEFORE_BYTES: Final = 1024  # of the existing log, sent before new lines, as in Supervisor
_PIECE_BYTES: Final = 64 * 1024
_LOOK_S: Final = 0.2

Thread = Callable[..., Coroutine[Any, Any, Any]]


class Rpc:
    """The XML-RPC pages of one backend. `read` and `wait` run a function in one of the API's threads."""

    def __init__(self, backend: Backend, read: Thread, wait: Thread) -> None:
        self._backend, self._read, self._wait = backend, read, wait
        self._later: set[asyncio.Task[None]] = set()
        self._followers = LongLivedAnswers(MOST_FOLLOWERS, f"{MOST_FOLLOWERS} clients follow logs already")
        self._ending = False

    def end(self) -> None:
        """The server stops: clients that follow a log are disconnected at the next read of the log."""
        self._ending = True

    async def post(self, request: Request) -> Response:
        """One call. A fault is a normal response; only a body that is not an XML-RPC call is an HTTP error."""
        body = await body_of(request)
        try:
            name, params = wire.parse(body)
        except wire.Malformed as error:
            raise RequestRefused(400, str(error)) from None
        by, uid = caller(request.scope)
        call = Call(self._backend, TABLE, self._read, self._wait, self._do_later, by, uid)
        try:
            answer = wire.answer(await dispatch(call, name, params))
        except Fault as fault:
            answer = wire.refusal(fault)
        except RequestRefused as refused:  # too many requests wait already
            answer = wire.refusal(Fault(codes.FAILED, str(refused)))
        return Response(answer, media_type="text/xml")

    def _do_later(self, work: Coroutine[Any, Any, Any]) -> None:
        async def done() -> None:
            try:
                await work
            except (Fault, RequestRefused) as error:
                log.warning("request_failed_unheard", error=str(error))

        task = asyncio.get_running_loop().create_task(done())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --- following a log ---------------------------------------------------------------------------------------------

    async def log_tail(self, request: Request) -> Response:
        """GET /logtail/NAME[/CHANNEL]: the end of a program's log, then new lines until the client disconnects."""
        name, _, channel = request.path_params["spec"].partition("/")
        try:
            views, whole = named(StatusPage(self._backend), name)
        except Fault:
            raise RequestRefused(404, "no such program") from None
        path = None if whole else views[0].get(f"{channel or 'stdout'}_log")
        return await self._follow(request, path)

    async def main_log_tail(self, request: Request) -> Response:
        """GET /mainlogtail: the same for the daemon's own log."""
        return await self._follow(request, StatusPage(self._backend).daemon["main_log"])

    async def _follow(self, request: Request, path: str | None) -> Response:
        if path is None:
            raise RequestRefused(404, "no log file")
        try:
            first = await self._read(logfiles.read_tail, path, _BEFORE_BYTES)
        except OSError:
            raise RequestRefused(404, "no log file") from None
        pieces = self._pieces(path, first, lambda: self._ending or disconnected(request.scope))
        return self._followers.answer(pieces, "text/plain;charset=utf-8")

    async def _pieces(self, path: str, chunk: logfiles.Chunk, over: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The log in pieces. Each piece is complete UTF-8, because the stock client decodes each one separately."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while not over():
            if chunk.note == "truncated":
                yield b"==> File truncated <==\n"
            if text := wire.readable(decoder.decode(chunk.data)):
                yield text.encode()
            if not chunk.data:
                await asyncio.sleep(_LOOK_S)
            try:
                chunk = await self._read(logfiles.read_from, path, chunk.file_id, chunk.next_offset, _PIECE_BYTES)
            except OSError:  # the log is removed, or between a rotation's two renames: it may come back
                chunk = logfiles.Chunk(b"", chunk.file_id, chunk.next_offset)
