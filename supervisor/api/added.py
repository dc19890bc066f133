"""What features add to the API: `POSTS` of their module `posts`, and `routes` of their module `routes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.encoding import EncodedPages
from supervisor.api.inputs import RequestRefused
from supervisor.api.port import Backend
from supervisor.model.inputs import Verb
from supervisor.records import Record

Handler = Callable[[Request], Awaitable[Response]]
Thread = Callable[..., Coroutine[Any, Any, Any]]


class Post(Record):
    """`POST /api/v1/NAME`: a request about programs, or about all of them; answered by {"name", "code", "text"}.

    `read` returns its text and duration from the body, which has these `keys`.
    """

    verb: Verb
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], tuple[str, float | None]]


class Serving(Record):
    """What routes may use. `read` and `wait` run a function in one of the API's threads."""

    backend: Backend
    read: Thread
    wait: Thread
    encoded: EncodedPages


class Routes(Record):
    """Handlers by path; `end` is called when the server stops."""

    get: Mapping[str, Handler] = field(default_factory=dict)
    post: Mapping[str, Handler] = field(default_factory=dict)
    end: Callable[[], None] = lambda: None


def action(body: Mapping[str, Any], known: Sequence[str]) -> str:
    """The key `do`. Raises RequestRefused for one that is not known."""
    if (do := str(body["do"])) not in known:
        raise RequestRefused(400, f"do must be one of {', '.join(known)}")
    return do
