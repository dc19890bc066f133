"""The files of a state directory for the pages: the same with a daemon and without one (`reports/sources.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from supervisor.adapters.copies import shown
from supervisor.adapters.host.clock import local_zone
from supervisor.adapters.process.results_reader import survey
from supervisor.adapters.recorder import events, store
from supervisor.model.recording import Drawn, Row, Sheet, Track
from supervisor.model.settings import Paths
from supervisor.policy.upkeep.resolution import Held, Tier
from supervisor.reports.sources import NewestResult


class StateFiles:
    """The part of `reports.sources.Sources` that only reads files; each is read when a page needs it."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    def zone(self, wall_s: float) -> tuple[str, float]:
        return local_zone(wall_s)

    def recorded(self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterator[Row]:
        return store.read(Path(self.paths.recording), sheet, tier, since_s, until_s, subjects)

    def recorded_tracks(
        self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]
    ) -> dict[tuple[str, ...], Track]:  # fmt: skip
        return store.tracks(Path(self.paths.recording), sheet, tier, since_s, until_s, subjects)

    def recorded_held(
        self, sheet: Sheet, since_s: float, until_s: float, subjects: Sequence[str], enough: int
    ) -> list[Held]:  # fmt: skip
        return store.held(Path(self.paths.recording), sheet, since_s, until_s, subjects, enough)

    def recorded_names(self) -> set[str]:
        return store.names(Path(self.paths.recording))

    def drawn(self, program: str, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> Iterator[Drawn]:
        return events.read(Path(self.paths.run_dir(program)), names, since_wall_s, until_wall_s)

    def results(self) -> list[NewestResult]:
        return survey(Path(self.paths.programs))

    def backups(self) -> list[dict[str, Any]]:
        return shown.rows(Path(self.paths.backups))

    def check_backup(self, name: str) -> str:
        return shown.check(Path(self.paths.backups), name)
