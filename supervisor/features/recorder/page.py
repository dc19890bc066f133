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
from itertools import islice
from math import inf, nextafter
from typing import Any, Final, Protocol

from supervisor.features.recorder.rules.recording import (
    FIGURES_OF_ITS_OWN,
    OF_ATTEMPTS,
    ONE_BY_ONE,
    PROGRAMS,
    Drawn,
    Row,
    Series,
    Sheet,
    Track,
    folded,
    one_by_one,
    places_of,
    tracks_of,
)  # fmt: skip
from supervisor.features.recorder.rules.resolution import (
    MANY_SUBJECTS,
    ONE_POINT,
    TIERS,
    Held,
    Tier,
    bucket_of,
    points_for,
    rows_for,
    tier_for,
)  # fmt: skip
from supervisor.policy.box.readings import Spread
from supervisor.reports.accounts_view import journal_s, wall_clock_of, window
from supervisor.reports.added import Added
from supervisor.reports.ledger import Ledger
from supervisor.reports.pages import BadQuery, Since
from supervisor.reports.sources import Json, Sources

Tracks = Mapping[tuple[str, ...], Track]

MOST_SERIES: Final = 20
_NOW: Final = Since(ago_s=0.0)
_FILE: Final = "file "  # prefix for the token of an attempt that is known only from event files
_ATTEMPT, _STEPS, _RESUMED = "attempt", "env_steps", "resumed_step"
_LATE_S: Final = 20.0  # a reading is on disk at the latest this long after its moment
_SECOND_ROW: Final = 14  # figures of own names are a row of another table: reading it takes as long as 14 more numbers
_GAP_S: Final = 900.0  # event files are read only if more than this is missing at the beginning
_MOST_FROM_FILES: Final = 12  # programs in one answer
_MOST_CELLS: Final = 25_000
_RETURN: Final = "mean_return"
_POINTS_OF_RETURN: Final = 500
_NUMBERS_OF_RETURN: Final = 60  # reading a row takes as long as this many numbers of an answer


class Recorded(Protocol):
    """What was recorded: nothing yet, if there is no file."""

    def rows(self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterable[Row]:
        """Rows from `since_s` to before `until_s`, oldest first, of the subjects with these first keys; empty: of all."""

    def held(self, sheet: Sheet, since_s: float, until_s: float, subjects: Sequence[str], enough: int) -> Sequence[Held]:
        """By tier: its oldest row, and its number of rows in the window, up to `enough`. Empty: nothing was recorded."""

    def names(self) -> Collection[str]:
        """Every recorded value of the key `names` of the sheet `figures` (figures of scripts' own names)."""

    def drawn(self, program: str, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> Iterable[Drawn]:
        """The points that a program's workers have drawn for TensorBoard, in a stretch of the wall clock."""


def curves(
    sources: Sources, sheet: Sheet, subjects: list[str], series: list[str], since: Since, until: Since, points: int,
    after: float,
) -> Json:  # fmt: skip
    """Curves with at most `points` points per subject. No subjects: all; no series: the sheet's usual ones.

    `after`, the `until_s` of an earlier answer: only the points that are new or have changed since, from `from_s` on. They
    continue that answer if `period_s` is the same and no other attempt has begun.
    """
    series, known = series or [*sheet.usual], [each.name for each in sheet.series]
    own = [name for name in series if name not in known]  # figures of the scripts' own names
    _must_be_series(sheet, series, MOST_SERIES, [*known, *(own if sheet is PROGRAMS else [])])
    closed, wall_s = sources.closed()
    begun_s, end_s = window(closed, since, until)
    begun_s = max(begun_s, min(end_s, closed.at_s - TIERS[-1].keep_s))
    places = _places_of_names(sources, sheet, series, own)
    count = len(subjects) or (max(1, len(sources.state.programs)) if sheet is PROGRAMS else MANY_SUBJECTS)
    most_rows = rows_for(numbers(sheet, series) + (_SECOND_ROW + len(places.series) if own else 0), count)
    found = sources.of(Recorded)
    held = found.held(sheet, begun_s, end_s, subjects, ONE_POINT * most_rows + 1)
    tier, joined_s = points_for(held, begun_s, end_s, points, most_rows, count)
    period_s = joined_s or tier.period_s
    from_s = begun_s if after < 0 else max(begun_s, bucket_of(after - _LATE_S, period_s))
    wanted = needed(sheet, series)
    tracks = tracks_of(wanted, found.rows(wanted, tier, from_s, end_s, subjects))
    if own:
        figures = tracks_of(places, found.rows(places, tier, from_s, end_s, subjects))
        with_own(tracks, figures, own, by_attempt=tier.by_attempt)
        sheet = sheet.also(own)
    if joined_s is not None:
        tracks = {keys: track.thinned(sheet, joined_s) for keys, track in tracks.items()}
    if sheet.name == PROGRAMS.name and after < 0:
        tracks |= _before(sources, closed, wall_s, sheet, tracks, subjects, series, (begun_s, end_s), points)
    units = {each.name: each.unit for each in sheet.series if each.name in series}
    return {
        "sheet": sheet.name, "period_s": period_s, "since_s": begun_s, "until_s": end_s,
        "until_wall_s": wall_s - (closed.at_s - end_s), "units": units, "subjects": curves_view(sheet, tracks, series),
        **({} if after < 0 else {"from_s": from_s}),
    }  # fmt: skip


def _before(
    sources: Sources, closed: Ledger, wall_s: float, sheet: Sheet, tracks: Tracks, subjects: list[str], series: list[str],
    window: tuple[float, float], points: int,
) -> dict[tuple[str, ...], Track]:  # fmt: skip
    """Tracks that event files of workers extend to the time in the window before a program's first recorded row."""
    begun_s, end_s = window
    first = {name: track.first() for (name,), track in tracks.items()}
    begins = {name: first[name].at_s if name in first else end_s for name in subjects or sorted(sources.state.programs)}
    lacking = [name for name in begins if name in sources.state.programs and begins[name] - begun_s > _GAP_S]
    wall, rows = wall_clock_of(closed, wall_s), []
    for name in lacking[:_MOST_FROM_FILES]:
        until_s, period_s = begins[name], (end_s - begun_s) / points
        drawn = sources.of(Recorded).drawn(name, series, wall(begun_s), wall(until_s))
        rows += from_files(drawn, name, lambda at: journal_s(closed, at), until_s, period_s, first.get(name))
    earlier = tracks_of(needed(sheet, series), rows)
    return {keys: tracks[keys].after(track) if keys in tracks else track for keys, track in earlier.items()}


def _places_of_names(sources: Sources, sheet: Sheet, series: list[str], own: Sequence[str]) -> Sheet:
    """The columns in which any program has recorded figures of these own names. Raises BadQuery for an unknown name."""
    if not own:
        return FIGURES_OF_ITS_OWN.only(())
    places: dict[str, set[str]] = {}
    for names in sources.of(Recorded).names():
        for name, place in places_of(names).items():
            places.setdefault(name, set()).add(place)
    running = {name for watch in sources.memory.watches.values() for name in watch.sample.own_figures()}
    _must_be_series(sheet, series, MOST_SERIES, [*(each.name for each in sheet.series), *sorted(places.keys() | running)])
    return FIGURES_OF_ITS_OWN.only({place for name in own for place in places.get(name, ())})


def _must_be_series(sheet: Sheet, names: list[str], most: int, known: Sequence[str]) -> None:
    if len(names) > most:
        raise BadQuery(f"series must name at most {most} of: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise BadQuery(f"{sheet.name} have no series {name[:40]!r}; there are: {', '.join(known)}")


def recorded(
    sources: Sources, sheet: Sheet, period_s: float, since: Since, after: float, limit: int, drawn: str | None
) -> Json:
    """Rows of the recorder as a table, oldest first: the first `limit` after a moment of journal time, and a few more.

    There are fewer if rows are long: an answer has about _MOST_CELLS values. An answer never splits the rows of one moment,
    so that the next request can begin after the last moment. `drawn`: instead, the points in the event files of this
    program's workers from before its first recorded row.
    """
    tier = next(tier for tier in TIERS if tier.period_s == period_s)
    since_at_s = window(sources.closed()[0], since, _NOW)[0] if since != Since() else 0.0
    table = ONE_BY_ONE if sheet is FIGURES_OF_ITS_OWN else sheet
    names = columns(table)
    limit = min(limit, _MOST_CELLS // len(names))
    if drawn is not None:
        rows = [] if sheet is not PROGRAMS else _rows_of_files(sources, drawn, tier, since_at_s, after, limit)
        return {"columns": names, "rows": as_table(table, rows)}
    rest = iter(sources.of(Recorded).rows(sheet, tier, max(nextafter(after, inf), since_at_s), inf, ()))
    rest = rest if table is sheet else one_by_one(rest)
    rows = list(islice(rest, limit))
    for row in rest:
        if row.at_s != rows[-1].at_s:
            break
        rows.append(row)
    return {"columns": names, "rows": as_table(table, rows)}


def _rows_of_files(sources: Sources, name: str, tier: Tier, since_s: float, after: float, limit: int) -> list[Row]:
    """The first `limit` points of a program's event files after a moment, and the others of the last period, as rows."""
    if name not in sources.state.programs:
        return []
    closed, wall_s = sources.closed()
    wall, until_s = wall_clock_of(closed, wall_s), _recorded_from(sources, name, tier, closed.at_s)
    taken: list[Drawn] = []
    newest_s = inf
    for point in sources.of(Recorded).drawn(name, [series.name for series in PROGRAMS.series], wall(since_s), wall(until_s)):
        bucket_s = bucket_of(journal_s(closed, point.wall_s), tier.period_s)
        if bucket_s <= after:
            continue
        if len(taken) >= limit and bucket_s != newest_s:
            break
        taken.append(point)
        newest_s = bucket_s
    return from_files(taken, name, lambda at: journal_s(closed, at), until_s, tier.period_s)


def _recorded_from(sources: Sources, name: str, tier: Tier, now_s: float) -> float:
    """The time of a program's first row: in this tier, or in the coarsest tier if that one reaches further back."""
    found, none = sources.of(Recorded), PROGRAMS.only(())
    oldest = next(iter(found.rows(none, TIERS[-1], 0.0, inf, (name,))), None)
    first = next(iter(found.rows(none, tier, 0.0, inf, (name,))), oldest)
    if oldest is None or first is None:
        return now_s
    return first.at_s if first.at_s < oldest.at_s + TIERS[-1].period_s else oldest.at_s


def first_and_newest(sources: Sources, begun_s: float, end_s: float) -> dict[str, tuple[float, float]]:
    """The first and the newest mean return of each program in a window."""
    found, sheet = sources.of(Recorded), PROGRAMS.only({_RETURN})
    most_rows = rows_for(_NUMBERS_OF_RETURN, len(sources.state.programs))
    held = found.held(sheet, begun_s, end_s, (), most_rows + 1)
    tier = tier_for(TIERS, held, begun_s, end_s, _POINTS_OF_RETURN, most_rows)
    tracks = tracks_of(sheet, found.rows(sheet, tier, begun_s, end_s, ()))
    columns = {name: track.values[_RETURN] for (name,), track in tracks.items()}
    known = {name: [value for value in column if value is not None] for name, column in columns.items()}
    return {name: (values[0], values[-1]) for name, values in known.items() if values}


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
    moments = {keys: _moments(track, by_attempt=by_attempt) for keys, track in tracks.items()}
    places = {keys: {moment: place for place, moment in enumerate(found)} for keys, found in moments.items()}
    for track in tracks.values():
        track.values.update((name, [None] * len(track.at_s)) for name in names)
    for (program, label), found in figures.items():
        if (program,) in tracks:
            spots = [places[program,].get(moment) for moment in _moments(found, by_attempt=by_attempt)]
            columns = places_of(label)
            for name in names:
                column = tracks[program,].values[name]
                for value, spot in zip(found.values.get(columns.get(name, "")) or (), spots, strict=False):
                    if value is not None and spot is not None:
                        column[spot] = value


def _moments(track: Track, *, by_attempt: bool) -> Iterable[tuple[float, str]]:
    return zip(track.at_s, (keys[-1] if by_attempt else "" for keys in track.keys), strict=True)


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


ADDED = Added(returns=first_and_newest)
