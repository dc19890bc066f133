"""The work of this box: its wanted programs without services, whether they can go on, and the limits of [cost]."""

from __future__ import annotations

from typing import Final

from supervisor import wall_clock
from supervisor.formats import few
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Settings
from supervisor.model.state import Program, State
from supervisor.policy.upkeep import cost
from supervisor.policy.upkeep import when_done as rule
from supervisor.policy.upkeep.when_done import Outlook

_NAMED: Final = 5


def outlooks(state: State, settings: Settings) -> dict[str, Outlook]:
    fenced = state.offsite.keeps_down(on=settings.offsite.on)

    def of(program: Program) -> Outlook:
        if program.phase is Phase.DONE:
            return Outlook.DONE
        held = program.gpu_lost != "" or (fenced and program.attempt is None)
        return Outlook.OVER if held or program.phase in {Phase.FATAL, Phase.EXITED} else Outlook.OPEN

    return {name: of(each) for name, each in sorted(state.programs.items()) if each.wanted and not each.service}


def limit(state: State, settings: Settings, *, now_s: float, wall_s: float) -> str:
    """Which limit of [cost] is reached, as a clause; empty: none."""
    known_wall_s = wall_s if wall_clock.is_set(wall_s) else None
    return cost.limit_reached(settings.cost, paid_s=now_s - state.when_done.off_s, wall_s=known_wall_s)


def reason(state: State, settings: Settings, cause: str, *, now_s: float, wall_s: float) -> str:
    """Why the work is over, as a clause."""
    if cause == rule.BUDGET:
        return limit(state, settings, now_s=now_s, wall_s=wall_s)
    names = list(outlooks(state, settings))
    said = names if cause == rule.DONE else [f"{name} {state.programs[name].phase}" for name in names]
    return f"{'all is done' if cause == rule.DONE else 'nothing can go on'} ({few(said, _NAMED)})"
