"""`GET /` and the files that the page loads."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.added import Routes, Serving
from supervisor.features.dashboard.assets import Assets


def routes(serving: Serving) -> Routes:
    assets = Assets()

    async def dashboard(request: Request) -> Response:
        if not assets.loaded:
            await serving.read(assets.load)
        return assets.answer(request)

    return Routes(get={"/": dashboard, "/assets/{stamp}/{path:path}": dashboard})
