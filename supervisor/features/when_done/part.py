"""The end of the work: the command that stops this box."""

from __future__ import annotations

from supervisor.adapters import threads
from supervisor.adapters.parts import Part, World
from supervisor.features.when_done.adapters.stopping import cannot_start, logged_in, stop_box
from supervisor.features.when_done.messages import StopBox, WhenDoneEnded
from supervisor.features.when_done.settings import WhenDoneSettings


def part(world: World) -> Part:
    def rules() -> WhenDoneSettings:
        return world.settings().of(WhenDoneSettings)

    def run(command: StopBox) -> None:
        try:
            error, output = stop_box(command.argv, command.timeout_s, world.paths.state_dir)
        except (OSError, MemoryError) as lack:  # it passes; without an end, the command would never run again
            error, output = f"{command.argv[0]} cannot be started: {lack}", ""
        world.inbox.post(WhenDoneEnded(world.clock.now_s(), str(error), output.strip()))

    # In a thread of its own: the end of the daemon does not end the command.
    return Part(
        {StopBox: lambda command: threads.Thread("when-done", run, command).start()},
        looks={
            "logged_in": lambda: logged_in() if rules().hold_while_logged_in else None,
            "cannot_stop": lambda: cannot_start(rules().command),
        },
    )  # fmt: skip
