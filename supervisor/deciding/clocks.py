"""Record that the wall clock was moved, and correct recorded times (`wall_clock.py`)."""

from __future__ import annotations

from supervisor import wall_clock
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import Feature
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.inputs import ClockMoved
from supervisor.model.state import Reboot


def on_moved(context: DecisionContext, item: ClockMoved) -> None:
    """Record a step of the wall clock, unless `notice` has recorded it as the setting of the clock."""
    step_s = item.step_s
    if context.boot_id not in context.state.clock_steps or not wall_clock.was_set(context.wall_s, step_s):
        way = "ahead" if step_s > 0 else "back"
        why = f"the wall clock moved {way} by {span(abs(step_s))}; only displayed times change"
        context.record(facts.ClockStepped(why, step_s))


def notice(context: DecisionContext) -> None:
    """Correct the times of this boot once the clock is set, if it was not set at the last fact.

    This depends only on the facts, so it works even if no daemon ran when the clock was set.
    """
    state = context.state
    if state.boot_id != context.boot_id or wall_clock.is_set(state.wall_s) or not wall_clock.is_set(context.wall_s):
        return
    step_s = context.wall_s - state.wall_s - (context.now_s - state.at_s)
    reboot = state.reboots[-1] if state.reboots else None
    why, wall_s, down_s = "the wall clock is set: the displayed times of this boot are corrected", None, None
    if reboot is not None and not wall_clock.is_set(reboot.wall_s):
        wall_s, down_s = reboot.wall_s + step_s, _down_s(context, reboot)
        context.command(commands.AlertClock(state.reboots_total, wall_s, down_s))
    context.record(facts.ClockSet(why, step_s, wall_s, down_s))


def _down_s(context: DecisionContext, reboot: Reboot) -> float | None:
    """Seconds from the last sign of life before a reboot to the boot, by the clock that is now set; None: unknown."""
    boot_at_s, sign_wall_s = context.memory.boot_at_s, reboot.sign_wall_s
    if boot_at_s is None or sign_wall_s is None or not wall_clock.is_set(sign_wall_s):
        return None
    down_s = context.wall_s - (context.now_s - boot_at_s) - sign_wall_s
    return down_s if down_s >= 0 else None


FEATURE = Feature(turn=30, inputs={ClockMoved: on_moved})
