"""What the heartbeat remembers: whether this box is about to be stopped, and its newest ping."""

from __future__ import annotations

from typing import Final

from supervisor.records import Record


class Beating(Record):
    at_s: float = 0.0
    word: str = ""
    ends: str = ""  # why this box is about to be stopped; empty: it is not


MEMORY: Final = {"beating": Beating}
