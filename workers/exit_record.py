"""The exit record `exit.json`: how an attempt ended. The shim writes it without this module; the daemon reads it with it.

It is not part of `contract.py`, because a worker neither reads nor writes it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from workers.contract import UNKNOWN


@dataclass(frozen=True)
class ExitRecord:
    """`exit.json` of one attempt, written by its shim. Exactly one of `code` and `signal` is set.

    `leftovers` names the processes of the attempt's tree that outlived the worker and that the shim ended.
    """

    token: str
    pid: int
    code: int | None
    signal: int | None
    core_dumped: bool
    ended_ns: int
    ended_wall_s: float
    user_s: float
    system_s: float
    max_rss_bytes: int
    leftovers: tuple[str, ...] = ()
    spawn_error: str | None = None
    oom_kills: tuple[int, int] | None = None  # the kernel's OOM kills in its cgroup: before its start, after its end
    rest: tuple[int | None, int | None] | None = None  # (code, signal) of the last process that a success code left behind

    @classmethod
    def from_json(cls, text: str | bytes) -> ExitRecord:
        """Parse an exit record. Raises ValueError for any other text."""
        try:
            body = json.loads(text)
            body["leftovers"] = tuple(str(item) for item in body.get("leftovers", ()))
            body["oom_kills"] = _pair(body.get("oom_kills"))
            body["rest"] = _end(body.get("rest"))
            record = cls(**body)
            _check_exit(record)
        except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:
            raise ValueError(f"not an exit record: {error}") from error
        if (record.code is None) == (record.signal is None) and record.spawn_error is None:
            raise ValueError("not an exit record: it needs a code or a signal")
        return record


def _pair(value: object) -> tuple[int, int] | None:
    """Two counts, or None for any other value: a wrong detail must not make the whole exit record unreadable."""
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int and 0 <= item <= UNKNOWN for item in value):
        return value[0], value[1]
    return None


def _end(value: object) -> tuple[int | None, int | None] | None:
    """A code or a signal, or None for any other value."""
    match value:
        case [int(code), None] if 0 <= code <= 255:
            return code, None
        case [None, int(signal)] if 0 < signal <= 128:
            return None, signal
    return None


def _check_exit(record: ExitRecord) -> None:
    """Raises ValueError for a field with a wrong type, or a number that no kernel returns."""
    whole: list[tuple[Any, int]] = [(record.pid, UNKNOWN), (record.ended_ns, UNKNOWN), (record.max_rss_bytes, UNKNOWN)]
    whole += [(value, most) for value, most in ((record.code, 255), (record.signal, 128)) if value is not None]
    times: tuple[Any, ...] = (record.ended_wall_s, record.user_s, record.system_s)
    texts: tuple[Any, ...] = (record.token, record.spawn_error or "")
    right = (
        all(type(value) is int and 0 <= value <= most for value, most in whole)
        and all(type(value) in (int, float) and math.isfinite(value) for value in times)
        and all(type(value) is str for value in texts)
        and record.core_dumped in (True, False)
        and record.signal != 0
    )
    if not right:
        raise ValueError("a field has a value that it cannot have")
