"""A request that cannot be served, and the bodies that can."""

from __future__ import annotations

from starlette.requests import Request

from supervisor.api.limits import MOST_BODY_BYTES


class RequestRefused(Exception):
    """A refused request. Its sender gets the sentence, with an HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def body_of(request: Request) -> bytes:
    """The request's body, of bounded size: nothing larger is ever parsed. Raises RequestRefused."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BODY_BYTES:
            raise RequestRefused(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
    return data
