"""Long-lived answers: a limited number of each kind, so that they never use up the connections.

A client that follows a log or the stream is served for hours, and its connection is never idle. So each kind has its own
limit (`limits.py` has the limit of all connections), and a client beyond it is answered 503.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from supervisor.api.inputs import RequestRefused

_HEADERS: Final = {
    "x-accel-buffering": "no",  # a proxy must not buffer the answer
    "connection": "close",  # no second request follows after hours
}


class LongLivedAnswers:
    """The long-lived answers of one kind that are open now."""

    def __init__(self, most: int, too_many: str) -> None:
        """`too_many` is the error message for a client beyond the limit `most`."""
        self._most, self._too_many = most, too_many
        self.count = 0

    def answer(
        self, pieces: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str] | None = None
    ) -> _LongLivedAnswer:
        """An answer that sends `pieces` as they come; return it at once. Raises RequestRefused at the limit."""
        if self.count >= self._most:
            raise RequestRefused(503, self._too_many)
        return _LongLivedAnswer(self, pieces, 200, {**_HEADERS, **(headers or {})}, media_type)


class _LongLivedAnswer(StreamingResponse):
    """Counts as open while it is sent. No other task runs between its creation and its first line: the limit is exact."""

    def __init__(self, kind: LongLivedAnswers, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._kind.count += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._kind.count -= 1
