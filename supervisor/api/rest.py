"""What is left of a request's body is read before the answer goes out, within bounds.

Most HTTP clients send the head and the body apart. An answer that needs no body (no such page, a body too large) would
often be ready between the two, and the connection closed: such a client fails with EPIPE and never reads why it was
refused. Reading without bounds instead would let one client send for ever.

A client that waits for `100 Continue` sends nothing until it has read an answer, so it is answered at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_REST_S: Final = 2.0
MOST_REST_BYTES: Final = 2**20
REST_KEY: Final = "extralife.rest"  # of a scope: seconds in place of MOST_REST_S


def heard_out(app: ASGIApp) -> ASGIApp:
    """`app`, whose answers wait until the request's body has come: at most `MOST_REST_S` and `MOST_REST_BYTES` more."""

    async def listening(scope: Scope, receive: Receive, send: Send) -> None:
        coming = _has_body(scope)

        async def receiving() -> Message:
            nonlocal coming
            message = await receive()
            coming = coming and message["type"] == "http.request" and bool(message.get("more_body"))
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                size_bytes = 0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        scope.get(REST_KEY, MOST_REST_S)
                    ):  # no task of its own: a thousand clients wait for their turns
                        while coming and size_bytes < MOST_REST_BYTES:
                            size_bytes += len((await receiving()).get("body", b""))
            await send(message)

        await app(scope, receiving, sending)

    return listening


def _has_body(scope: Scope) -> bool:
    headers = {
        name: value for name, value in scope["headers"] if name in {b"content-length", b"transfer-encoding", b"expect"}
    }
    return b"expect" not in headers and (b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0")
