"""The inputs and commands of alerts."""

from __future__ import annotations

from supervisor.model.commands import Command
from supervisor.model.inputs import Input
from supervisor.policy.upkeep.alarm import Notice


class ReportDue(Input):
    """The newest due time of the daily report that has passed, and the text of the report."""

    due_wall_s: float
    text: str


class AlertTried(Input):
    """The result of `commands.Deliver`. With an `error` the target has not accepted the alert; `unsure`: it may have it."""

    target: str
    id: str
    error: str = ""
    unsure: bool = False


class WriteAlert(Command):
    """Write an alert to systemd's journal, where there is one. No outcome."""

    notice: Notice


class Deliver(Command):
    """Send an alert to one target, in a thread of its own. Outcome: AlertTried."""

    target: str
    notice: Notice
