"""The data that the recorder stores: sheets of series, with one row per subject and period.

A row of the finest tier is one reading. A row of a coarser tier is the fold of the rows of its period: for a measured
series the least, mean and most, for a counted one the newest value. None is "not known" and is left out of a fold.

The columns of a sheet are fixed. Figures with a script's own names (`kl`, `success_rate`) have a sheet of their own.
There all names together, a line each, are one of the keys, and the values have numbered columns, in the order of the
names. So a figure costs eight bytes a row, and a program that reports other figures than before is another subject.

Why 16 of them: 20 scripts take 58 MiB in 30 days; with 32 columns 82 MiB. One row per figure is several times as large.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple

from supervisor.features.recorder.rules.resolution import bucket_of
from supervisor.policy.box.readings import OF_A_GPU, OF_THE_HOST, Spread
from supervisor.records import Record, replace
from workers.contract import FIGURES


class Series(Record):
    """One column of numbers. `counted`: a total or a state, of which a fold takes the newest value.

    Of other series, which are measured, a fold takes the mean; with `ends` also the least and the most.
    """

    name: str
    unit: str
    help: str
    counted: bool = False
    ends: bool = False


class Sheet(Record):
    """One table: the columns that identify the subject of a row (`keys`), its text columns (`words`), and its series."""

    name: str
    keys: tuple[str, ...]
    words: tuple[str, ...]
    series: tuple[Series, ...]
    usual: tuple[str, ...]  # the series that are drawn by default

    @property
    def by_track(self) -> int:
        """The number of keys, counted from the first, that identify a track. The attempt does not."""
        return len(self.keys) - (_ATTEMPT in self.keys)

    def only(self, names: Collection[str]) -> Sheet:
        """The same sheet with fewer series: the time to read a row grows with its number of columns."""
        return replace(self, series=tuple(series for series in self.series if series.name in names))

    def also(self, names: Iterable[str]) -> Sheet:
        """The same sheet with more series: figures with a script's own names."""
        return replace(self, series=(*self.series, *(Series(name, "", "") for name in names)))


class Row(NamedTuple):
    """One subject in one period that began at `at_s` (journal time). `readings` is the number of readings in it."""

    at_s: float
    wall_s: float  # of the newest reading
    keys: tuple[str, ...]
    words: tuple[str | None, ...]
    values: Mapping[str, float | Spread | None]
    readings: int = 1


class Drawn(Record):
    """One point of the curves that a built-in worker writes for TensorBoard. `start` counts the worker's starts."""

    start: int
    resumed_step: int | None  # the step at which that start resumed
    wall_s: float
    step: int
    values: Mapping[str, float]  # by the names of the sheet of programs


_TAGS: Final = {
    "mean_return": "play/mean_return", "episodes": "play/episodes", "steps_per_s": "speed/steps_per_s",
    "test_return": "test/return",
}  # fmt: skip


def tag_of(name: str) -> str:
    """The TensorBoard tag under which a worker writes a series (`workers/records.py`). Example: `loss` is `learn/loss`."""
    share = name.removeprefix("share_")
    return _TAGS.get(name) or (f"time/{share}" if share != name else f"learn/{name}")


_ATTEMPT: Final = "token"  # the last key of stored sheets that distinguish attempts
_RESUMED: Final = "resumed_step"  # of several attempts the lowest counts: later steps were rolled back
_NEWEST, _STEP = "attempt", "env_steps"
FIRST, _BEGAN, _AGAIN, _LOST = "first_attempt", "first_steps", "resumed_within", "lost_steps"
_OF_FOLDS: Final = (FIRST, _BEGAN, _AGAIN, _LOST)
OF_ATTEMPTS: Final = (_NEWEST, _STEP, _RESUMED, *_OF_FOLDS)  # the columns that `fates` needs

# Facts hold these figures: they change at most once per attempt.
_NOT_RECORDED: Final = {
    "target", "ckpt_step", "ckpt_ns", "ckpt_count", "ckpt_bad_count", "q_bound", "first_return", "best_spread",
}  # fmt: skip


# Series in which spikes within a period matter. Least and most of all other series would double the file.
_WITH_ENDS: Final = {"mean_return", "loss", "steps_per_s", "q_max_abs", "grad_norm", "rss_bytes", "cuda_bytes"}


def _measured(name: str, unit: str, said: str) -> Series:
    return Series(name, unit, said, ends=True)


PROGRAMS: Final = Sheet(
    "programs", ("program", _ATTEMPT), ("phase", "worker_phase", "level"),
    (
        *(  # floats and memory sizes are measured: they may go up and down within a period
            Series(name, each.unit, each.help, counted=each.code != "d" and each.unit != "bytes", ends=name in _WITH_ENDS)
            for name, each in FIGURES.items() if name not in _NOT_RECORDED
        ),
        _measured("memory_bytes", "bytes", "memory of its cgroup, page cache included"),
        Series(_NEWEST, "", "number of the attempt", counted=True),
        # Of folded rows; `fates` explains them.
        Series(FIRST, "", "number of the first attempt in the period", counted=True),
        Series(_BEGAN, "steps", "the first known steps in the period", counted=True),
        Series(_AGAIN, "steps", "lowest step at which an attempt after the first one resumed", counted=True),
        Series(_LOST, "steps", "steps of the period that later attempts of the same period computed again", counted=True),
    ),
    ("mean_return", "steps_per_s", "loss"),
)  # fmt: skip
HOST: Final = Sheet(
    "host", (), ("level",), tuple(_measured(name, *meant) for name, meant in OF_THE_HOST.items()),
    ("available_bytes", "memory_full", "io_full"),
)  # fmt: skip
GPUS: Final = Sheet(
    "gpus", ("gpu", "worker_phase"), ("reasons",),  # the phase is empty for the GPU as a whole
    tuple(_measured(name, *meant) for name, meant in OF_A_GPU.items()),
    ("used_bytes", "utilisation", "temperature_c"),
)  # fmt: skip
_STEPS: Final = next(series for series in PROGRAMS.series if series.name == "env_steps")
# Maximum per program, the first by name: so 20 scripts need as much space as 20 built-in programs.
MOST_OF_ITS_OWN: Final = 16
_PLACES: Final = tuple(f"value{place}" for place in range(MOST_OF_ITS_OWN))
FIGURES_OF_ITS_OWN: Final = Sheet(
    "figures", ("program", "names", _ATTEMPT), (), (_STEPS, *(Series(place, "", "") for place in _PLACES)), ()
)  # fmt: skip
ONE_BY_ONE: Final = Sheet(  # the same for display: one row per figure
    "figures", ("program", _ATTEMPT, "figure"), (), (_STEPS, Series("value", "", "a figure of the script's own")), ()
)  # fmt: skip
SHEETS: Final[dict[str, Sheet]] = {sheet.name: sheet for sheet in (PROGRAMS, FIGURES_OF_ITS_OWN, HOST, GPUS)}


def as_places(at_s: float, wall_s: float, program: str, token: str, steps: float | None, own: Mapping[str, float]) -> Row:
    """Figures with a script's own names as one row of their sheet. Example: kl and success_rate are value0 and value1."""
    names = sorted(own)[:MOST_OF_ITS_OWN]
    values = {_STEPS.name: steps, **{place: own[name] for place, name in zip(_PLACES, names, strict=False)}}
    return Row(at_s, wall_s, (program, "\n".join(names), token), (), values)


@functools.lru_cache(maxsize=64)
def places_of(names: str) -> Mapping[str, str]:
    """The column of each figure in a row of that sheet, from the row's key `names`."""
    return dict(zip(names.split("\n"), _PLACES, strict=False))


def by_name(row: Row) -> dict[str, float]:
    """The inverse of `as_places`: the known figures of a row by name."""
    known = ((name, row.values.get(place)) for name, place in places_of(row.keys[1]).items())
    return {name: as_spread(value).mean for name, value in known if value is not None}


def one_by_one(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of that sheet, each split into one row per figure."""
    for row in rows:
        program, _, token = row.keys
        for name, value in by_name(row).items():
            values = {_STEPS.name: row.values.get(_STEPS.name), "value": value}
            yield row._replace(keys=(program, token, name), values=values)


def folded(sheet: Sheet, at_s: float, rows: Sequence[Row]) -> Row:
    """One row for a period that begins at `at_s`, from the rows of one subject in it, oldest first; at least one.

    With several attempts it has the keys of the newest.
    """
    newest, values = rows[-1], dict[str, float | Spread | None]()
    for series in sheet.series:
        name = series.name
        known = [(value, row.readings) for row in rows if (value := row.values.get(name)) is not None]
        if known:
            values[name] = _fold(series, known)
    if FIRST in values:
        columns = [[row.values.get(name) for row in rows] for name in OF_ATTEMPTS]
        values |= _of_attempts([row.keys[-1] for row in rows], columns)
    return Row(at_s, newest.wall_s, newest.keys, newest.words, values, sum(row.readings for row in rows))


def _fold(series: Series, known: Sequence[tuple[float | Spread, int]]) -> float | Spread:
    """The folded value of (value, number of readings) pairs; a mean is weighted by its number of readings."""
    if series.name == _RESUMED:
        return min(_mean(value) for value, _ in known)
    if series.counted:
        return known[-1][0]
    readings = sum([count for _, count in known])
    if not series.ends:
        return sum([_mean(value) * count for value, count in known]) / readings
    spreads = [as_spread(value) for value, _ in known]
    mean = sum([each.mean * count for each, (_, count) in zip(spreads, known, strict=True)]) / readings
    return Spread(min([each.least for each in spreads]), mean, max([each.most for each in spreads]))


def _average(known: Sequence[float]) -> float:
    return sum(known) / len(known)


class Fate(NamedTuple):
    """What became of the steps `low` to `end` of one row. None: unknown."""

    low: float | None
    end: float | None
    bound: float  # attempts that began later have taken back what lies above
    began: float | None  # lowest step at which an attempt began in this row; inf: none began
    lost: float | None  # steps of this row that were computed in vain

    @property
    def kept(self) -> bool:
        """Whether the newest attempt builds on more than half of the row, as far as that is known."""
        if self.end is None or self.low is None or self.end <= self.bound:
            return True
        return self.bound - self.low > self.end - self.bound


def fates(tokens: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Fate]:
    """What later attempts took back, for rows of one program, oldest first. `columns`: those of OF_ATTEMPTS.

    Attempt 1 has rows at the steps 1,000 and 2,000, attempt 2 resumed at 1,900 and has a row at 2,500. Of the second row
    1,000 to 1,900 is kept and 100 steps are lost. A row of several attempts has its own losses in `lost_steps`; earlier rows
    need only the lowest step at which one of its attempts began.

    Of rows of several attempts that are older than these columns it is unknown which attempt was the first, what they lost
    and what they took back.
    """
    found: list[Fate] = []
    bound, sure = inf, True
    for low, end, began, within in reversed([*_extents(tokens, columns)]):
        lost = None if end is None or low is None or not sure else within + max(0.0, end - max(bound, low))
        found.append(Fate(low, end, bound, began, lost))
        sure = began is not None
        bound = min(bound, inf if began is None else began)
    return found[::-1]


def _extents(tokens: Sequence[str], columns: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, Any, Any, float]]:
    """(low, end, began, lost within) of each row. It goes on from the row before, or begins where its attempt resumed."""
    before: tuple[str, float | None, float | None] = "", None, None  # token, attempt, steps
    for place, (token, attempt, end, resumed, first, start, again, lost) in enumerate(zip(tokens, *columns, strict=True)):
        goes_on = token == before[0] or (first is not None and first == before[1])
        known = before[2] if goes_on else None
        begin = _least(end if start is None else start, resumed if place else None)
        if first is None and attempt is not None and not goes_on:
            yield None, end, None, 0.0
        elif place == 0 or known is not None:
            yield _least(begin if known is None else known, again), end, inf if again is None else again, lost or 0.0
        else:
            began = _least(begin, again)
            yield began, end, inf if began is None else began, lost or 0.0
        before = token, attempt, known if end is None else end


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _of_attempts(tokens: Sequence[str], columns: Sequence[Sequence[Any]]) -> dict[str, float | None]:
    """The columns of a folded row that its attempts determine; None where one of its rows does not know them."""
    *_, firsts, starts, agains, _ = columns
    first = firsts[0]
    if first is not None and tokens[0] == tokens[-1] and agains.count(None) == len(tokens):  # the usual case, and quick
        return {FIRST: first, _BEGAN: columns[1][0] if starts[0] is None else starts[0], _AGAIN: None, _LOST: 0.0}
    found = fates(tokens, columns)
    if first is None or any(each.began is None for each in found):
        return dict.fromkeys(_OF_FOLDS)
    again = min(each.began for each in found if each.began is not None)
    start = next((each.low for each in found if each.low is not None), None)
    lost = sum(each.lost or 0.0 for each in found)
    return {FIRST: first, _BEGAN: start, _AGAIN: None if again == inf else again, _LOST: lost}


def in_periods(sheet: Sheet, period_s: float, rows: Iterable[Row], *, by_attempt: bool) -> Iterator[Row]:
    """Rows folded by period and subject. They must come oldest first."""
    for at_s, held in itertools.groupby(rows, lambda row: bucket_of(row.at_s, period_s)):
        yield from (folded(sheet, at_s, each) for each in by_subject(sheet, held, by_attempt=by_attempt).values())


def by_subject(sheet: Sheet, rows: Iterable[Row], *, by_attempt: bool = True) -> dict[tuple[str, ...], list[Row]]:
    """The rows of each subject, in their order. Without `by_attempt` all attempts of a program are one subject."""
    found: dict[tuple[str, ...], list[Row]] = {}
    count = len(sheet.keys) if by_attempt else sheet.by_track
    for row in rows:
        found.setdefault(row.keys[:count], []).append(row)
    return found


def as_spread(value: float | Spread) -> Spread:
    return value if isinstance(value, Spread) else Spread(value, value, value)


def _mean(value: float | Spread) -> float:
    return value.mean if isinstance(value, Spread) else value


@dataclass(slots=True)
class Track:
    """The rows of one subject as lists of equal length, oldest first: the data of a curve."""

    at_s: list[float]
    wall_s: list[float]
    keys: list[tuple[str, ...]]
    words: list[tuple[str | None, ...]]
    values: dict[str, list[float | None]]  # by series: the mean, or the newest value
    ends: dict[str, tuple[list[float | None], list[float | None]]]  # by series with `ends`: the least, the most

    @classmethod
    def empty(cls, sheet: Sheet) -> Track:
        ends: dict[str, tuple[list[float | None], list[float | None]]]
        ends = {series.name: ([], []) for series in sheet.series if series.ends}
        return cls([], [], [], [], {series.name: [] for series in sheet.series}, ends)

    def append(self, row: Row) -> None:
        self.at_s.append(row.at_s)
        self.wall_s.append(row.wall_s)
        self.keys.append(row.keys)
        self.words.append(row.words)
        for name, column in self.values.items():
            value = row.values.get(name)
            column.append(value.mean if isinstance(value, Spread) else value)
            if name in self.ends:
                least, most = self.ends[name]
                least.append(value.least if isinstance(value, Spread) else value)
                most.append(value.most if isinstance(value, Spread) else value)

    def thinned(self, sheet: Sheet, period_s: float) -> Track:
        """All rows of a period as one. Every mean counts alike, whatever its number of readings: they are neighbours."""
        buckets = [bucket_of(at_s, period_s) for at_s in self.at_s]
        begins = [place for place, at_s in enumerate(buckets) if not place or at_s != buckets[place - 1]]
        spans = [*itertools.pairwise([*begins, len(buckets)])]
        ways = {series.name: itemgetter(-1) if series.counted else _average for series in sheet.series} | {_RESUMED: min}
        values = {name: _each(spans, column, ways[name]) for name, column in self.values.items()}
        if FIRST in values:
            tokens, columns = [keys[-1] for keys in self.keys], [self.values[name] for name in OF_ATTEMPTS]
            found = [_of_attempts(tokens[begin:end], [column[begin:end] for column in columns]) for begin, end in spans]
            values |= {name: [each[name] for each in found] for name in _OF_FOLDS}
        newest = [end - 1 for _, end in spans]
        return Track(
            [buckets[place] for place in begins], [self.wall_s[place] for place in newest],
            [self.keys[place] for place in newest], [self.words[place] for place in newest], values,
            {name: (_each(spans, low, min), _each(spans, high, max)) for name, (low, high) in self.ends.items()},
        )  # fmt: skip

    def fates(self) -> list[Fate]:
        """For the rows of a program: what later attempts took back."""
        return fates([keys[-1] for keys in self.keys], [self.values[name] for name in OF_ATTEMPTS])

    def first(self) -> Row:
        """The first row of a track that is not empty, without the ends of its series."""
        values = {name: column[0] for name, column in self.values.items()}
        return Row(self.at_s[0], self.wall_s[0], self.keys[0], self.words[0], values)

    def after(self, earlier: Track) -> Track:
        """This track appended to an earlier track of the same subject and series."""
        return Track(
            earlier.at_s + self.at_s, earlier.wall_s + self.wall_s, earlier.keys + self.keys, earlier.words + self.words,
            {name: earlier.values[name] + column for name, column in self.values.items()},
            {name: (earlier.ends[name][0] + low, earlier.ends[name][1] + high) for name, (low, high) in self.ends.items()},
        )  # fmt: skip


def _each(
    spans: Iterable[tuple[int, int]], column: Sequence[float | None], way: Callable[[list[float]], float]
) -> list[float | None]:
    """`way` of the known values of each span."""
    parts = ([value for value in column[begin:end] if value is not None] for begin, end in spans)
    return [way(known) if known else None for known in parts]


def tracks_of(sheet: Sheet, rows: Iterable[Row]) -> dict[tuple[str, ...], Track]:
    """Rows as tracks, by subject; all attempts of a program are one subject."""
    found: dict[tuple[str, ...], Track] = {}
    for row in rows:
        keys = row.keys[: sheet.by_track]
        if keys not in found:
            found[keys] = Track.empty(sheet)
        found[keys].append(row)
    return found
