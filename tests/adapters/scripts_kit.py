"""A state directory with its backups, and scripts whose checkpoints lie in directories of their own."""

from __future__ import annotations

from pathlib import Path

from test_own_checkpoints import spec

from supervisor.adapters.copies import store
from supervisor.adapters.copies.store import BackupInfo, NothingToBackUp, Task
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

    def run_dirs(self, *names: str) -> dict[str, Path]:
        return {name: self.directory / "state" / "programs" / name for name in names or self.places}

    def make(
        self, *names: str, name: str = "b1", wall_s: float = 1.5e9, task: Task | None = None, every: bool = False
    ) -> BackupInfo:
        return store.make(
            self.root, name, self.run_dirs(*names), label="Before Friday", cause="operator", wall_s=wall_s,
            task=task or Task(), every=every, places=self.places,
        )  # fmt: skip

    def back(self, *names: str, name: str = "b1", kept: str = "kept") -> dict[str, int | None]:
        info = store.find(self.root, name)
        names = names or tuple(info.steps)

        def keep() -> BackupInfo | None:
            try:
                return self.make(*names, name=kept, every=True)
            except NothingToBackUp:
                return None

        return store.restore(info, self.run_dirs(*names), keep, Task(), self.places)
