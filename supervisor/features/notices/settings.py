"""[notice]: the sources that announce the end of this box (`rules.py`)."""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record


class NoticeSettings(Record):
    command: str = key(
        "", "a program that prints a line when this box ends (docs/offsite.md); no shell reads it; empty: none"
    )
    file: str = key("", "a file that appears when this box ends; empty: none")
    every_s: float = key(2.0, "time between two questions", low=0.1, high=600)
    timeout_s: float = key(2.0, "longest time for an answer", low=0.1, high=60)


SECTIONS: Final = {"notice": NoticeSettings}
