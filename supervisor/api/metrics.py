"""`GET /metrics`: made once a turn and format, and then the same bytes for everybody who asks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.port import Backend
from supervisor.reports.exposition import encoded, wanted


class Metrics:
    """Of one backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._made: tuple[object, dict[str, bytes]] = (None, {})

    async def get(self, request: Request) -> Response:
        """On the server's own thread: it waits for no disk, and a reader that hangs must not silence the monitoring."""
        content_type = wanted(request.headers.get("accept", ""))
        turn = self._backend.turn()
        if turn is not self._made[0]:
            self._made = turn, {}
        found = self._made[1]
        if content_type not in found:
            found[content_type] = encoded(self._backend.metrics(), content_type)
        return Response(found[content_type], 200, media_type=content_type)
