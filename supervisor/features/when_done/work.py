"""The work of this box: its wanted programs without services, whether they can go on, and the limits of [cost]."""

from __future__ import annotations

import signal
from typing import Final

from supervisor import wall_clock
from supervisor.features.when_done.record import EndRecord
from supervisor.features.when_done.rules import Outlook
from supervisor.features.when_done.settings import BUDGET, DONE
from supervisor.formats import few, span
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.settings import ProgramSpec, Progress, Settings
from supervisor.model.state import Program, State
from supervisor.policy.upkeep import cost
from supervisor.policy.worker.diagnosis import SAVED

_NAMED: Final = 5


def outlooks(state: State, memory: Memory) -> dict[str, Outlook]:
    down = any(held.for_good for held in memory.held)

    def of(program: Program) -> Outlook:
        if program.phase is Phase.DONE:
            return Outlook.DONE
        if program.phase in {Phase.FATAL, Phase.EXITED}:
            return Outlook.GIVEN_UP
        dead_end = program.deaths.is_dead_end and program.phase is not Phase.RUNNING
        held = program.gpu_lost != "" or dead_end or (down and program.attempt is None)
        return Outlook.OVER if held else Outlook.OPEN

    return {name: of(each) for name, each in sorted(state.programs.items()) if each.wanted and not each.service}


def limit(state: State, settings: Settings, *, now_s: float, wall_s: float) -> str:
    """Which limit of [cost] is reached, as a clause; empty: none."""
    known_wall_s = wall_s if wall_clock.is_set(wall_s) else None
    return cost.limit_reached(settings.cost, paid_s=now_s - state.of(EndRecord).off_s, wall_s=known_wall_s)


def reason(state: State, settings: Settings, memory: Memory, cause: str, *, now_s: float, wall_s: float) -> str:
    """Why the work is over, as a clause."""
    if cause == BUDGET:
        return limit(state, settings, now_s=now_s, wall_s=wall_s)
    work = outlooks(state, memory)
    done = [name for name in work if work[name] is Outlook.DONE and cause == DONE]
    others = few([f"{name} {state.programs[name].phase}" for name in work if name not in done], _NAMED)
    if cause != DONE:
        return f"nothing can go on ({others})"
    return f"all is done ({few(done, _NAMED)}){f', except {others}' if others else ''}"


def unsaved(program: Program, spec: ProgramSpec | None, since_s: float) -> str:
    """Why its newest work is not saved although it was asked to exit, unless it ended before; empty: it is, or is not known.

    A script that ends at SIGTERM without a save never saves on request, so its newest checkpoint is all that there will be.
    """
    if program.attempt is not None:
        return program.attempt.stop.not_ended if program.attempt.stop is not None else ""
    asked_s, kept = program.exit.asked_at_s, program.ckpt.at_s
    if asked_s is None or (program.exit.at_s or asked_s) < since_s or (kept is not None and kept >= asked_s):
        return ""
    if program.steps is not None and program.steps <= (program.ckpt.step or 0):
        return ""
    if program.exit.signal == signal.SIGKILL:
        return f"killed {span((program.exit.at_s or asked_s) - asked_s)} after the request to save and exit"
    contract = spec is not None and spec.progress is Progress.BEAT and program.exit.code is not None
    return f"it exited with code {program.exit.code}" if contract and program.exit.code not in SAVED else ""


def saves(state: State, settings: Settings, now_s: float) -> str:
    """What is saved of each training, how old it is and, of a script, where: one clause for each program that has run."""
    left_s = state.of(EndRecord).left_s
    since_s = now_s if left_s is None else left_s
    parts: list[str] = []
    for name, program in sorted(state.programs.items()):
        if program.service or not program.attempts:
            continue
        why = unsaved(program, settings.program(name), since_s)
        age = "" if program.ckpt.at_s is None else f"{span(now_s - program.ckpt.at_s)} old"
        step = "" if program.ckpt.step is None else f"step {program.ckpt.step:,}"
        newest = ", ".join(each for each in (step, age, program.ckpt.path) if each) or "no known checkpoint"
        parts.append(f"{name} NOT saved ({why}; newest: {newest})" if why else f"{name} ({newest})")
    return ", ".join(parts) or "nothing"
