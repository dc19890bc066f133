"""Watches the published snapshots until it is known whether a start succeeded.

The API uses this after a `start` or `restart` that the daemon accepted. Supervisor answers once a process has lived for
`startsecs` (one second); our STARTING lasts until the first sign of training, which may take minutes. So the answer is
`started` once the worker's process has lived for half a second, or trains; `status` shows whether it trains. Waiting for
RUNNING instead would block every script while torch is imported and environments are built.

Worked example: `start Pong` while both slots are taken: Pong stays QUEUED for half a second, and the answer is success
with the text `queued: starts by itself once a slot is free`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from supervisor.api.port import Json, Result, StatusPage
from supervisor.model.codes import ABNORMAL_TERMINATION, BAD_NAME, NOT_RUNNING, SPAWN_ERROR, SUCCESS

SETTLE_S: Final = 0.5
MOST_S: Final = 10.0
_LOOK_S: Final = 0.02


def attempts(snapshot: StatusPage) -> dict[str, int]:
    """Number of starts of each program before the request."""
    return {view["name"]: view["attempt"] or 0 for view in snapshot.programs}


async def wait_for_starts(
    snapshot: Callable[[], StatusPage], before: Mapping[str, int], results: list[Result], most_s: float = MOST_S
) -> list[Result]:
    """`results`, in which the outcome of each accepted start replaces its acceptance."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    seen_s: dict[tuple[str, str, int | None], float] = {}
    final: dict[str, Result] = {}
    waiting = [name for name, code, _ in results if code == SUCCESS]
    while waiting:
        now_s = loop.time()
        newest = snapshot()
        for name in waiting:
            view = newest.program(name)
            since_s = seen_s.setdefault((name, view["phase"] if view else "", view["pid"] if view else None), now_s)
            result = outcome(name, view, before.get(name, 0), now_s - since_s)
            if result is None and now_s - began_s >= most_s:
                result = (name, SUCCESS, "starting: no process yet, see status")
            if result is not None:
                final[name] = result
        waiting = [name for name in waiting if name not in final]
        if waiting:
            await asyncio.sleep(_LOOK_S)
    return [final.get(result[0], result) for result in results]


def outcome(name: str, view: Json | None, attempts_before: int, same_for_s: float) -> Result | None:
    """The result of a start; None: not known yet. `same_for_s`: time since the program has this phase and process."""
    if view is None:
        return (name, BAD_NAME, "no such process") if same_for_s >= SETTLE_S else None
    fresh = (view["attempt"] or 0) > attempts_before
    match view["phase"]:
        case "RUNNING" if fresh:
            return (name, SUCCESS, "started")
        case "STARTING" if fresh and view["pid"] is not None and max(same_for_s, view["uptime_s"] or 0.0) >= SETTLE_S:
            return (name, SUCCESS, "started")
        case "DONE" if fresh:
            return (name, SUCCESS, "started")
        case "BACKOFF" | "FATAL" | "EXITED" if fresh:
            if view["spawn_error"]:
                return (name, SPAWN_ERROR, f"spawn error: {view['spawn_error']}")
            return (name, ABNORMAL_TERMINATION, f"abnormal termination: {view['why']}")
        case "QUEUED" if same_for_s >= SETTLE_S:
            return (name, SUCCESS, "queued: starts by itself once a slot is free")
        case "GATED" if same_for_s >= SETTLE_S:
            return (name, SUCCESS, f"gated, starts by itself: {view['why']}")
        case "STOPPED" if fresh or same_for_s >= SETTLE_S:
            return (name, NOT_RUNNING, "not running: it was stopped meanwhile")
        case _:
            return None
