"""What a feature adds to a running daemon beside its decisions: the function `part` of its module `part`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from supervisor import discovery
from supervisor.adapters.process.own_checkpoints import ShownBy
from supervisor.adapters.process.processes import ProgramAdapters
from supervisor.model.commands import Command
from supervisor.model.settings import Paths, Settings
from supervisor.policy.upkeep.alarm import Notice
from supervisor.ports import CalendarWork, Clock, Inbox
from supervisor.records import Record
from supervisor.reports.sources import Sources


class World(Record):
    """What a part may use of the daemon. The functions return the present values."""

    paths: Paths
    settings: Callable[[], Settings]
    inbox: Inbox
    clock: Clock
    version: str
    box_name: Callable[[], str]
    sources: Callable[[], Sources]  # the data of the pages
    shown: ShownBy  # what the output of a program has shown


class Part(Record):
    performs: Mapping[type[Command], Callable[[Any], None]] = field(default_factory=dict)
    launches: Callable[..., ProgramAdapters | None] = lambda *_: None  # given the settings, and readers of files
    start: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    shows: Mapping[str, Callable[[], Any]] = field(default_factory=dict)  # its present values, by the name of its page
    acts: Mapping[str, Callable[[], dict[str, Any]]] = field(default_factory=dict)  # by the API's page that requests it
    calendar: Callable[[], Iterable[CalendarWork]] = tuple
    looks: Mapping[str, Callable[[], Any]] = field(default_factory=dict)  # readings of the host, by field of `readings.Host`
    secrets: Callable[[], Iterable[str]] = tuple  # variables of the daemon's environment that no program inherits
    alarm: Callable[[Notice, float | None], bool] = lambda *_: True  # an alert that cannot be recorded; false: too soon


def parts(world: World) -> list[Part]:
    return [each.part(world) for each in discovery.modules("part")]
