"""The thread that records, and what it reads."""

from __future__ import annotations

from pathlib import Path

from supervisor.adapters.parts import Part, World
from supervisor.features.recorder.adapters.thread import Recorder
from supervisor.features.recorder.rules.readings import readings
from supervisor.features.recorder.rules.recording import Row
from supervisor.features.recorder.settings import RecorderSettings


def part(world: World) -> Part:
    def most_mb() -> int:
        return world.settings().of(RecorderSettings).max_mb

    def take() -> dict[str, list[Row]]:
        found = world.sources()
        return readings(found.state, found.memory, now_s=world.clock.now_s(), wall_s=world.clock.wall_s())

    recorder = Recorder(Path(world.paths.recording), take, most_mb, world.clock)
    return Part(start=recorder.start, stop=recorder.stop)
