"""Alerts: their delivery, the daily report, and the alert of a daemon that cannot record."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.adapters.alerts.delivery import AlertCourier, tested
from supervisor.adapters.parts import Part, World
from supervisor.model import commands
from supervisor.model.inputs import ReportDue
from supervisor.ports import CalendarWork


def part(world: World) -> Part:
    courier = AlertCourier(lambda: world.settings().alerts, world.inbox, world.clock)

    def calendar() -> Iterable[CalendarWork]:
        at = world.settings().alerts.report_at
        yield CalendarWork("report", f"daily {at}", lambda now_s, due_wall_s: ReportDue(now_s, due_wall_s, world.report()))

    return Part(
        {
            commands.Deliver: lambda command: courier.deliver(command.target, command.notice),
            commands.WriteAlert: lambda command: courier.tell(command.notice),
        },
        stop=courier.stop,
        acts={"alerts/test": lambda: tested(world.settings().alerts, world.clock.wall_s())},
        calendar=calendar,
        alarm=courier.alarm,
    )  # fmt: skip
