"""The files of a state directory for the pages: the same with a daemon and without one (`reports/sources.py`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

from supervisor import discovery
from supervisor.adapters.copies import store as backups
from supervisor.adapters.host.clock import local_zone
from supervisor.adapters.journal.archive import read_lasting
from supervisor.adapters.summaries import Summaries
from supervisor.files import held, open_regular
from supervisor.model.facts import Stamped
from supervisor.model.settings import Paths
from supervisor.reports.incidents import Incident
from supervisor.reports.lanes import Lanes
from supervisor.reports.ledger import Ledger
from supervisor.reports.sources import NewestResult
from workers import results
from workers.scores import human_normalised

_HEAD_BYTES: Final = 4096
_TAIL_BYTES: Final = 2 * 2**20

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

    def closed(self) -> tuple[Ledger, float]:
        with self.readable():
            return self._summaries.ask(lambda digest: self.up_to_now(digest.ledger))

    def incidents(self, since_s: float, until_s: float, program: str | None, view: Callable[[Iterable[Incident]], T]) -> T:
        with self.readable():
            rows = self._summaries.rows
            return view(self._summaries.ask(lambda digest: digest.incidents.between(since_s, until_s, rows, program))())

    def lanes(self, now_s: float, since_s: float, until_s: float) -> Lanes:
        with self.readable():
            return self._summaries.ask(lambda digest: digest.lanes.lanes(now_s, since_s, until_s))

    def facts(self, after_seq: int, kinds: Sequence[str], program: str | None, limit: int) -> Iterator[Stamped]:
        with self.readable(), self._summaries.reader() as reader:
            own = reader.search(after_seq, kinds, program, limit)
            return read_lasting(Path(self.paths.journal), own, after_seq, kinds)

    def zone(self, wall_s: float) -> tuple[str, float]:
        return local_zone(wall_s)

    def of(self, kind: type[T]) -> T:
        found: T = _of_features()[kind](self.paths)
        return found

    def results(self) -> list[NewestResult]:
        return newest_results(Path(self.paths.programs))

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


@functools.cache
def _of_features() -> dict[Any, Callable[[Paths], Any]]:
    return dict(discovery.entries("sources", "SOURCES"))


# --- results --------------------------------------------------------------------------------------------------------------
# A worker's `results.csv` is not trusted: no link is followed, no FIFO is waited for, and only the titles and the end of the
# file are read, where the newest evaluation is.


def newest_results(programs: Path) -> list[NewestResult]:
    """The newest result of each run below `programs`. A file that can't be read, or makes no sense, is left out."""
    try:
        runs = sorted(programs.iterdir())
    except OSError:
        return []
    return [found for run in runs if (found := newest_result(run.name, run / results.RESULTS_FILE)) is not None]


def newest_result(program: str, path: Path) -> NewestResult | None:
    """The newest result of one run. The human-normalised score is that of the mean return, by this version's table."""
    try:
        text = _ends(path).decode("utf-8", "replace")
    except OSError:
        return None
    for found in reversed(results.evaluations(results.parse(text))):
        if found.whole:
            row = found.first
            return NewestResult(
                program, row.game, row.algo, row.resolution, row.seed, row.env_steps, len(found.rows), found.mean_return,
                human_normalised(row.game, found.mean_return), row.hours_trained,
            )  # fmt: skip
    return None


def _ends(path: Path) -> bytes:
    """The line with the titles, and the whole lines within the last two megabytes."""
    with held(open_regular(path)) as fd:
        size = os.fstat(fd).st_size
        if size <= _TAIL_BYTES:
            return os.pread(fd, size, 0)
        titles, _, _ = os.pread(fd, _HEAD_BYTES, 0).partition(b"\n")
        _, _, lines = os.pread(fd, _TAIL_BYTES, size - _TAIL_BYTES).partition(b"\n")
        return titles + b"\n" + lines
