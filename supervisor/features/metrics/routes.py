"""`GET /metrics`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.added import Routes, Serving
from supervisor.features.metrics import exposition
from supervisor.features.metrics.families import metrics_view


def routes(serving: Serving) -> Routes:
    async def metrics(request: Request) -> Response:
        """Runs in the server's own thread: it reads no disk, and a hanging reader thread must not stop the monitoring."""
        kind, backend = exposition.wanted(request.headers.get("accept", "")), serving.backend
        page = serving.encoded.of(kind, backend.turn(), lambda: exposition.encoded(metrics_view(backend.sources()), kind))
        return Response(page, 200, media_type=kind)

    return Routes(get={"/metrics": metrics})
