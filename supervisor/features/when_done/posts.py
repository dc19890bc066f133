"""`POST /api/v1/when-done`: {"do": "cancel" or "now"}, or {"do": "delay", "for_s"}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from supervisor.api.inputs import RequestRefused, is_span
from supervisor.api.posts import Post, action
from supervisor.features.when_done.record import ACTIONS, DELAY
from supervisor.model.inputs import Verb


def _read(body: Mapping[str, Any]) -> tuple[str, float | None]:
    do, for_s = action(body, ACTIONS), body["for_s"]
    if is_span(for_s) != (do == DELAY):
        raise RequestRefused(400, "delay, and nothing else, needs for_s, a number of seconds")
    return do, for_s if do == DELAY else None


POSTS: Final = {"when-done": Post(Verb.WHEN_DONE, ("do", "for_s"), _read)}
