"""Copies off the box: the thread that makes them, and the calendar of checks and of the removal of old copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from supervisor.adapters.parts import Part, World
from supervisor.features.offsite.adapters.restoring import log_origin
from supervisor.features.offsite.adapters.thread import Offsite
from supervisor.features.offsite.messages import OffsiteCopy, OffsiteDue, OffsiteTakeOver, OffsiteTend
from supervisor.features.offsite.rules import keys_of_copies
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.ports import CalendarWork


def part(world: World) -> Part:
    made = Offsite(world.paths, world.settings, world.inbox, world.clock, world.version, world.box_name, world.shown)
    kinds = (OffsiteCopy, OffsiteTakeOver, OffsiteTend)

    def due(what: str) -> Callable[[float, float], OffsiteDue]:
        return lambda now_s, due_wall_s: OffsiteDue(now_s, what, due_wall_s)

    def calendar() -> Iterable[CalendarWork]:
        rules = world.settings().of(OffsiteSettings)
        for what, when in (("forget", rules.forget), ("check", rules.check)) if rules.on else ():
            yield CalendarWork(f"offsite {what}", when, due(what))

    def secrets() -> Iterable[str]:
        rules = world.settings().of(OffsiteSettings)
        return keys_of_copies(rules.repository, rules.env_file)

    return Part(
        dict.fromkeys(kinds, made.perform), start=lambda: log_origin(Path(world.paths.state_dir)), stop=made.stop,
        calendar=calendar, secrets=secrets,
    )  # fmt: skip
