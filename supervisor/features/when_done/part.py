"""The end of the work: the command that stops this box."""

from __future__ import annotations

from supervisor.adapters import threads
from supervisor.adapters.parts import Part, World
from supervisor.features.when_done.adapters.stopping import cannot_start, logged_in, stop_box
from supervisor.features.when_done.settings import WhenDoneSettings
from supervisor.model import commands
from supervisor.model.inputs import WhenDoneEnded


def part(world: World) -> Part:
    def rules() -> WhenDoneSettings:
        return world.settings().of(WhenDoneSettings)

    def run(command: commands.StopBox) -> None:
        error, output = stop_box(command.argv, command.timeout_s, world.paths.state_dir)
        world.inbox.post(WhenDoneEnded(world.clock.now_s(), str(error), output.strip()))

    # In a thread of its own: the end of the daemon does not end the command.
    return Part(
        {commands.StopBox: lambda command: threads.Thread("when-done", run, command).start()},
        looks={
            "logged_in": lambda: logged_in() if rules().hold_while_logged_in else None,
            "cannot_stop": lambda: cannot_start(rules().command),
        },
    )  # fmt: skip
