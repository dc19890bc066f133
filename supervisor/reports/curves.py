"""Curves: what was recorded over time, with the stretches that a resume took back marked as not kept.

A worker that dies at step 5,000 and resumes at its checkpoint of step 4,000 computes 1,000 steps again. Drawn over steps,
its curve would run back. So each point says whether it is *kept*: whether no later attempt of the program began below its
step. A reader draws kept points as the curve, and the others faintly or not at all.

What a program did before its first recorded row is read from the event files of its workers, if there are any. The first
`from_files` points of a program are such points. Their phase, level and attempt are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from supervisor.model.recording import PROGRAMS, Drawn, Row, Series, Sheet, as_spread, by_name, folded
from supervisor.policy.box.readings import Spread
from supervisor.policy.upkeep.resolution import bucket_of

Json = dict[str, Any]

MOST_SERIES: Final = 20
_FILE: Final = "file "  # how the token of an attempt begins that the event files alone know
_ATTEMPT, _STEPS, _RESUMED = "attempt", "env_steps", "resumed_step"


def needed(sheet: Sheet, names: Sequence[str]) -> Sheet:
    """The sheet with the series that `curves_view` reads to draw these."""
    return sheet.only({*names, _ATTEMPT, _STEPS, _RESUMED})


def with_own(rows: Iterable[Row], figures: Iterable[Row], names: Collection[str]) -> tuple[list[Row], set[str]]:
    """Rows of programs with those figures of the scripts' own names that are asked for, and all names of such figures.

    `figures` are rows of their sheet, of the same time and period.
    """
    found: dict[tuple[float, str], dict[str, float]] = {}
    known: set[str] = set()
    for row in figures:
        told = by_name(row)
        known |= told.keys()
        found.setdefault((row.at_s, row.keys[-1]), {}).update((name, told[name]) for name in names if name in told)
    return [row._replace(values={**row.values, **found.get((row.at_s, row.keys[-1]), {})}) for row in rows], known


def curves_view(sheet: Sheet, rows: Iterable[Row], names: Sequence[str]) -> list[Json]:
    """One entry a subject: its keys, and lists of equal length, oldest first: times, words, series. None is "not known"."""
    series = [each for each in sheet.series if each.name in names]
    return [_subject(sheet, keys, found, series) for keys, found in sorted(_by_subject(sheet, rows).items())]


def from_files(
    points: Iterable[Drawn], program: str, at_of: Callable[[float], float], until_s: float, period_s: float,
    first: Row | None = None,
) -> list[Row]:  # fmt: skip
    """Points of event files up to a moment as rows of the sheet of programs, folded by period.

    Each start of a worker is an attempt; the newest one may be that of `first`, the program's first recorded row.
    `at_of` gives the journal time of a moment of the wall clock.
    """
    held: dict[tuple[float, int], list[Row]] = {}
    for point in points:
        at_s = at_of(point.wall_s)
        if at_s < until_s:
            values = {**point.values, _STEPS: float(point.step), _RESUMED: point.resumed_step}
            row = Row(at_s, point.wall_s, (program, f"{_FILE}{point.start}"), (None, None, None), values)
            held.setdefault((bucket_of(at_s, period_s), point.start), []).append(row)
    found = [folded(PROGRAMS, at_s, rows) for (at_s, _), rows in sorted(held.items())]
    if first is None or not found or _number(found[-1], _RESUMED) != _number(first, _RESUMED):
        return found
    newest = found[-1].keys
    return [row._replace(keys=first.keys) if row.keys == newest else row for row in found]


def _by_subject(sheet: Sheet, rows: Iterable[Row]) -> Mapping[tuple[str, ...], list[Row]]:
    """All attempts of a program are one subject; else each row's keys are."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(row.keys[:1] if sheet.name == PROGRAMS.name else row.keys, []).append(row)
    return found


def _subject(sheet: Sheet, keys: tuple[str, ...], rows: Sequence[Row], series: Sequence[Series]) -> Json:
    told: Json = {
        **dict(zip(sheet.keys, keys, strict=False)),
        "at_s": [row.at_s for row in rows],
        "wall_s": [row.wall_s for row in rows],
        **{word: [row.words[place] for row in rows] for place, word in enumerate(sheet.words)},
    }
    if sheet.name == PROGRAMS.name:
        told |= {_ATTEMPT: _values(rows, _ATTEMPT), _STEPS: _values(rows, _STEPS), "kept": kept(rows)}
        told["from_files"] = sum(row.words[0] is None for row in rows)
    told["series"] = {each.name: _drawn(rows, each) for each in series}
    return told


def kept(rows: Sequence[Row]) -> list[bool]:
    """Of rows of one program, oldest first: whether the steps of each are part of what the newest attempt stands on.

    Example: attempt 1 at steps 4,000 and 5,000, then attempt 2, resumed at 4,000, at 4,500: True, False, True. A row whose
    steps are not known is kept.
    """
    found: list[bool] = []
    bound, later, token = inf, inf, ""
    for row in reversed(rows):
        if row.keys[-1] != token:  # an earlier attempt: it counts as far as the later ones began
            bound, later, token = min(bound, later), inf, row.keys[-1]
        steps = _number(row, _STEPS)
        found.append(steps is None or steps <= bound)
        began = _number(row, _RESUMED)
        later = min(later, inf if steps is None else steps) if began is None else began
    return found[::-1]


def _drawn(rows: Sequence[Row], series: Series) -> Json:
    if series.counted:
        return {"newest": _values(rows, series.name)}
    if not series.ends:
        return {"mean": _values(rows, series.name)}
    spreads = [None if (value := row.values.get(series.name)) is None else as_spread(value) for row in rows]
    return {
        "least": [spread and spread.least for spread in spreads],
        "mean": [spread and spread.mean for spread in spreads],
        "most": [spread and spread.most for spread in spreads],
    }


def _values(rows: Sequence[Row], name: str) -> list[float | None]:
    return [_number(row, name) for row in rows]


def _number(row: Row, name: str) -> float | None:
    value = row.values.get(name)
    return value.mean if isinstance(value, Spread) else value


def columns(sheet: Sheet) -> list[str]:
    """The names of the columns of `as_table`."""
    measured = [name for each in sheet.series for name in _names(each)]
    return ["at_s", "wall_s", "readings", *sheet.keys, *sheet.words, *measured]


def as_table(sheet: Sheet, rows: Iterable[Row]) -> list[list[Any]]:
    """All that the rows say, one list a row in the order of `columns`."""
    return [
        [row.at_s, row.wall_s, row.readings, *row.keys, *row.words, *(v for each in sheet.series for v in _cells(row, each))]
        for row in rows
    ]


def _names(series: Series) -> tuple[str, ...]:
    return (series.name,) if not series.ends else (series.name, f"{series.name}_least", f"{series.name}_most")


def _cells(row: Row, series: Series) -> Sequence[float | None]:
    value = row.values.get(series.name)
    if value is None:
        return [None] * len(_names(series))
    spread = as_spread(value)
    return (spread.mean,) if not series.ends else (spread.mean, spread.least, spread.most)
