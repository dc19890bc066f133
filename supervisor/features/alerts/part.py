"""Alerts: their delivery, the daily report, and the alert of a daemon that cannot record."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.adapters.parts import Part, World
from supervisor.api.night import daily_report
from supervisor.features.alerts.adapters.delivery import AlertCourier, tested
from supervisor.features.alerts.messages import Deliver, ReportDue, WriteAlert
from supervisor.features.alerts.settings import AlertSettings
from supervisor.policy.upkeep.alarm import Notice
from supervisor.ports import CalendarWork


def part(world: World) -> Part:
    courier = AlertCourier(lambda: world.settings().of(AlertSettings), world.inbox, world.clock)

    def calendar() -> Iterable[CalendarWork]:
        at = world.settings().of(AlertSettings).report_at
        yield CalendarWork(
            "report", f"daily {at}", lambda now_s, due_wall_s: ReportDue(now_s, due_wall_s, daily_report(world.sources()))
        )  # fmt: skip

    def alarm(notice: Notice, ago_s: float | None) -> bool:
        due = ago_s is None or ago_s >= world.settings().of(AlertSettings).same_within_s
        if due:
            courier.alarm(notice)
        return due

    return Part(
        {
            Deliver: lambda command: courier.deliver(command.target, command.notice),
            WriteAlert: lambda command: courier.tell(command.notice),
        },
        stop=courier.stop,
        acts={"alerts/test": lambda: tested(world.settings().of(AlertSettings), world.clock.wall_s())},
        calendar=calendar,
        alarm=alarm,
    )  # fmt: skip
