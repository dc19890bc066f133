"""The dashboard's files, served from memory: `/` is the page, `/assets/STAMP/...` all that it loads.

The stamp is made of the files, so a browser keeps an asset for good and asks for it again only after an upgrade. The page
itself is asked for each time, and answered with 304 where it is the same.

The page loads nothing from anywhere else, and the browser is told so (Content-Security-Policy): only scripts and styles of
this server, connections to this server alone, in no frame of another page, and no text made into HTML (trusted types).
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.refused import RequestRefused
from supervisor.records import dataclass
from workers.scores import REFERENCES

DIRECTORY: Final = Path(__file__).resolve().parents[1] / "dashboard"
PAGE: Final = "index.html"
_REFERENCES: Final = "references.json"  # scores at random play and of a human, by game
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


@dataclass(frozen=True, slots=True)
class _Asset:
    """One file. `packed` is the same, gzipped."""

    media_type: str
    body: bytes
    packed: bytes


class Assets:
    """All files of the dashboard. They are read at the first request and kept, also if the release is removed."""

    def __init__(self) -> None:
        self.loaded = False

    def load(self) -> None:
        """Read them all, from a disk that may be slow. Raises OSError."""
        self.loaded = bool(self._files)

    def answer(self, request: Request) -> Response:
        """The file of `path` with that `stamp`; without a path, the page. Raises Refused."""
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

    @functools.cached_property
    def _read(self) -> dict[str, bytes]:
        files = (file for file in DIRECTORY.rglob("*") if file.is_file())
        found = {file.relative_to(DIRECTORY).as_posix(): file.read_bytes() for file in files}
        return found | {_REFERENCES: json.dumps(REFERENCES, separators=(",", ":")).encode()}

    @functools.cached_property
    def _stamp(self) -> str:
        digest = hashlib.sha256()
        for path, body in sorted(self._read.items()):
            digest.update(f"{path} {len(body)} ".encode() + body)
        return digest.hexdigest()[:16]

    @functools.cached_property
    def _files(self) -> dict[str, _Asset]:
        stamped = _STAMPED + self._stamp.encode() + b"/"
        bodies = {**self._read, PAGE: self._read[PAGE].replace(_STAMPED, stamped)}
        return {
            path: _Asset(_TYPES[PurePosixPath(path).suffix], body, gzip.compress(body, mtime=0))
            for path, body in bodies.items()
        }
