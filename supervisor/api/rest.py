"""Reads the rest of a request's body before the answer is sent, within limits.

Most HTTP clients send head and body separately. An answer that needs no body (no such page, a body too large) would often
be ready between the two. If the connection were closed then, the client would fail with EPIPE and never read why it was
refused. Reading without limits would let one client send forever.

A client that waits for `100 Continue` sends nothing until it has read an answer, so it is answered at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_REST_S: Final = 2.0
MOST_REST_BYTES: Final = 2**20
REST_KEY: Final = "extralife.rest"  # key of a scope: seconds that replace MOST_REST_S


def read_body_first(app: ASGIApp) -> ASGIApp:
    """`app`, whose answers wait for the rest of the request's body: at most `MOST_REST_S` and `MOST_REST_BYTES`."""

    async def listening(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        coming = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        coming = coming and b"expect" not in headers

        async def receiving() -> Message:
            nonlocal coming
            message = await receive()
            coming = coming and message["type"] == "http.request" and bool(message.get("more_body"))
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                size_bytes = 0
                # It needs no extra task: with a thousand clients, a task waits long for its turn.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(scope.get(REST_KEY, MOST_REST_S)):
                        while coming and size_bytes < MOST_REST_BYTES:
                            size_bytes += len((await receiving()).get("body", b""))
            await send(message)

        await app(scope, receiving, sending)

    return listening
