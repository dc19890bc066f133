"""Supervisor's names for programs: `name`, `group:name`, `group:*`, `group:` and `all`. Standard library only.

A program without a group is its own group, so `Pong:Pong` and `Pong:*` are Pong. The seeds of a game are a group: `Pong:*`
is Pong-s4 and Pong-s6. An unknown name stays as it was typed, because the answer has to show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def plain(spec: str) -> str:
    """`Pong:Pong`, `Pong:*` and `Pong:` become `Pong`; `Pong:Breakout` names no program and stays unchanged."""
    group, colon, name = spec.partition(":")
    return group if colon and name in {"", "*", group} else spec


def group_of(view: Mapping[str, Any]) -> str:
    return str(view.get("group") or view["name"])


def is_group(spec: str) -> bool:
    """Whether the name means all programs of a group: `Pong:*` or `Pong:`."""
    _, colon, name = spec.partition(":")
    return bool(colon) and name in {"", "*"}


def by_priority(views: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The views by priority, then by name: the order in which Supervisor starts, stops and lists several programs."""
    return sorted(views, key=lambda view: (view.get("priority") is None, view.get("priority") or 0, view["name"]))


def members(spec: str, views: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the programs that one name means, by priority; empty: no program has it.

    Example: with Pong-s4 and Pong-s6 of the group Pong, `Pong:*` means both, `Pong:Pong-s4` and `Pong-s4` the first.
    """
    group, colon, name = spec.partition(":")
    if is_group(spec):
        return [view["name"] for view in by_priority(views) if group_of(view) == group]
    wanted = name if colon else spec
    return [view["name"] for view in views if view["name"] == wanted and (not colon or group in {group_of(view), wanted})]


def expand(specs: Iterable[str], views: Iterable[Mapping[str, Any]]) -> list[str]:
    """Program names in the requested order, each once; `all` means all programs, by priority. Unknown names stay."""
    views, specs = list(views), list(specs)
    if "all" in specs:
        return [view["name"] for view in by_priority(views)]
    return list(dict.fromkeys(name for spec in specs for name in members(spec, views) or [spec]))
