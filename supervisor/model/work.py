"""The work of this box: which programs it has, whether they can go on, and which limit of [cost] is reached."""

from __future__ import annotations

from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Settings
from supervisor.model.state import Program, State
from supervisor.policy.box import wall_clock
from supervisor.policy.upkeep import cost
from supervisor.policy.upkeep import when_done as rule
from supervisor.policy.upkeep.when_done import Outlook

_OVER = {Phase.FATAL, Phase.EXITED}


def wanted(state: State) -> list[Program]:
    """The programs that are the work: the wanted ones, without services."""
    return [each for each in state.programs.values() if each.wanted and not each.service]


def outlooks(state: State, settings: Settings) -> list[Outlook]:
    """The outlook of each program of the work."""
    fenced = state.offsite.keeps_down(on=settings.offsite.on)
    return [
        Outlook.DONE if each.phase is Phase.DONE
        else Outlook.OVER if each.phase in _OVER or each.gpu_lost or (fenced and each.attempt is None)
        else Outlook.OPEN
        for each in wanted(state)
    ]  # fmt: skip


def limit(state: State, settings: Settings, *, now_s: float, wall_s: float) -> str:
    """Which limit of [cost] is reached, as a clause; empty: none."""
    known_wall_s = wall_s if wall_clock.is_set(wall_s) else None
    return cost.limit_reached(settings.cost, paid_s=now_s - state.when_done.off_s, wall_s=known_wall_s)


def reason(state: State, settings: Settings, cause: str, *, now_s: float, wall_s: float) -> str:
    """Why the work is over, as a clause."""
    if cause == rule.BUDGET:
        return limit(state, settings, now_s=now_s, wall_s=wall_s)
    work = sorted(wanted(state), key=lambda each: each.name)
    if cause == rule.DONE:
        return f"all is done ({', '.join(each.name for each in work)})"
    return f"nothing can go on ({', '.join(f'{each.name} {each.phase}' for each in work)})"
