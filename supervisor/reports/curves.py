"""Curves: recorded series over time. Stretches that a resume took back are marked as not kept.

A worker that dies at step 5,000 and resumes at its checkpoint of step 4,000 computes 1,000 steps again. A curve over steps
would then run backwards. So each point says whether it is *kept*: whether no later attempt of the program began below its
step. A reader draws kept points as the curve, and the others faintly or not at all. A row of a long period may be kept in
part: then its point is kept if more than half of it is, at the last step that is kept, and `lost` has the steps of every
point that were computed in vain.

Points before a program's first recorded row come from the event files of its workers, if there are any. They are the first
`from_files` points of the program. Their phase, level and attempt are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from supervisor.model.recording import OF_ATTEMPTS, PROGRAMS, Drawn, Row, Series, Sheet, Track, folded, places_of
from supervisor.policy.box.readings import Spread
from supervisor.policy.upkeep.resolution import bucket_of

Json = dict[str, Any]
Tracks = Mapping[tuple[str, ...], Track]

MOST_SERIES: Final = 20
_FILE: Final = "file "  # prefix for the token of an attempt that is known only from event files
_ATTEMPT, _STEPS, _RESUMED = "attempt", "env_steps", "resumed_step"


def needed(sheet: Sheet, names: Sequence[str]) -> Sheet:
    """The sheet with only the series that `curves_view` needs for `names`."""
    return sheet.only({*names, *OF_ATTEMPTS})


def numbers(sheet: Sheet, names: Collection[str]) -> int:
    """Number of values of a row in `curves_view`. Example: 9 for programs, and 3 more for the mean return and its ends."""
    usual = 4 if sheet.name == PROGRAMS.name else 0  # attempt, steps, kept, lost
    return 2 + len(sheet.words) + usual + sum(3 if each.ends else 1 for each in sheet.series if each.name in names)


def with_own(tracks: Tracks, figures: Tracks, names: Collection[str], *, by_attempt: bool) -> None:
    """Add the requested figures with scripts' own names to the tracks of their programs.

    `figures` are the tracks of the sheet of such figures, for the same time and period.
    """
    places = {keys: _places(track, by_attempt=by_attempt) for keys, track in tracks.items()}
    for track in tracks.values():
        track.values.update((name, [None] * len(track.at_s)) for name in names)
    for (program, label), found in figures.items():
        if (program,) in tracks:
            spots = [places[program,].get(moment) for moment in _moments(found, by_attempt=by_attempt)]
            columns = places_of(label)
            for name in names:
                _spread_out(found.values.get(columns.get(name, "")) or (), spots, tracks[program,].values[name])


def _moments(track: Track, *, by_attempt: bool) -> Iterable[tuple[float, str]]:
    return zip(track.at_s, (keys[-1] if by_attempt else "" for keys in track.keys), strict=True)


def _places(track: Track, *, by_attempt: bool) -> Mapping[tuple[float, str], int]:
    return {moment: place for place, moment in enumerate(_moments(track, by_attempt=by_attempt))}


def _spread_out(values: Sequence[float | None], spots: Sequence[int | None], column: list[float | None]) -> None:
    for value, spot in zip(values, spots, strict=False):
        if value is not None and spot is not None:
            column[spot] = value


def curves_view(sheet: Sheet, tracks: Tracks, names: Sequence[str]) -> list[Json]:
    """One entry a subject: its keys, and lists of equal length, oldest first: times, words, series. None is "not known"."""
    series = [each for each in sheet.series if each.name in names]
    return [_subject(sheet, keys, found, series) for keys, found in sorted(tracks.items())]


def from_files(
    points: Iterable[Drawn], program: str, at_of: Callable[[float], float], until_s: float, period_s: float,
    first: Row | None = None,
) -> list[Row]:  # fmt: skip
    """Convert points of event files before `until_s` to rows of the sheet of programs, folded by period.

    Each start of a worker is an attempt; the newest one may be that of `first`, the program's first recorded row.
    `at_of` converts a wall-clock time to journal time.
    """
    held: dict[tuple[float, int], list[Row]] = {}
    for point in points:
        at_s = at_of(point.wall_s)
        if at_s < until_s:
            values = {**point.values, _STEPS: float(point.step), _RESUMED: point.resumed_step}
            row = Row(at_s, point.wall_s, (program, f"{_FILE}{point.start}"), (None, None, None), values)
            held.setdefault((bucket_of(at_s, period_s), point.start), []).append(row)
    found = [folded(PROGRAMS, at_s, rows) for (at_s, _), rows in sorted(held.items())]
    if first is None or not found or found[-1].values.get(_RESUMED) != first.values.get(_RESUMED):
        return found
    newest = found[-1].keys
    return [row._replace(keys=first.keys) if row.keys == newest else row for row in found]


def _subject(sheet: Sheet, keys: tuple[str, ...], track: Track, series: Sequence[Series]) -> Json:
    entry: Json = {
        **dict(zip(sheet.keys, keys, strict=False)),
        "at_s": track.at_s,
        "wall_s": track.wall_s,
        **{word: [words[place] for words in track.words] for place, word in enumerate(sheet.words)},
    }
    if sheet.name == PROGRAMS.name:
        found = track.fates()
        ends = [min(each.end, each.bound) if each.end is not None and each.kept else each.end for each in found]
        entry |= {
            _ATTEMPT: track.values[_ATTEMPT], _STEPS: ends,
            "kept": [each.kept for each in found], "lost": [each.lost for each in found],
        }  # fmt: skip
        entry["from_files"] = sum(words[0] is None for words in track.words)
    entry["series"] = {each.name: _drawn(track, each) for each in series}
    return entry


def _drawn(track: Track, series: Series) -> Json:
    values = track.values[series.name]
    if series.counted:
        return {"newest": values}
    if not series.ends:
        return {"mean": values}
    least, most = track.ends[series.name]
    return {"least": least, "mean": values, "most": most}


def columns(sheet: Sheet) -> list[str]:
    """The names of the columns of `as_table`."""
    measured = [name for each in sheet.series for name in _names(each)]
    return ["at_s", "wall_s", "readings", *sheet.keys, *sheet.words, *measured]


def as_table(sheet: Sheet, rows: Iterable[Row]) -> list[list[Any]]:
    """All values of the rows, one list per row, in the order of `columns`."""
    series = [(each.name, each.ends) for each in sheet.series]
    return [_line(row, series) for row in rows]


def _names(series: Series) -> tuple[str, ...]:
    return (series.name,) if not series.ends else (series.name, f"{series.name}_least", f"{series.name}_most")


def _line(row: Row, series: Sequence[tuple[str, bool]]) -> list[Any]:
    line = [row.at_s, row.wall_s, row.readings, *row.keys, *row.words]
    get = row.values.get
    for name, ends in series:
        value = get(name)
        if isinstance(value, Spread):
            line += (value.mean, value.least, value.most) if ends else (value.mean,)
        elif ends:
            line += (value, value, value)
        else:
            line.append(value)
    return line
