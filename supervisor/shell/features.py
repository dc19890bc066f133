"""The adapters of the features: each row makes one feature's part of a daemon (`deciding/features.py` has its decisions)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from supervisor.adapters.alerts.delivery import AlertCourier
from supervisor.adapters.backups.thread import Backups
from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.host.box_identity import witnesses
from supervisor.adapters.notices.thread import NoticeWatch
from supervisor.adapters.offsite.thread import Offsite
from supervisor.adapters.process.share import Share
from supervisor.adapters.when_done import stop_box
from supervisor.model import commands
from supervisor.model.commands import Command
from supervisor.model.inputs import BackupDue, OffsiteDue, ReportDue
from supervisor.model.settings import Paths, Settings
from supervisor.policy.upkeep.alarm import Notice
from supervisor.ports import CalendarWork, Clock, Inbox
from supervisor.records import Record

Json = dict[str, Any]


class World(Record):
    """What a part may use of the daemon. The functions return the present values."""

    paths: Paths
    settings: Callable[[], Settings]
    inbox: Inbox
    clock: Clock
    version: str
    box_name: Callable[[], str]
    share: Share
    environ: Mapping[str, str]
    report: Callable[[], str]  # the daily report


class Part(Record):
    """One feature's part of a running daemon."""

    performs: Mapping[type[Command], Callable[[Any], None]] = field(default_factory=dict)
    start: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    shows: Mapping[str, Callable[[], Json | None]] = field(default_factory=dict)  # work in progress, for the pages
    calendar: Callable[[], Iterable[CalendarWork]] = tuple
    alarm: Callable[[Notice], None] = lambda _: None  # sends an alert although nothing can be recorded


def _alerts(world: World) -> Part:
    courier = AlertCourier(lambda: world.settings().alerts, world.inbox, world.clock)

    def deliver(command: commands.Deliver) -> None:
        courier.deliver(command.target, command.notice)

    def write(command: commands.WriteAlert) -> None:
        courier.tell(command.notice)

    performs: dict[type[Command], Callable[[Any], None]] = {commands.Deliver: deliver, commands.WriteAlert: write}

    def calendar() -> Iterable[CalendarWork]:
        at = world.settings().alerts.report_at
        yield CalendarWork("report", f"daily {at}", lambda now_s, due_wall_s: ReportDue(now_s, due_wall_s, world.report()))

    return Part(performs, stop=courier.stop, alarm=courier.alarm, calendar=calendar)


def _backups(world: World) -> Part:
    made = Backups(world.paths, world.settings, world.inbox, world.clock)
    kinds = (commands.Backup, commands.CheckBackup, commands.RestoreBackup)

    def calendar() -> Iterable[CalendarWork]:
        yield CalendarWork("backup", world.settings().backup.calendar, BackupDue)

    return Part(dict.fromkeys(kinds, made.perform), stop=made.stop, shows={"backups": made.progress}, calendar=calendar)


def _offsite(world: World) -> Part:
    made = Offsite(
        world.paths, world.settings, world.inbox, world.clock, world.version, world.box_name,
        lambda: witnesses(BootFiles.of(world.environ)), world.share,
    )  # fmt: skip
    kinds = (commands.OffsiteCopy, commands.OffsiteTakeOver, commands.OffsiteTend)

    def due(what: str) -> Callable[[float, float], OffsiteDue]:
        return lambda now_s, due_wall_s: OffsiteDue(now_s, what, due_wall_s)

    def calendar() -> Iterable[CalendarWork]:
        rules = world.settings().offsite
        for what, when in (("forget", rules.forget), ("check", rules.check)) if rules.on else ():
            yield CalendarWork(f"offsite {what}", when, due(what))

    return Part(dict.fromkeys(kinds, made.perform), stop=made.stop, calendar=calendar)


def _notices(world: World) -> Part:
    watch = NoticeWatch(world.settings, world.inbox, world.clock)
    return Part(start=watch.start, stop=watch.stop)


def _when_done(world: World) -> Part:
    return Part({commands.StopBox: lambda command: stop_box(command, world.inbox, world.clock)})


PARTS: Final[tuple[Callable[[World], Part], ...]] = (_alerts, _backups, _offsite, _notices, _when_done)
