"""`GET /metrics`: encoded once per loop turn and format. All clients get the same bytes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.port import Backend
from supervisor.reports.exposition import encoded, wanted


class Metrics:
    """The metrics page of one backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._made: tuple[object, dict[str, bytes]] = (None, {})

    async def get(self, request: Request) -> Response:
        """Runs in the server's own thread: it reads no disk, and a hanging reader thread must not stop the monitoring."""
        content_type = wanted(request.headers.get("accept", ""))
        turn = self._backend.turn()
        if turn is not self._made[0]:
            self._made = turn, {}
        found = self._made[1]
        if content_type not in found:
            found[content_type] = encoded(self._backend.metrics(), content_type)
        return Response(found[content_type], 200, media_type=content_type)
