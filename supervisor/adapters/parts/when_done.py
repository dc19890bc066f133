"""The end of the work: the command that stops this box."""

from __future__ import annotations

from supervisor.adapters import threads
from supervisor.adapters.parts import Part, World
from supervisor.adapters.when_done import stop_box
from supervisor.model import commands
from supervisor.model.inputs import WhenDoneEnded


def part(world: World) -> Part:
    def run(command: commands.StopBox) -> None:
        error, output = stop_box(command.argv, command.timeout_s, world.paths.state_dir)
        world.inbox.post(WhenDoneEnded(world.clock.now_s(), str(error), output.strip()))

    # In a thread of its own: the end of the daemon does not end the command.
    return Part({commands.StopBox: lambda command: threads.Thread("when-done", run, command).start()})
