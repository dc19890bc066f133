"""`results.csv` of a run directory: one row for each finished test game, oldest first.

Standard library only: the worker writes it, the daemon and `extralifectl` read it.

An *evaluation* is the adjacent rows of one seed at one number of environment steps; `games` is the planned number of
games. An interrupted evaluation has fewer rows. If the run resumes at exactly the same step, the missing games are played.
Otherwise the evaluation is dropped, because the learner that played its games no longer exists.

The whole file is replaced at each write: written aside, synced, renamed. Beyond `MOST_ROWS` rows the oldest evaluations
are removed. Unknown values are empty cells. Older files, from before periodic tests, have fewer columns and are readable.
"""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from workers.durable import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

RESULTS_FILE: Final = "results.csv"
COLUMNS: Final = (
    "program", "game", "algo", "seed", "resolution", "env_steps", "frames", "hours_trained", "episode", "return", "length",
    "hns", "games",
)  # fmt: skip
MOST_ROWS: Final = 50_000  # 5 MB
_MOST: Final = 1e15  # larger values are invalid: squares and sums must stay finite for the page of all programs
MOST_BYTES: Final = 16 * 2**20  # a reader reads no more


@dataclass(frozen=True, slots=True)
class Row:
    """One test game. `score` is the game's own, of the whole game; `length` is in environment steps."""

    program: str
    game: str
    env_steps: int
    episode: int
    score: float
    algo: str = ""
    seed: int | None = None
    resolution: int | None = None
    frames: int | None = None
    hours_trained: float | None = None
    length: int | None = None
    hns: float | None = None
    games: int | None = None

    def cells(self) -> tuple[str, ...]:
        return tuple(_cell(getattr(self, _FIELDS[column])) for column in COLUMNS)


_FIELDS: Final = {column: "score" if column == "return" else column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The test games (at least one) of one learner at one step."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def whole(self) -> bool:
        return self.first.games is None or len(self.rows) >= self.first.games

    @property
    def mean_return(self) -> float:
        return sum(row.score for row in self.rows) / len(self.rows)


def evaluations(rows: Iterable[Row]) -> list[Evaluation]:
    """The rows grouped into evaluations, oldest first."""
    return [Evaluation(tuple(group)) for _, group in groupby(rows, lambda row: (row.env_steps, row.seed))]


def parse(text: str) -> list[Row]:
    """All valid rows; any invalid row is left out."""
    rows = []
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    while True:
        try:
            cells = next(reader)
            rows.append(_row(cells))
        except StopIteration:
            return rows
        except (ValueError, KeyError, TypeError, AttributeError, csv.Error, OverflowError):
            continue


def read(path: Path) -> list[Row]:
    """The rows of a file; empty when there is no file. Raises OSError if it can't be read."""
    try:
        with path.open("rb") as file:
            return parse(file.read(MOST_BYTES).decode("utf-8", "replace"))
    except FileNotFoundError:
        return []


def text_of(rows: Iterable[Row]) -> str:
    return "".join(_line(cells) for cells in (COLUMNS, *(row.cells() for row in rows)))


def _line(cells: Iterable[object]) -> str:
    """One line of the file.

    `csv.writer` quotes a cell with CR or LF only if its line terminator contains that character: hence CR and LF here.
    """
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def bounded(rows: list[Row], most: int = MOST_ROWS) -> list[Row]:
    """The newest evaluations with at most `most` rows in total; always at least the newest one."""
    kept: list[Row] = []
    for evaluation in reversed(evaluations(rows)):
        if kept and len(kept) + len(evaluation.rows) > most:
            break
        kept = [*evaluation.rows, *kept]
    return kept


def write(path: Path, rows: Iterable[Row]) -> None:
    """All rows or none: written aside, synced, renamed."""
    aside = path.with_suffix(".tmp")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text_of(rows))
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    sync_directory(path.parent)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else str(value)


def _row(cells: Mapping[str, str]) -> Row:
    return Row(
        program=cells["program"], game=cells["game"], env_steps=_whole(cells["env_steps"]),
        episode=_whole(cells["episode"]), score=_finite(cells["return"]), algo=cells.get("algo", ""),
        **{name: _known(cells.get(name, ""), _whole) for name in ("seed", "resolution", "frames", "length", "games")},
        **{name: _known(cells.get(name, ""), _finite) for name in ("hours_trained", "hns")},
    )  # fmt: skip


def _known(text: str, kind: Any) -> Any:
    return None if text == "" else kind(text)


def _whole(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError(f"{number} is not a valid count")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not abs(number) <= _MOST:  # also true for NaN
        raise ValueError(f"{text} is not a valid score or time")
    return number
