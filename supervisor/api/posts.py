"""Requests that features answer: `POST /api/v1/NAME`, by the table `POSTS` of their module `posts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor.api.inputs import RequestRefused
from supervisor.model.inputs import Verb
from supervisor.records import Record


class Post(Record):
    """A request about programs, or about all of them. `read` returns its text and duration from the body.

    `keys` are those of the body. Answered by {"name", "code", "text"}.
    """

    verb: Verb
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], tuple[str, float | None]]


def action(body: Mapping[str, Any], known: Sequence[str]) -> str:
    """The key `do`. Raises RequestRefused for one that is not known."""
    if (do := str(body["do"])) not in known:
        raise RequestRefused(400, f"do must be one of {', '.join(known)}")
    return do
