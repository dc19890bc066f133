"""A state directory with scripts whose checkpoints lie in directories of their own."""

from __future__ import annotations

from pathlib import Path

from test_own_checkpoints import spec

from supervisor.adapters.process.own_checkpoints import Place, place_of


class ScriptsBox:
    """Knows where each script that was made in it keeps its checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "state" / "backups"
        self.places: dict[str, Place] = {}

    def script(self, name: str, glob: str = "*.pt", step: str = r"(\d+)") -> Path:
        work = self.directory / name
        work.mkdir()
        place = place_of(spec(work, glob, step), "/nowhere")
        assert place is not None
        self.places[name] = place
        return work
