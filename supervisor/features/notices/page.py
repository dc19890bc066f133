"""The part of `status` about notices that this box ends. None is "not known"."""

from __future__ import annotations

from supervisor.features.notices.record import Leaving, NoticeRecord
from supervisor.model.memory import Memory
from supervisor.model.state import State
from supervisor.reports.added import Added
from supervisor.reports.sources import Json


def notices_view(state: State, memory: Memory, *, now_s: float) -> Json:
    """{"standing": [...], "errors": {source: why}}. `left_s` is until the end, `leaves_s` until the programs leave."""
    return {
        "standing": [
            {
                "source": each.notice.source, "kind": each.notice.kind, "what": each.notice.what, "wall_s": each.wall_s,
                "left_s": None if each.notice.until_s is None else max(0.0, each.notice.until_s - now_s),
                "leaves_s": None if each.leave_at_s is None else max(0.0, each.leave_at_s - now_s),
            }
            for each in state.of(NoticeRecord).standing.values()
        ],
        "errors": dict(memory.of(Leaving).errors),
    }  # fmt: skip


ADDED = Added(status=lambda sources: {"notices": notices_view(sources.state, sources.memory, now_s=sources.now_s)})
