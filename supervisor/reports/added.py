"""What features add to the pages of others: the row `ADDED` of their module `page`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from supervisor import discovery
from supervisor.records import Record
from supervisor.reports.sources import Json, Sources

Gauge = tuple[str, str, float | None]  # a metric: name, meaning, value


class Added(Record):
    """Each function gets the sources; those with a second argument get the daemon's part of the page `status` too."""

    status: Callable[[Sources], Json] = lambda _: {}  # keys of the daemon's part
    program: Callable[[Sources, str], Json] = lambda *_: {}  # keys of a program of `status`
    troubles: Callable[[Json], list[str]] = lambda _: []  # sentences about present problems of extralife itself
    gauges: Callable[[Sources], list[Gauge]] = lambda _: []
    returns: Callable[[Sources, float, float], dict[str, tuple[float, float]]] = lambda *_: {}  # first, newest; by program
    needs_you: Callable[[Sources, Json], list[str]] = lambda *_: []  # problems that only a person can end


@functools.cache
def added() -> tuple[Added, ...]:
    return tuple(each.ADDED for each in discovery.modules("page"))
