"""The inputs and commands of the end of the work."""

from __future__ import annotations

from supervisor.model.commands import Command
from supervisor.model.inputs import Input


class WhenDoneEnded(Input):
    """The end of the command that stops this box. With an `error` it has failed. `output` has its last lines."""

    error: str = ""
    output: str = ""


class StopBox(Command):
    """Run the operator's command that stops this box, within `timeout_s`. Outcome: WhenDoneEnded."""

    argv: tuple[str, ...]
    timeout_s: float
