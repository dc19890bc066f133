"""When a worker that was asked to exit is killed, and the answer to the request if it still does not end.

The rule:

1. The worker and all processes that it has started get SIGCONT, SIGTERM and `grace_s` to save and exit: 20 s for an
   operator's stop, 3 s in a stall. The grace counts for the whole tree: a shell that exits at once takes no time from its
   trainer.
2. The processes that remain after the grace get SIGKILL.
3. SIGKILL is repeated once, after a wait as long as the time from the request to the first, at least 10 s, at most 10 min.
   A process in state D dies when its kernel call returns, and one of another user (sudo) never: a third has no effect.
   Only a job of a cluster gets more: the order to delete it may not have reached the cluster.
4. After two SIGKILLs without effect, or one and a process that extralife may not signal, waiting requests are answered with
   that result, and an alert is sent. The program counts as running until its last process ends: nothing starts beside it.
   A daemon that ends does not wait for it. Only a request of a person sends a further SIGKILL.
5. A request that waits for a worker held by the kernel is answered earlier, with that reason. A worker is held when it
   counts as stalled in state D, or is in state D after SIGKILL.

Worked example, asked at 0 with a grace of 20 s, in a driver for ten minutes: SIGKILL at 20 and 40 s; at 20 s (at 40 s if
no stall was recorded before) `extralifectl stop` says that the kernel does not let go; the alert goes out at 80 s. At 600 s
the driver returns, the SIGKILL ends the worker, and it stays stopped. A trainer under sudo: SIGKILL at 20 s, the answer at
40 s.

Why not SIGKILL at once: every stop would lose the work since the last checkpoint.
"""

from __future__ import annotations

from typing import Final

from supervisor.policy.worker.stall import UNINTERRUPTIBLE

_AGAIN_S: Final = 10.0
_AGAIN_MOST_S: Final = 600.0
_MOST_KILLS: Final = 2

STOP_SIGNAL_TO: Final = ("tree", "leader", "group")  # `stop_signal_to`: who gets `stop_signal` first (`supervisor/shim.py`)
STOP_SIGNALS: Final = ("TERM", "HUP", "INT", "QUIT", "KILL", "USR1", "USR2")  # those that Supervisor knows

HELD: Final = "it is inside a kernel call (state D) and ends when that call returns"


def kill_due_s(*, asked_at_s: float, grace_s: float, killed_at_s: float | None) -> float:
    """When the next SIGKILL is due; `killed_at_s` is when the last one was sent."""
    if killed_at_s is None:
        return asked_at_s + grace_s
    return killed_at_s + min(_AGAIN_MOST_S, max(_AGAIN_S, killed_at_s - asked_at_s))


def not_ended(*, kills: int, untouchable: tuple[str, ...], held: bool, refused: str | None = None) -> str:
    """Why so many SIGKILLs have not ended an attempt, as a clause; empty: another one follows.

    `refused`: with the launcher of a feature, why that cannot end it; empty: it can.
    """
    if refused is not None:
        return refused if kills else ""
    if kills and untouchable:
        return f"it runs on: extralife may not signal {', '.join(untouchable)}; only that user or root can end it"
    return f"it is alive after {kills} SIGKILLs{f': {HELD}' if held else ''}" if kills >= _MOST_KILLS else ""


def is_held(*, proc_state: str | None, stall: str | None, killed: bool) -> bool:
    """Whether the worker is in a kernel call, so that SIGKILL has no effect yet."""
    return proc_state == "D" and (stall == UNINTERRUPTIBLE or killed)
