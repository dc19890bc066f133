"""The page `level`: the ladder, the level in force, the measurements of each level, and the next trial.

For `supervisorctl level`, /api/v1/level and the one line of `status`; from a dead daemon's journal too. Unknown is None.
"""

from __future__ import annotations

import math
from typing import Any

from supervisor.formats import duration, number
from supervisor.model.level_memory import costs, known
from supervisor.model.settings import FIXED, Level, Rung, Settings
from supervisor.model.state import LevelRecord, State
from supervisor.policy.level import hours, load
from supervisor.policy.level.load import LevelShown, LoadState
from supervisor.policy.level.worth import mtbf_bound_s

Json = dict[str, Any]


def climb_view(state: State, settings: Settings | None, *, now_s: float) -> Json:
    """The page as JSON values. Without settings (a dead daemon whose config is gone), it uses only the journal."""
    climb, pin = state.climb, state.climb.pin
    remembered = known(state) if settings is None or settings.climbs else None
    rungs = _rungs(state, settings)
    shown = _shown(state, settings, rungs, remembered)
    view: Json = {
        "mode": (settings.load.mode or FIXED) if settings is not None else None,
        "level": state.level,
        "trial": climb.trial,
        "since_wall_s": climb.changed_wall_s,
        "why": climb.why,
        "said": climb.said if remembered is not None else "",
        "pin": None
        if pin is None
        else {
            "level": pin.level, "by": pin.by, "wall_s": pin.wall_s,
            "left_s": None if pin.until_s is None else max(0.0, pin.until_s - now_s),
        },
        "reboot_penalty_min": settings.load.reboot_penalty_min if settings is not None else None,
        "change_cost_s": costs(state).change_s if climb.costs_s else None,
        "bad_hours": None if remembered is None else _bad_hours(remembered, now_s),
        "levels": [_level(state, rung, shown.get(rung.level.name), remembered, place, now_s) for place, rung in rungs],
    }  # fmt: skip
    return view | {"line": _line(view)}


def _bad_hours(remembered: LoadState, now_s: float) -> Json | None:
    """Hours of the day in which the box reboots far more often: how long they are, and when they begin or end next."""
    bad = remembered.hours.bad
    if bad is None:
        return None
    return {
        "now": hours.are_bad(remembered.hours, now_s),
        "for_s": (bad[1] - bad[0]) % hours.DAY_S,
        "changes_in_s": hours.changes_in_s(remembered.hours, now_s),
    }


def _rungs(state: State, settings: Settings | None) -> list[tuple[int, Rung]]:
    if settings is not None:
        return list(enumerate(settings.rungs))
    names = [name for name, _ in state.climb.ladder] or [state.level]
    return [(place, Rung(Level(name), ())) for place, name in enumerate(names)]


def _shown(
    state: State, settings: Settings | None, rungs: list[tuple[int, Rung]], remembered: LoadState | None
) -> dict[str, LevelShown]:
    if remembered is None or len(remembered.known) != len(rungs):
        return {}
    names = tuple(rung.level.name for _, rung in rungs)
    rule = load.LoadSettings(names=names) if settings is None else settings.load.rule(names)
    return {line.name: line for line in load.shown(rule, costs(state), remembered)}


def _level(
    state: State, rung: Rung, shown: LevelShown | None, remembered: LoadState | None, place: int, now_s: float
) -> Json:  # fmt: skip
    """One level: from the load rule's measurements if it is on, else from the reboots recorded at that level."""
    level, record = rung.level, state.levels.get(rung.level.name, LevelRecord())
    up_s, reboots = (shown.up_s, shown.reboots) if shown is not None else (record.up_s, float(record.reboots))
    steps_per_min = None
    if remembered is not None and shown is not None and shown.readings:
        steps_per_min = math.exp(remembered.speeds.mean[place])
    next_s = None if shown is None or shown.next_trial_s is None else max(0.0, shown.next_trial_s - now_s)
    return {
        "name": level.name,
        "in_force": level.name == state.level,
        "slots": level.slots if rung.programs else None,
        "num_envs": level.num_envs if rung.programs else None,
        "batch_size": level.batch_size if rung.programs else None,
        "up_s": up_s,
        "reboots": reboots,
        "failed_trials": 0 if shown is None else shown.failures,
        "mtbf_s": up_s / reboots if reboots and up_s > 0.0 else None,
        "mtbf_bound_s": mtbf_bound_s(reboots, up_s) if up_s else None,
        "steps_per_min": steps_per_min,
        "speed": None if shown is None else shown.speed,
        "speed_error": None if shown is None else shown.speed_error,
        "readings": 0 if shown is None else shown.readings,
        "worth": None if shown is None else shown.worth,
        "next_trial_s": next_s,
        "shortest_s": None if shown is None else shown.shortest_s,
        "veto": rung.veto or _checked(state, remembered, place),
    }


def _checked(state: State, remembered: LoadState | None, place: int) -> str:
    """The objection of the pre-checks to a level. Without the load rule there is none: the operator has fixed the level."""
    found = state.cap([name for name, _ in state.climb.ladder]) if remembered is not None else None
    return found[1] if found is not None and place > found[0] else ""


# --- one line ------------------------------------------------------------------------------------------------------------


def _line(view: Json) -> str:
    """`medium: 41.2k steps/min kept, no reboot in 1d 3h (MTBF >= 11h 54m at 90 %); next trial in 20m`."""
    levels = view["levels"]
    here = next((level for level in levels if level["in_force"]), None)
    if here is None:
        return ""
    parts = [_record(here)]
    above = levels[levels.index(here) + 1] if levels.index(here) + 1 < len(levels) else None
    if above is not None and view["mode"] != FIXED and view["pin"] is None and not view["trial"]:
        parts += _above(above)
    if view["pin"] is not None:
        left_s = view["pin"]["left_s"]
        parts.append("pinned" if left_s is None else f"pinned for another {duration(left_s)}")
    return f"{here['name']}{' on trial' if view['trial'] else ''}: {'; '.join(parts)}"


def _record(level: Json) -> str:
    parts = [] if level["steps_per_min"] is None else [f"{number(level['steps_per_min'])} steps/min kept"]
    reboots, bound_s = level["reboots"], level["mtbf_bound_s"]
    bound = "" if bound_s is None else f" (MTBF >= {duration(bound_s)} at 90 %)"
    if not level["up_s"]:
        parts.append("not measured yet")
    elif reboots:
        parts.append(f"a reboot every {duration(level['mtbf_s'])}{bound}")
    else:
        parts.append(f"no reboot in {duration(level['up_s'])}{bound}")
    return ", ".join(parts)


def _above(above: Json) -> list[str]:
    parts = []
    if above["failed_trials"]:
        ran = "" if above["shortest_s"] is None else f" (shortest {duration(above['shortest_s'])})"
        parts.append(f"failed trials of {above['name']}: {above['failed_trials']}{ran}")
    if above["veto"]:
        parts.append(f"{above['name']} is vetoed: {above['veto']}")
    elif above["next_trial_s"] is not None:
        parts.append(f"next trial in {duration(above['next_trial_s'])}")
    return parts
