"""Notices of the end of this box: the threads that read them."""

from __future__ import annotations

from supervisor.adapters.notices.local import NoticeWatch
from supervisor.adapters.parts import Part, World


def part(world: World) -> Part:
    watch = NoticeWatch(world.settings, world.inbox, world.clock)
    return Part(start=watch.start, stop=watch.stop)
