"""The read-only pages, each registered once: the API, `supervisorctl` and its fallback without a daemon loop over `PAGES`.

A page is a pure function of its sources (`reports/sources.py`) and of its query. How to add one: docs/architecture.md.
`supervisorctl` imports this module at each call, so every page imports what it needs when it is made.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than the request
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from supervisor.model.recording import Drawn, Row, Sheet, Track
    from supervisor.policy.upkeep.resolution import Tier
    from supervisor.reports.accounts import Summary
    from supervisor.reports.accounts_view import Since
    from supervisor.reports.curves import Tracks
    from supervisor.reports.ledger import Ledger
    from supervisor.reports.sources import Json, Sources

    Parse = Callable[[str, str | None], Any]  # (key, text of the query or None) -> value; raises BadQuery

_MOST_FACTS: Final = 10_000


class BadQuery(ValueError):
    """The query of a page is invalid. The message says why, in one sentence."""


class Page:
    """A registered page. `instant`: it uses only data in memory, so it waits for no disk."""

    def __init__(self, make: Callable[..., Json], query: Mapping[str, Parse], *, instant: bool) -> None:
        self._make, self._query, self.instant = make, query, instant

    @property
    def takes_query(self) -> bool:
        """Whether the page has query parameters."""
        return bool(self._query)

    def of(self, sources: Sources, query: Mapping[str, str]) -> Json:
        """The page, as JSON values. Raises BadQuery and the errors of its sources."""
        return self._make(sources, **self.arguments(query))

    def arguments(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The parsed values of a query. Keys that the page does not know are ignored. Raises BadQuery."""
        return {key: parse(key, query.get(key)) for key, parse in self._query.items()}


PAGES: Final[dict[str, Page]] = {}


def _page(*, instant: bool = False, **query: Parse) -> Callable[[Callable[..., Json]], Callable[..., Json]]:
    """Register a function as the page with the function's name."""

    def register(make: Callable[..., Json]) -> Callable[..., Json]:
        PAGES[make.__name__] = Page(make, query, instant=instant)
        return make

    return register


# --- queries -----------------------------------------------------------------------------------------------------------


def _text(_: str, text: str | None) -> str | None:
    return text


def _words(_: str, text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]


def _program(_: str, text: str | None) -> str | None:
    from supervisor.model.names import plain

    return text and plain(text)


def _whole(default: int, least: int, most: int) -> Parse:
    def parse(key: str, text: str | None) -> int:
        try:
            value = default if text is None else int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise BadQuery(f"{key} must be a whole number from {least} to {most}, not {(text or '')[:40]!r}")
        return value

    return parse


def _sheet(key: str, text: str | None) -> Sheet:
    from supervisor.model.recording import PROGRAMS, SHEETS

    if text is not None and text not in SHEETS:
        raise BadQuery(f"{key} must be one of {', '.join(SHEETS)}, not {text[:40]!r}")
    return PROGRAMS if text is None else SHEETS[text]


def _drawn_sheet(key: str, text: str | None) -> Sheet:
    """Figures of a script's own names are drawn as series of `programs`."""
    from supervisor.model.recording import FIGURES_OF_ITS_OWN

    if text == FIGURES_OF_ITS_OWN.name:
        raise BadQuery(f"{key} must be programs for figures of a script's own names: series takes them too")
    return _sheet(key, text)


def _period(key: str, text: str | None) -> float:
    from supervisor.policy.upkeep.resolution import TIERS

    periods = {f"{tier.period_s:.0f}": tier.period_s for tier in TIERS}
    if text is not None and text not in periods:
        raise BadQuery(f"{key} must be one of {', '.join(periods)}, not {text[:40]!r}")
    return TIERS[0].period_s if text is None else periods[text]


def _moment(key: str, text: str | None) -> float:
    """Journal time; none: before its beginning."""
    if text is None:
        return -1.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise BadQuery(f"{key} must be a time in seconds from 0, not {(text or '')[:40]!r}")
    return value


def _since(key: str, text: str | None) -> Since:
    """`all` (the beginning), `boot`, seconds ago as `3600s`, or seconds since the epoch as `@1790000000`."""
    from supervisor.reports.accounts_view import Since

    if text is None or text in {"all", "boot"}:
        return Since(boot=text == "boot")
    try:
        value = float(text.removeprefix("@").removesuffix("s"))
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf") or text.startswith("@") == text.endswith("s"):
        raise BadQuery(f"{key} must be all, boot, seconds as 3600s or a time as @1790000000, not {text[:40]!r}")
    return Since(wall_s=value) if text.startswith("@") else Since(ago_s=value)


def _until(key: str, text: str | None) -> Since:
    """`now`, seconds ago as `3600s`, or seconds since the epoch as `@1790000000`."""
    from supervisor.reports.accounts_view import Since

    if text is None or text == "now":
        return Since(ago_s=0.0)
    try:
        return _since(key, "?" if text in {"all", "boot"} else text)
    except BadQuery:
        raise BadQuery(f"{key} must be now, seconds as 3600s or a time as @1790000000, not {text[:40]!r}") from None


def _window(closed: Ledger, since: Since, until: Since) -> tuple[float, float]:
    """(Begin, end) of a window in journal time."""
    from supervisor.reports.accounts_view import since_s

    begin_s, end_s = since_s(closed, since), since_s(closed, until)
    if begin_s > end_s:
        raise BadQuery("since must lie before until")
    return begin_s, end_s


def _filled(
    sources: Sources, since: Since, until: Since, *, levels: bool = False
) -> tuple[Ledger, float, float, float]:  # fmt: skip
    """The closed ledger with what the figures of a window need, the window, and the present time of the wall clock.

    `levels`: the steps at every change of the level are needed, too.
    """

    def fill(closed: Ledger) -> None:
        moments = [closed.first_s or 0.0, *(at_s for at_s, _, _ in closed.levels)] if levels else ()
        closed.fill(*_window(closed, since, until), moments)

    closed, wall_s = sources.closed(fill)
    return closed, *_window(closed, since, until), wall_s


def _summary(sources: Sources, since: Since, until: Since, *, levels: bool = False) -> tuple[Ledger, Summary, float]:
    """The closed ledger, the figures of a window, and the present time of the wall clock."""
    from supervisor.reports.accounts import summary

    closed, begin_s, end_s, wall_s = _filled(sources, since, until, levels=levels)
    return closed, summary(closed, since_s=begin_s, until_s=end_s), wall_s


# --- the pages ---------------------------------------------------------------------------------------------------------


@_page(since=_since, until=_until)
def accounts(sources: Sources, since: Since, until: Since) -> Json:
    """The account of every second of every program and slot, in a window."""
    from supervisor.reports.accounts_view import accounts_view

    closed, found, wall_s = _summary(sources, since, until)
    return accounts_view(closed, found, wall_s=wall_s)


@_page(instant=True)
def alerts(sources: Sources) -> Json:
    """The targets of alerts, the queued alerts, and the deliveries."""
    from supervisor.reports.alerts_view import alerts_view

    return alerts_view(sources.state, sources.settings, sources.memory, now_s=sources.now_s)


@_page(check=_text)
def backups(sources: Sources, check: str | None) -> Json:
    """All backups. With `check`, the name of one backup: what is wrong with that one."""
    from supervisor.model.backup_record import BackupRecord
    from supervisor.reports.backups_view import backups_view

    if check is not None:
        return {"name": check, "error": sources.check_backup(check)}
    record = sources.state.backups if sources.alive else BackupRecord()  # a dead daemon makes none
    return backups_view(sources.backups(), record, sources.backup_progress())


@_page()
def config(sources: Sources) -> Json:
    """Every setting, and where it comes from."""
    return {"settings": [{"key": key, "value": value, "origin": str(origin)} for key, value, origin in sources.config()]}


@_page(since=_since, until=_until)
def cost(sources: Sources, since: Since, until: Since) -> Json:
    """The bill of a window."""
    from supervisor.reports.cost_view import cost_view, games_of

    closed, found, wall_s = _summary(sources, since, until)
    games, price = games_of(sources)
    return cost_view(closed, games, found, wall_s=wall_s, usd_per_hour=price)


@_page(
    sheet=_drawn_sheet, subjects=_words, series=_words, since=_since, until=_until, points=_whole(500, 10, 2000),
    after=_moment,
)  # fmt: skip
def curves(
    sources: Sources, sheet: Sheet, subjects: list[str], series: list[str], since: Since, until: Since, points: int,
    after: float,
) -> Json:  # fmt: skip
    """Curves with at most `points` points per subject. No subjects: all; no series: the sheet's usual ones.

    `after`, the `until_s` of an earlier answer: only the points that are new or have changed since, from `from_s` on. They
    continue that answer if `period_s` is the same and no other attempt has begun.
    """
    from supervisor.model.recording import PROGRAMS
    from supervisor.policy.upkeep import resolution
    from supervisor.reports.curves import MOST_SERIES, curves_view, needed, numbers, with_own

    series, known = series or [*sheet.usual], [each.name for each in sheet.series]
    own = [name for name in series if name not in known]  # figures of the scripts' own names
    _must_be_series(sheet, series, MOST_SERIES, [*known, *(own if sheet is PROGRAMS else [])])
    closed, wall_s = sources.closed()
    begun_s, end_s = _window(closed, since, until)
    begun_s = max(begun_s, min(end_s, closed.at_s - resolution.TIERS[-1].keep_s))
    places = _places(sources, sheet, series, own)
    count = len(subjects) or (max(1, len(sources.state.programs)) if sheet is PROGRAMS else resolution.MANY_SUBJECTS)
    most_rows = resolution.rows_for(numbers(sheet, series) + (_SECOND_ROW + len(places.series) if own else 0), count)
    held = sources.recorded_held(sheet, begun_s, end_s, subjects, resolution.ONE_POINT * most_rows + 1)
    tier, joined_s = resolution.points_for(held, begun_s, end_s, points, most_rows, count)
    period_s = joined_s or tier.period_s
    from_s = begun_s if after < 0 else max(begun_s, resolution.bucket_of(after - _LATE_S, period_s))
    tracks = sources.recorded_tracks(needed(sheet, series), tier, from_s, end_s, subjects)
    if own:
        figures = sources.recorded_tracks(places, tier, from_s, end_s, subjects)
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


_LATE_S: Final = 20.0  # a reading is on disk at the latest this long after its moment
_SECOND_ROW: Final = 14  # figures of own names are a row of another table: reading it takes as long as 14 more numbers
_GAP_S: Final = 900.0  # event files are read only if more than this is missing at the beginning
_MOST_FROM_FILES: Final = 12  # programs in one answer


def _before(
    sources: Sources, closed: Ledger, wall_s: float, sheet: Sheet, tracks: Tracks, subjects: list[str], series: list[str],
    window: tuple[float, float], points: int,
) -> dict[tuple[str, ...], Track]:  # fmt: skip
    """Tracks that event files of workers extend to the time in the window before a program's first recorded row."""
    from supervisor.model.recording import tracks_of
    from supervisor.reports.accounts_view import journal_s, wall_clock_of
    from supervisor.reports.curves import from_files, needed

    begun_s, end_s = window
    first = {name: track.first() for (name,), track in tracks.items()}
    begins = {name: first[name].at_s if name in first else end_s for name in subjects or sorted(sources.state.programs)}
    lacking = [name for name in begins if name in sources.state.programs and begins[name] - begun_s > _GAP_S]
    wall, rows = wall_clock_of(closed, wall_s), []
    for name in lacking[:_MOST_FROM_FILES]:
        until_s, period_s = begins[name], (end_s - begun_s) / points
        drawn = sources.drawn(name, series, wall(begun_s), wall(until_s))
        rows += from_files(drawn, name, lambda at: journal_s(closed, at), until_s, period_s, first.get(name))
    earlier = tracks_of(needed(sheet, series), rows)
    return {keys: tracks[keys].after(track) if keys in tracks else track for keys, track in earlier.items()}


def _places(sources: Sources, sheet: Sheet, series: list[str], own: Sequence[str]) -> Sheet:
    """The columns in which any program has recorded figures of these own names. Raises BadQuery for an unknown name."""
    from supervisor.model.recording import FIGURES_OF_ITS_OWN, of_other_names, places_of
    from supervisor.reports.curves import MOST_SERIES

    if not own:
        return FIGURES_OF_ITS_OWN.only(())
    places: dict[str, set[str]] = {}
    for names in sources.recorded_names():
        for name, place in places_of(names).items():
            places.setdefault(name, set()).add(place)
    running = {name for watch in sources.memory.watches.values() for name in of_other_names(watch.sample.figures)}
    _must_be_series(sheet, series, MOST_SERIES, [*(each.name for each in sheet.series), *sorted(places.keys() | running)])
    return FIGURES_OF_ITS_OWN.only({place for name in own for place in places.get(name, ())})


def _must_be_series(sheet: Sheet, names: list[str], most: int, known: Sequence[str]) -> None:
    if len(names) > most:
        raise BadQuery(f"series must name at most {most} of: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise BadQuery(f"{sheet.name} have no series {name[:40]!r}; there are: {', '.join(known)}")


@_page(since=_since, until=_until)
def days(sources: Sources, since: Since, until: Since) -> Json:
    """Computed, kept and lost steps, hours and dollars, by local day."""
    from supervisor.reports.cost_view import games_of
    from supervisor.reports.days import days_view

    closed, begin_s, end_s, wall_s = _filled(sources, since, until)
    games, price = games_of(sources)
    return days_view(closed, games, begin_s, end_s, zone=sources.zone, wall_s=wall_s, usd_per_hour=price)


@_page(
    after=_whole(0, 0, 2**62), program=_program, limit=_whole(1000, -_MOST_FACTS, _MOST_FACTS), kinds=_words
)  # fmt: skip
def facts(sources: Sources, after: int, program: str | None, limit: int, kinds: list[str]) -> Json:
    """Rows of the journal, oldest first: the first `limit` after a position, or the newest -`limit`. No kinds: all."""
    from supervisor.reports.facts_view import select

    found = sources.facts(after, kinds, program, limit)
    return {"facts": select(found, program, limit, kinds, sources.state.clock_steps)}


@_page(
    since=_since, until=_until, program=_program, limit=_whole(5, 1, 100), chars=_whole(1500, 0, 20_000),
    seq=_whole(0, 0, 2**62),
)  # fmt: skip
def incidents(sources: Sources, since: Since, until: Since, program: str | None, limit: int, chars: int, seq: int) -> Json:
    """Incidents by cause, with the evidence of the newest `limit` of each. `seq`: only the incident of this fact."""
    from supervisor.reports.incidents_view import incidents_view

    closed, wall_s = sources.closed()
    begin_s, end_s = _window(closed, since, until)
    found = [
        each
        for each in sources.incidents(begin_s, end_s, program)
        if begin_s <= each.cause.at_s <= end_s
        if not seq or any(row.seq == seq for row in each.rows)
    ]
    steps = sources.state.clock_steps
    return {
        "since_s": begin_s, "until_s": end_s, "until_wall_s": wall_s - (closed.at_s - end_s), "count": len(found),
        "causes": incidents_view(found, steps, limit=limit, chars=chars),
    }  # fmt: skip


@_page(instant=True)
def level(sources: Sources) -> Json:
    """The ladder of levels, and the level in force."""
    from supervisor.reports.climb_view import climb_view

    return climb_view(sources.state, sources.settings, now_s=sources.now_s)


@_page(instant=True)
def nodes(sources: Sources) -> Json:
    """How stable the nodes and partitions of a cluster are."""
    from supervisor.reports.cluster_view import nodes_view

    return nodes_view(sources.state, sources.settings, now_s=sources.now_s)


@_page(instant=True)
def offsite(sources: Sources) -> Json:
    """Copies off the box: the newest one, the work in progress, the fence. Without a repository only {"on": false}."""
    from supervisor.reports.offsite_view import offsite_view

    found = offsite_view(sources.state, sources.settings, sources.memory, now_s=sources.now_s)
    return {"on": False} if found is None else {"on": True, **found}


_MOST_CELLS: Final = 25_000


@_page(sheet=_sheet, period_s=_period, since=_since, after=_moment, limit=_whole(5000, 1, _MOST_FACTS), drawn=_program)
def recorded(
    sources: Sources, sheet: Sheet, period_s: float, since: Since, after: float, limit: int, drawn: str | None
) -> Json:
    """Rows of the recorder as a table, oldest first: the first `limit` after a moment of journal time, and a few more.

    There are fewer if rows are long: an answer has about _MOST_CELLS values. An answer never splits the rows of one moment,
    so that the next request can begin after the last moment. `drawn`: instead, the points in the event files of this
    program's workers from before its first recorded row.
    """
    from itertools import islice
    from math import inf, nextafter

    from supervisor.model.recording import FIGURES_OF_ITS_OWN, ONE_BY_ONE, PROGRAMS, one_by_one
    from supervisor.policy.upkeep.resolution import TIERS
    from supervisor.reports.accounts_view import since_s
    from supervisor.reports.curves import as_table, columns

    tier = next(tier for tier in TIERS if tier.period_s == period_s)
    since_at_s = since_s(sources.closed()[0], since) if since.given else 0.0
    table = ONE_BY_ONE if sheet is FIGURES_OF_ITS_OWN else sheet
    names = columns(table)
    limit = min(limit, _MOST_CELLS // len(names))
    if drawn is not None:
        rows = [] if sheet is not PROGRAMS else _drawn(sources, drawn, tier, since_at_s, after, limit)
        return {"columns": names, "rows": as_table(table, rows)}
    rest = iter(sources.recorded(sheet, tier, max(nextafter(after, inf), since_at_s), inf, ()))
    rest = rest if table is sheet else one_by_one(rest)
    rows = list(islice(rest, limit))
    for row in rest:
        if row.at_s != rows[-1].at_s:
            break
        rows.append(row)
    return {"columns": names, "rows": as_table(table, rows)}


def _drawn(sources: Sources, name: str, tier: Tier, since_s: float, after: float, limit: int) -> list[Row]:
    """The first `limit` points of a program's event files after a moment, and the others of the last period, as rows."""
    from math import inf

    from supervisor.model.recording import PROGRAMS
    from supervisor.policy.upkeep.resolution import bucket_of
    from supervisor.reports.accounts_view import journal_s, wall_clock_of
    from supervisor.reports.curves import from_files

    if name not in sources.state.programs:
        return []
    closed, wall_s = sources.closed()
    wall, until_s = wall_clock_of(closed, wall_s), _recorded_from(sources, name, tier, closed.at_s)
    taken: list[Drawn] = []
    newest_s = inf
    for point in sources.drawn(name, [series.name for series in PROGRAMS.series], wall(since_s), wall(until_s)):
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
    from math import inf

    from supervisor.model.recording import PROGRAMS
    from supervisor.policy.upkeep.resolution import TIERS

    none = PROGRAMS.only(())
    oldest = next(iter(sources.recorded(none, TIERS[-1], 0.0, inf, (name,))), None)
    first = next(iter(sources.recorded(none, tier, 0.0, inf, (name,))), oldest)
    if oldest is None or first is None:
        return now_s
    return first.at_s if first.at_s < oldest.at_s + TIERS[-1].period_s else oldest.at_s


@_page(since=_since, until=_until)
def report(sources: Sources, since: Since, until: Since) -> Json:
    """Training, results, incidents and costs of a window, and the work that remains."""
    from supervisor.reports.report_view import report_view

    closed, found, wall_s = _summary(sources, since, until, levels=True)
    return report_view(sources, closed, found, wall_s=wall_s)


@_page()
def results(sources: Sources) -> Json:
    """The newest tests of all runs, combined."""
    from supervisor.reports.results_view import results_view

    return results_view(sources.results())


@_page(instant=True)
def status(sources: Sources) -> Json:
    """The daemon, its box and every program."""
    from supervisor.reports.status_view import status_view

    return status_view(sources)


@_page(since=_since, until=_until)
def timeline(sources: Sources, since: Since, until: Since) -> Json:
    """Levels, reboots, backups, programs' states and incidents, in time order."""
    from supervisor.reports.timeline import timeline_view

    closed, wall_s = sources.closed()
    begin_s, end_s = _window(closed, since, until)
    lanes, found = sources.lanes(closed.at_s, begin_s, end_s), sources.incidents(begin_s, end_s, None)
    return timeline_view(closed, lanes, found, begin_s, end_s, wall_s=wall_s)
