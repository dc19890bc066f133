"""`GET /api/v1/stream`: the page `status`, kept up to date by server-sent events.

    event: whole     the page: the first event, and for a reader that has missed a change
    event: change    {"daemon": {..}, "programs": {name: {..}}, "gone": [names], ..}: the keys that have changed since
    :                a comment after 15 s without a change

`id` is the number of the newest fact. A reader that reconnects gets a `whole`, regardless of its id.

Readings that are expensive to collect are sent less often (`policy/upkeep/refresh.py`), so that they take 0.25 % of a core.
A new fact is still sent within half a second.

Only the newest state is sent. While there are readers, one task checks for a newer page. It encodes each event once, and
all readers get the same bytes. A slow reader delays nobody: until it has read its last event it gets no new one, and then
it gets a `whole`. A reader that reads nothing for 30 s is disconnected.

Numbers of a change have six digits, or milliseconds: nobody sees more, and more would be half of the bytes.

Example: after one second, Pong has done 5,000 more steps:
`{"daemon":{"uptime_s":62.0},"programs":{"Pong":{"steps":45000}},...`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from supervisor.api.encoding import encoded
from supervisor.api.inputs import RequestRefused
from supervisor.api.lasting import LongLivedAnswers
from supervisor.api.limits import UNREAD_S
from supervisor.api.peer import abandon, unread_bytes
from supervisor.api.port import Backend, Json
from supervisor.policy.upkeep import refresh

log = structlog.get_logger()

MOST_STREAMS: Final = 128  # with 64 followers of logs and 64 waiting requests, 128 of 384 connections are left
LOOK_S: Final = 0.5  # between two checks for a new fact
READINGS_SHARE: Final = 0.0025  # of a core, for events that contain only new readings
HEARTBEAT_S: Final = 15.0
_RETRY: Final = b"retry: 1000\n"  # milliseconds after which a browser reconnects
_HEARTBEAT: Final = b":\n\n"
_TYPE: Final = "text/event-stream"
_HEADERS: Final = {"cache-control": "no-store"}


class _Update:
    """The page at one moment, and the event `change` that leads to it from the page with the number `before`."""

    def __init__(self, number: int, page: Json, seq: int, before: int = 0, change: bytes = b"", took_s: float = 0.0) -> None:
        self.number, self.page, self.seq, self.before, self.change, self.took_s = number, page, seq, before, change, took_s
        self._whole = b""

    @property
    def whole(self) -> bytes:
        """The event `whole`. It is encoded when the first reader needs it."""
        if not self._whole:
            self._whole = _event(b"whole", self.seq, self.page)
        return self._whole


class Stream:
    """All readers of the stream. Everything but `end` runs in the server's own loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._readers = LongLivedAnswers(
            MOST_STREAMS, f"{MOST_STREAMS} streams are open already: close one, or ask for a page"
        )
        self._numbers = itertools.count(1)
        self._newest: _Update | None = None
        self._woken = asyncio.Event()  # set and replaced whenever readers have something to do
        self._watching: asyncio.Task[None] | None = None
        self._serving: asyncio.AbstractEventLoop | None = None
        self._ending = False

    async def answer(self, request: Request) -> Response:
        if self._ending:
            raise RequestRefused(503, "extralife is stopping")
        if request.method == "HEAD":
            return Response(None, 200, _HEADERS, _TYPE)
        if self._watching is None:
            seq, page = self._backend.newest_fact(), self._backend.page("status", {})
            self._newest, self._serving = _Update(next(self._numbers), page, seq), asyncio.get_running_loop()
            self._watching = self._serving.create_task(self._watch())
        return self._readers.answer(self._events(request.scope), _TYPE, _HEADERS)

    def end(self) -> None:
        """The server stops: every reader is disconnected at once. May be called from any thread."""
        self._ending = True
        if self._serving is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._serving.call_soon_threadsafe(self._wake)

    # --- one reader ------------------------------------------------------------------------------------------------------

    async def _events(self, scope: Scope) -> AsyncIterator[bytes]:
        clock, update = asyncio.get_running_loop().time, self._newest
        if update is None:
            return
        yield _RETRY + update.whole
        known, left, unread_since_s = update.number, 0, 0.0
        while True:
            await self._woken.wait()
            update = self._newest
            if self._ending or update is None:
                break
            before, left = left, unread_bytes(scope)
            if not 0 < before <= left:  # it has read some, or had nothing to read
                unread_since_s = clock()
            if left and clock() - unread_since_s >= UNREAD_S:
                break
            if left:
                continue
            yield _HEARTBEAT if update.number == known else update.change if update.before == known else update.whole
            known = update.number
        if unread_bytes(scope):
            abandon(scope)  # otherwise the end of the answer would wait behind the unread bytes

    # --- all readers -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        sent_s = clock()
        try:
            while not self._ending and self._readers.count:
                await asyncio.sleep(LOOK_S)
                silent_s = clock() - sent_s
                if self._renewed(silent_s) or silent_s >= HEARTBEAT_S:
                    sent_s = clock()
                    self._wake()
        except Exception:
            log.exception("stream_failed")
        finally:
            self._watching = self._newest = None
            self._wake()

    def _renewed(self, silent_s: float) -> bool:
        """Make the next event if the page has changed, `silent_s` seconds after the last event; whether it has."""
        last, seq = self._newest, self._backend.newest_fact()
        if last is None or (seq == last.seq and silent_s < refresh.period_s(last.took_s, READINGS_SHARE)):
            return False
        began_s = time.thread_time()
        page = self._backend.page("status", {})
        if page is last.page:
            return False
        change = _event(b"change", seq, changed(last.page, page))
        self._newest = _Update(next(self._numbers), page, seq, last.number, change, time.thread_time() - began_s)
        return True

    def _wake(self) -> None:
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()


def changed(old: Json, new: Json) -> Json:
    """The keys of `new` that differ from `old`, in the form of the event `change`."""
    before = {each["name"]: each for each in old["programs"]}
    after = {each["name"]: each for each in new["programs"]}
    programs = {name: _fresh(before.get(name, {}), each) for name, each in after.items()}
    rest = _fresh(old, {key: value for key, value in new.items() if key not in {"daemon", "programs"}})
    return {
        "daemon": _fresh(old["daemon"], new["daemon"]),
        "programs": {name: fresh for name, fresh in programs.items() if fresh},
        "gone": [name for name in before if name not in after],
        **rest,
    }


def _fresh(old: Json, new: Json) -> Json:
    return {key: _short(value) for key, value in new.items() if key not in old or old[key] != value}


def _short(value: Any) -> Any:
    """The value with floats that have no more digits than anybody sees. Example: 67.84287723 is 67.8429."""
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 100.0 else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value


def _event(name: bytes, seq: int, data: Any) -> bytes:
    """One server-sent event. The encoded JSON has no line ends, so the data is one line."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, seq, encoded(data))
