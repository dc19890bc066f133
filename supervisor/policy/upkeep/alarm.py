"""One alert as a target gets it. It is what the rest of extralife knows of alerts (`alerting.py` has their rule)."""

from __future__ import annotations

from typing import Final

from supervisor.records import Record

INFO, WARNING, CRITICAL = "info", "warning", "critical"
SEVERITIES: Final = (INFO, WARNING, CRITICAL)
DONE: Final = "done"
NOTHING: Final = "Nothing to do"
DO: Final = "Do: "


class Notice(Record):
    """One alert as it is delivered. `id` is the same at every try, so that a receiver can drop duplicates."""

    id: str
    kind: str
    severity: str
    text: str
    wall_s: float
    program: str = ""
    more: int = 0  # number of held alerts that this one stands for
    dropped: int = 0  # number of earlier alerts that never reached this target
