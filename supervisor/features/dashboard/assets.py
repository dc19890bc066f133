"""The dashboard's files, served from memory: `/` is the page, `/assets/STAMP/...` are the files that it loads.

The stamp is a hash of all files, so a browser caches an asset forever and requests it again only after an upgrade. The
browser requests the page itself each time, and gets 304 if it has not changed.

The page loads nothing from other servers, and the browser enforces this (Content-Security-Policy). It allows scripts,
styles and connections of this server only, no frame of another page, and no text turned into HTML (trusted types).

The page needs no build step: two libraries (uPlot, lit-html) lie in `vendor/` with their digests. Other chart libraries
are 3 to 17 times as large and 3 to 13 times as slow (uPlot: 22 kB, 0.1 s for ten series of 10,000 points).
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.inputs import RequestRefused
from supervisor.records import Record
from workers.scores import REFERENCES

DIRECTORY: Final = Path(__file__).resolve().parent / "static"
PAGE: Final = "index.html"
_REFERENCES: Final = "references.json"  # scores of random play and of a human, by game
_STAMPED: Final = b"/assets/"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".json": "application/json", "": "text/plain; charset=utf-8",
}  # fmt: skip
_FOR_GOOD: Final = "private, max-age=31536000, immutable"
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types lit-html"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}  # fmt: skip


class _Asset(Record):
    media_type: str
    body: bytes
    packed: bytes


class Assets:
    """All files of the dashboard. They are read at the first request, and kept even if the release is removed."""

    def __init__(self) -> None:
        self._stamp, self._files = "", dict[str, _Asset]()

    @property
    def loaded(self) -> bool:
        return bool(self._files)

    def load(self) -> None:
        """Read all files; the disk may be slow. Raises OSError."""
        files = (file for file in DIRECTORY.rglob("*") if file.is_file())
        bodies = {file.relative_to(DIRECTORY).as_posix(): file.read_bytes() for file in files}
        bodies[_REFERENCES] = json.dumps(REFERENCES, separators=(",", ":")).encode()
        digest = hashlib.sha256()
        for path, body in sorted(bodies.items()):
            digest.update(f"{path} {len(body)} ".encode() + body)
        self._stamp = digest.hexdigest()[:16]
        page, stamped = bodies[PAGE], _STAMPED + self._stamp.encode() + b"/"
        # All modules at once: else the browser finds them one after another, a round trip to the box for each.
        modules = [path for path in sorted(bodies) if path.endswith(".js") and f'/{path}"'.encode() not in page]
        preload = "".join(f'<link rel="modulepreload" href="/assets/{path}">\n' for path in modules).encode()
        bodies[PAGE] = page.replace(b"</head>", preload + b"</head>").replace(_STAMPED, stamped)
        self._files = {
            path: _Asset(_TYPES[PurePosixPath(path).suffix], body, gzip.compress(body, mtime=0))
            for path, body in bodies.items()
        }

    def answer(self, request: Request) -> Response:
        """The file `path` of the request; without one, the page. The current `stamp` makes it cacheable forever.

        Raises RequestRefused.
        """
        path = request.path_params.get("path", PAGE)
        asset = self._files.get(path)
        if asset is None:
            raise RequestRefused(404, "no such file of the dashboard")
        known = request.path_params.get("stamp") == self._stamp
        headers = {**_HEADERS, "cache-control": _FOR_GOOD if known else "no-cache", "etag": f'"{self._stamp}"'}
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(asset.body, 200, headers, asset.media_type)
        return Response(asset.packed, 200, {**headers, "content-encoding": "gzip"}, asset.media_type)
