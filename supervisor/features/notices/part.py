"""Notices of the end of this box: the threads that read them."""

from __future__ import annotations

import os

import structlog

from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.parts import Part, World
from supervisor.features.notices.adapters import detect
from supervisor.features.notices.adapters.local import NoticeWatch
from supervisor.features.notices.settings import NoticeSettings

log = structlog.get_logger()


def part(world: World) -> Part:
    watch = NoticeWatch(world.settings, world.inbox, world.clock)

    def start() -> None:
        settings = world.settings()
        if (
            not settings.of(NoticeSettings).command
            and not settings.remote
            and (found := detect.command(BootFiles.of(os.environ)))
        ):
            log.warning("no_notice_command", why=f'this box ends without notice; set [notice] command = "{found}"')
        watch.start()

    return Part(start=start, stop=watch.stop)
