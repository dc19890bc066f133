"""Reads the newest complete evaluation of every run in a state directory, from the `results.csv` that its worker wrote.

The worker's file is not trusted: the reader follows no link, waits for no FIFO, and reads only the titles and the end of the
file, where the newest evaluation is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from supervisor.files import held, open_regular
from supervisor.reports.sources import NewestResult
from workers import results
from workers.scores import human_normalised

_HEAD_BYTES: Final = 4096
_TAIL_BYTES: Final = 2 * 2**20


def survey(programs: Path) -> list[NewestResult]:
    """The newest result of each run below `programs`. A file that can't be read, or makes no sense, is left out."""
    try:
        runs = sorted(programs.iterdir())
    except OSError:
        return []
    return [found for run in runs if (found := newest(run.name, run / results.RESULTS_FILE)) is not None]


def newest(program: str, path: Path) -> NewestResult | None:
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
