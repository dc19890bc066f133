"""Which backups are removed when there are too many, and their names.

The rule of keeping. Automatic backups are of three kinds: by the calendar, before a level, before a rollback. Of each
kind the newest `[backup] keep` are kept: a day on which the config's level changed twenty times must not remove the
nightly ones. Only the operator removes backups that the operator made. Backups of an unknown kind also stay. Example,
keep = 2: of nightly backups of Mon, Tue and Wed and one before `heavy`, Mon is removed.

Why not by age: a box that was off for a month would come up and delete all of its backups.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Final

from supervisor.records import Record

OPERATOR, CALENDAR, LEVEL, ROLLBACK = "operator", "calendar", "level", "rollback"
_AUTOMATIC: Final = frozenset({CALENDAR, LEVEL, ROLLBACK})
_SLUG: Final = re.compile(r"[^a-z0-9]+")
_MOST_LABEL: Final = 40


class Kept(Record):
    """The data about a backup that the rule of keeping needs."""

    name: str
    cause: str
    created_wall_s: float


def superfluous(backups: Iterable[Kept], keep: int, spare: Iterable[str] = ()) -> list[str]:
    """Names of the backups to remove, oldest first. `spare`: names that must stay because they are in use."""
    spared = set(spare)
    order = sorted(backups, key=lambda each: (each.created_wall_s, each.name))
    out = []
    for cause in _AUTOMATIC:
        of_cause = [each for each in order if each.cause == cause]
        out += [each for each in of_cause[: max(0, len(of_cause) - keep)] if each.name not in spared]
    return [each.name for each in sorted(out, key=lambda each: (each.created_wall_s, each.name))]


def name_of(wall_s: float, label: str, taken: Iterable[str]) -> str:
    """The name of a backup: the time in UTC and the label, as the name of a directory; never one of `taken`.

    Example: 1,800,000,000 s and `before heavy` are `20270115-080000-before-heavy`.
    """
    when = dt.datetime.fromtimestamp(wall_s, dt.UTC).strftime("%Y%m%d-%H%M%S")
    slug = _SLUG.sub("-", label.lower())[:_MOST_LABEL].strip("-")
    base = f"{when}-{slug}" if slug else when
    name, number = base, 1
    known = set(taken)
    while name in known:
        number += 1
        name = f"{base}.{number}"
    return name
