"""[recorder]: how much is recorded."""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record


class RecorderSettings(Record):
    """`[recorder]` in the config: the size of the recording."""

    max_mb: int = key(
        128, "size of the recorder's file; beyond it the oldest rows are removed. 0: nothing is recorded",
        low=0, high=1_000_000,
    )  # fmt: skip


SECTIONS: Final = {"recorder": RecorderSettings}
