"""The files of a state directory for the pages: the same with a daemon and without one (`reports/sources.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from supervisor.adapters.copies import store as backups
from supervisor.adapters.host.clock import local_zone
from supervisor.adapters.journal.archive import read_lasting
from supervisor.adapters.journal.summaries import Summaries
from supervisor.adapters.process.results_reader import survey
from supervisor.adapters.recorder import events, store
from supervisor.model.facts import Stamped
from supervisor.model.recording import Drawn, Row, Sheet, Track, tracks_of
from supervisor.model.settings import Paths
from supervisor.policy.upkeep.resolution import Held, Tier
from supervisor.reports.digest import Digest, Later
from supervisor.reports.incidents import Facts, Incident
from supervisor.reports.lanes import Lanes
from supervisor.reports.ledger import Ledger
from supervisor.reports.sources import NewestResult

T = TypeVar("T")


class StateFiles:
    """The part of `reports.sources.Sources` that only reads files; each is read when a page needs it."""

    def __init__(self, paths: Paths, summaries: Summaries) -> None:
        self.paths, self._summaries = paths, summaries

    def up_to_now(self, ledger: Ledger) -> tuple[Ledger, float]:
        """A copy of the ledger that is closed now, and the wall clock's time: only a side with a clock has it."""
        raise NotImplementedError

    def readable(self) -> AbstractContextManager[None]:
        """Turns the errors of an unreadable journal into those of this side."""
        return nullcontext()

    def closed(self, figures: Callable[[Ledger, float], T]) -> T:
        def close(digest: Digest, _: Facts) -> Later[T]:
            return partial(figures, *self.up_to_now(digest.ledger))

        with self.readable():
            return self._summaries.ask(close)

    def incidents(
        self, since_s: float, until_s: float, program: str | None, view: Callable[[Iterable[Incident]], T]
    ) -> T:  # fmt: skip
        def question(digest: Digest, rows: Facts) -> Later[T]:
            found = digest.incidents(since_s, until_s, program, rows)
            return lambda: view(found())

        with self.readable():
            return self._summaries.ask(question)

    def lanes(self, now_s: float, since_s: float, until_s: float) -> Lanes:
        with self.readable():
            return self._summaries.ask(lambda digest, _: digest.lanes(now_s, since_s, until_s))

    def facts(self, after_seq: int, kinds: Sequence[str], program: str | None, limit: int) -> Iterator[Stamped]:
        with self.readable(), self._summaries.reader() as reader:
            own = reader.search(after_seq, kinds, program, limit)
            return read_lasting(Path(self.paths.journal), own, after_seq, kinds)

    def zone(self, wall_s: float) -> tuple[str, float]:
        return local_zone(wall_s)

    def recorded(self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterator[Row]:
        return store.read(Path(self.paths.recording), sheet, tier, since_s, until_s, subjects)

    def recorded_tracks(self, sheet: Sheet, *window: Any) -> dict[tuple[str, ...], Track]:
        return tracks_of(sheet, self.recorded(sheet, *window))

    def recorded_held(
        self, sheet: Sheet, since_s: float, until_s: float, subjects: Sequence[str], enough: int
    ) -> list[Held]:  # fmt: skip
        with suppress(FileNotFoundError), store.RecordingReader(Path(self.paths.recording)) as reader:
            return reader.held(sheet, since_s, until_s, subjects, enough)
        return []

    def recorded_names(self) -> set[str]:
        with suppress(FileNotFoundError), store.RecordingReader(Path(self.paths.recording)) as reader:
            return reader.names()
        return set()

    def drawn(self, program: str, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> Iterator[Drawn]:
        return events.read(Path(self.paths.run_dir(program)), names, since_wall_s, until_wall_s)

    def results(self) -> list[NewestResult]:
        return survey(Path(self.paths.programs))

    def backups(self) -> list[dict[str, Any]]:
        root = Path(self.paths.backups)
        return [
            {
                "name": info.name, "label": info.label, "cause": info.cause, "method": info.method, "error": info.error,
                "created_wall_s": None if info.error else info.created_wall_s,
                "size_bytes": None if info.error else info.size_bytes,
                "programs": [
                    {"name": saved.program, "steps": saved.env_steps, "checkpoints": len(saved.checkpoints),
                     "size_bytes": saved.size_bytes, "results": saved.results is not None}
                    for saved in info.programs
                ],
            }
            for info in backups.survey(root)
        ]  # fmt: skip

    def check_backup(self, name: str) -> str:
        try:
            return backups.verify(backups.find(Path(self.paths.backups), name))
        except backups.BackupError as error:
            return str(error)
