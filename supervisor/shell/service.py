"""Messages to the service manager while the daemon runs: a summary when it changes, and the time that the end may take.

An orderly end waits for checkpoints. Only this module knows how long that may take: as long as the slowest of the stopping
workers may take. The daemon requests exactly this time, once for each new value. A worker that even SIGKILL does not end
(state D) must not delay the shutdown of the box forever.

When logind announces a shutdown of the host, the daemon begins its end before the service manager requests it. Then it must
not send STOPPING=1: systemd treats a service that sends it as one that stops by itself, and sends it no SIGTERM. The daemon
would wait for that signal, and the shutdown for the daemon. After the signal, all messages are sent as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from supervisor.adapters.host.systemd import Notifier
from supervisor.model.lifecycle import Phase
from supervisor.model.state import State

_KILLED_AND_CLOSED_S: Final = 15.0  # from the last SIGKILL to the end of this process


@dataclass(slots=True)
class Service:
    """Remembers the last message. `awaits_stop` returns True while the service manager's SIGTERM is still to come."""

    notifier: Notifier
    awaits_stop: Callable[[], bool] = lambda: False
    last_status: str = ""
    leave_by_s: float | None = None

    def after_turn(self, state: State, now_s: float, last_copy_until_s: float | None = None) -> None:
        """Called by the deciding thread. Sends nothing while nothing changes.

        `last_copy_until_s`: until when the end waits for a last copy off the box.
        """
        status = status_line(state)
        if state.stopping and not self.awaits_stop():
            stops = [program.attempt.stop for program in state.live.values() if program.attempt is not None]
            ends_s = [stop.asked_at_s + stop.grace_s for stop in stops if stop is not None]
            leave_by_s = max([*ends_s, *([] if last_copy_until_s is None else [last_copy_until_s])], default=None)
            if leave_by_s is not None and (self.leave_by_s is None or leave_by_s > self.leave_by_s):
                self.leave_by_s = leave_by_s
                self.notifier.stopping(max(0.0, leave_by_s - now_s) + _KILLED_AND_CLOSED_S)
        if status != self.last_status:
            self.last_status = status
            self.notifier.status(status)

    def ends(self, extend_s: float) -> None:
        """The deciding thread is about to end."""
        if not self.awaits_stop():
            self.notifier.stopping(extend_s)


def status_line(state: State) -> str:
    """One line for `systemctl status`.

    Example: `1 of 4 programs run at level light, 1 adopted, 2 resume from a checkpoint, 1 waits to be started again`.
    An earlier daemon started the one that runs.
    """
    if state.stopping:
        return f"{len(state.live)} of {len(state.programs)} programs are saving and leaving"
    fault = state.config
    faulty = ["THE CONFIGURATION CANNOT BE USED (extralifectl status)"] if fault is not None else []
    starting = [program for program in state.live.values() if program.phase is Phase.STARTING]
    resuming = sum(1 for program in starting if program.ckpt.step is not None)
    waiting = sum(1 for program in state.programs.values() if program.retry.at_s is not None)
    parts = [*faulty, f"{len(state.live) - len(starting)} of {len(state.programs)} programs run at level {state.level}"]
    parts += [f"{count} {word}" for count, word in (
        (_adopted(state), "adopted"),
        (resuming, _verb(resuming, "resume") + " from a checkpoint"),
        (len(starting) - resuming, _verb(len(starting) - resuming, "start")),
        (waiting, _verb(waiting, "wait") + " to be started again"),
    ) if count]  # fmt: skip
    return ", ".join(parts)


def _adopted(state: State) -> int:
    """The number of workers that were started before this daemon."""
    since_s, attempts = state.daemon_since_s, (program.attempt for program in state.live.values())
    return 0 if since_s is None else sum(1 for each in attempts if each is not None and each.intended_at_s < since_s)


def _verb(count: int, word: str) -> str:
    return f"{word}s" if count == 1 else word
