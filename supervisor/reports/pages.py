"""The read-only pages, each registered once: the API, `extralifectl` and its fallback without a daemon use `pages`.

A page is a pure function of its sources (`reports/sources.py`) and of its query. How to add one: docs/architecture.md.
`extralifectl` imports this module at each call, so the module of a page is imported when the page is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from supervisor import discovery

if TYPE_CHECKING:
    from supervisor.reports.sources import Json, Sources

Parse = Callable[[str, str | None], Any]  # (key, text of the query or None) -> value; raises BadQuery
MOST_FACTS: Final = 10_000


class Since(NamedTuple):
    """The beginning of a window: seconds ago, a wall-clock time, the newest boot, or (all unset) the journal's beginning."""

    ago_s: float | None = None
    wall_s: float | None = None
    boot: bool = False


class BadQuery(ValueError):
    """The query of a page is invalid. The message says why, in one sentence."""


class Page:
    """A registered page. `instant`: it uses only data in memory, so it waits for no disk, and takes no query."""

    def __init__(self, function: str, *, instant: bool = False, **query: Parse) -> None:
        self.function, self.instant, self._query = function, instant, query

    def of(self, sources: Sources, query: Mapping[str, str]) -> Json:
        """The page, as JSON values. Raises BadQuery and the errors of its sources."""
        module, _, name = self.function.rpartition(".")
        make: Callable[..., Json] = getattr(import_module(module if "." in module else f"supervisor.reports.{module}"), name)
        return make(sources, **self.arguments(query))

    def arguments(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The parsed values of a query. Keys that the page does not know are ignored. Raises BadQuery."""
        return {key: parse(key, query.get(key)) for key, parse in self._query.items()}


def word(_: str, text: str | None) -> str | None:
    return text


def words(_: str, text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]


def program(_: str, text: str | None) -> str | None:
    from supervisor.model.names import plain

    return text and plain(text)


def whole(default: int, least: int, most: int) -> Parse:
    def parse(key: str, text: str | None) -> int:
        try:
            value = default if text is None else int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise BadQuery(f"{key} must be a whole number from {least} to {most}, not {(text or '')[:40]!r}")
        return value

    return parse


def since(key: str, text: str | None) -> Since:
    """`all` (the beginning), `boot`, seconds ago as `3600s`, or seconds since the epoch as `@1790000000`."""
    if text is None or text in {"all", "boot"}:
        return Since(boot=text == "boot")
    try:
        value = float(text.removeprefix("@").removesuffix("s"))
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf") or text.startswith("@") == text.endswith("s"):
        raise BadQuery(f"{key} must be all, boot, seconds as 3600s or a time as @1790000000, not {text[:40]!r}")
    return Since(wall_s=value) if text.startswith("@") else Since(ago_s=value)


def until(key: str, text: str | None) -> Since:
    """`now`, seconds ago as `3600s`, or seconds since the epoch as `@1790000000`."""
    if text is None or text == "now":
        return Since(ago_s=0.0)
    try:
        return since(key, "?" if text in {"all", "boot"} else text)
    except BadQuery:
        raise BadQuery(f"{key} must be now, seconds as 3600s or a time as @1790000000, not {text[:40]!r}") from None


_OWN: Final = {
    "accounts": Page("accounts_view.accounts", since=since, until=until),
    "config": Page("status_view.config"),
    "cost": Page("cost_view.cost", since=since, until=until),
    "days": Page("days.days", since=since, until=until),
    "facts": Page(
        "facts_view.facts", after=whole(0, 0, 2**62), program=program, limit=whole(1000, -MOST_FACTS, MOST_FACTS),
        kinds=words,
    ),
    "incidents": Page(
        "incidents_view.incidents", since=since, until=until, program=program, limit=whole(5, 1, 100),
        chars=whole(1500, 0, 20_000), seq=whole(0, 0, 2**62),
    ),
    "level": Page("climb_view.level", instant=True),
    "report": Page("report_view.report", since=since, until=until),
    "results": Page("results_view.results"),
    "status": Page("status_view.status_view", instant=True),
    "timeline": Page("timeline.timeline", since=since, until=until),
}  # fmt: skip


@functools.cache
def pages() -> dict[str, Page]:
    """Every page by its name, those of the features (`PAGES` of their module `pages`) included."""
    return dict(sorted((_OWN | dict(discovery.entries("pages", "PAGES"))).items()))
