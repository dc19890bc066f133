"""The pages `curves` and `recorded`, and the parsers of their queries. What they need of the recording is imported late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from supervisor.reports.pages import MOST_FACTS, BadQuery, Page, program, since, until, whole, words

if TYPE_CHECKING:
    from supervisor.features.recorder.rules.recording import Sheet


def _sheet(key: str, text: str | None) -> Sheet:
    from supervisor.features.recorder.rules.recording import PROGRAMS, SHEETS

    if text is not None and text not in SHEETS:
        raise BadQuery(f"{key} must be one of {', '.join(SHEETS)}, not {text[:40]!r}")
    return PROGRAMS if text is None else SHEETS[text]


def _drawn_sheet(key: str, text: str | None) -> Sheet:
    """Figures of a script's own names are drawn as series of `programs`."""
    from supervisor.features.recorder.rules.recording import FIGURES_OF_ITS_OWN

    if text == FIGURES_OF_ITS_OWN.name:
        raise BadQuery(f"{key} must be programs for figures of a script's own names: series takes them too")
    return _sheet(key, text)


def _period(key: str, text: str | None) -> float:
    from supervisor.features.recorder.rules.resolution import TIERS

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


PAGES: Final = {
    "curves": Page(
        "supervisor.features.recorder.page.curves", sheet=_drawn_sheet, subjects=words, series=words, since=since,
        until=until, points=whole(500, 10, 2000), after=_moment,
    ),
    "recorded": Page(
        "supervisor.features.recorder.page.recorded", sheet=_sheet, period_s=_period, since=since, after=_moment,
        limit=whole(5000, 1, MOST_FACTS), drawn=program,
    ),
}  # fmt: skip
