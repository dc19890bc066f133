"""Answers that last: a bounded number of each kind, so that they never use up the connections.

A follower of a log or of the stream is served for hours, and its connection is never idle. Each kind has a cap of its own
(`limits.py` has that of all connections), and who comes beyond it is told 503.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from supervisor.api.refused import RequestRefused

_HEADERS: Final = {
    "x-accel-buffering": "no",  # a proxy in between must not collect it
    "connection": "close",  # after hours there is no second request
}


class Lasting:
    """All answers of one kind that last now."""

    def __init__(self, most: int, too_many: str) -> None:
        """`too_many` is the sentence for who comes beyond `most`."""
        self._most, self._too_many = most, too_many
        self.count = 0

    def answer(self, pieces: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str] | None = None) -> _Lasting:
        """An answer that sends `pieces` as they come; return it at once. Raises Refused where there are enough."""
        if self.count >= self._most:
            raise RequestRefused(503, self._too_many)
        return _Lasting(self, pieces, 200, {**_HEADERS, **(headers or {})}, media_type)


class _Lasting(StreamingResponse):
    """Counts for as long as it is sent. Nothing else runs between its making and its first line: the cap is exact."""

    def __init__(self, kind: Lasting, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._kind.count += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._kind.count -= 1
