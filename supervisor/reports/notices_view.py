"""The part of `status` about notices that this box ends. None is "not known"."""

from __future__ import annotations

from typing import Any

from supervisor.model.memory import Memory
from supervisor.model.state import State

Json = dict[str, Any]


def notices_view(state: State, memory: Memory, *, now_s: float) -> Json:
    """{"standing": [...], "errors": {source: why}}. `left_s` is until the end, `leaves_s` until the programs leave."""
    return {
        "standing": [
            {
                "source": each.notice.source, "kind": each.notice.kind, "what": each.notice.what, "wall_s": each.wall_s,
                "left_s": None if each.notice.until_s is None else max(0.0, each.notice.until_s - now_s),
                "leaves_s": None if each.leave_at_s is None else max(0.0, each.leave_at_s - now_s),
            }
            for each in state.notices.standing.values()
        ],
        "errors": dict(memory.notice_errors),
    }  # fmt: skip
