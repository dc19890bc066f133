"""The end of the work: the command that stops this box."""

from __future__ import annotations

from supervisor.adapters.parts import Part, World
from supervisor.adapters.when_done import stop_box
from supervisor.model import commands


def part(world: World) -> Part:
    return Part({commands.StopBox: lambda command: stop_box(command, world.inbox, world.clock)})
