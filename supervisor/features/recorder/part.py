"""The thread that records."""

from __future__ import annotations

from pathlib import Path

from supervisor.adapters.parts import Part, World
from supervisor.features.recorder.adapters.thread import Recorder
from supervisor.features.recorder.settings import RecorderSettings


def part(world: World) -> Part:
    def most_mb() -> int:
        return world.settings().of(RecorderSettings).max_mb

    recorder = Recorder(Path(world.paths.recording), world.readings, most_mb, world.clock)
    return Part(start=recorder.start, stop=recorder.stop)
