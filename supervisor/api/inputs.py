"""What both kinds of requests, JSON and XML-RPC, may contain; and the refusal of a request that cannot be served."""

from __future__ import annotations

import signal as signals
from typing import Final

from starlette.requests import Request

from supervisor.api.limits import MOST_BODY_BYTES

MOST_PIN_S: Final = 10 * 366 * 86_400.0  # a pin without a duration holds until further notice


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


def is_span(value: object, most_s: float = MOST_PIN_S) -> bool:
    """Whether `value` is a valid duration of a pin or a delay in seconds."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= most_s


def signal_name(value: object) -> str | None:
    """`HUP`, `SIGHUP` or `1` as SIGHUP; None when it is no signal."""
    text = str(value).upper()
    try:
        found = signals.Signals(int(text)) if text.isdecimal() else signals.Signals[f"SIG{text.removeprefix('SIG')}"]
    except (ValueError, KeyError):
        return None
    return found.name
