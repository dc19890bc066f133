"""JSON that every parser accepts: NaN and infinity mean unknown, so they become null."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from starlette.responses import Response


def encoded(value: object) -> bytes:
    """UTF-8, on one line. A lone surrogate (half a character) becomes a question mark."""
    try:
        return _dumps(value)
    except (ValueError, TypeError):  # rare: a search for such values in advance would take longer than the encoding
        return _dumps(_finite(value))


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, "application/json")


class EncodedPages:
    """A cache of encoded pages: a page is encoded again only once its stamp is another object."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, bytes]] = {}

    def of(self, name: str, stamp: object, encode: Callable[[], bytes]) -> bytes:
        """The page with this key in the cache, else what `encode` makes."""
        made = self._made.get(name)
        if made is None or made[0] is not stamp:
            made = self._made[name] = stamp, encode()
        return made[1]


def _dumps(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "replace")


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value
