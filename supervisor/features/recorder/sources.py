"""What the pages read, with a daemon and without one."""

from __future__ import annotations

from typing import Final

from supervisor.features.recorder.adapters.store import RecordedFiles
from supervisor.features.recorder.page import Recorded

SOURCES: Final = {Recorded: RecordedFiles}
