"""The page `level`: the ladder, the level in force, the measurements of each level, and the next trial.

For `extralifectl level`, /api/v1/level and the one line of `status`; from a dead daemon's journal too. Unknown is None.
"""

from __future__ import annotations

import math

from supervisor.formats import duration, number
from supervisor.model.level_memory import costs, known
from supervisor.model.settings import Level, Rung
from supervisor.model.state import LevelRecord, State
from supervisor.policy.level import load
from supervisor.policy.level.load import FIXED, LevelShown, LoadState
from supervisor.policy.level.worth import mtbf_bound_s
from supervisor.reports.sources import Json, Sources


def level(sources: Sources) -> Json:
    """The ladder, and the level in force. Without settings (a dead daemon whose config is gone), only of the journal."""
    state, settings, now_s = sources.state, sources.settings, sources.now_s
    climb, pin = state.climb, state.climb.pin
    remembered = known(state) if settings is None or settings.climbs else None
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
        "levels": _levels(sources, remembered),
    }  # fmt: skip
    return view | {"line": _line(view)}


def _levels(sources: Sources, remembered: LoadState | None) -> list[Json]:
    state, settings = sources.state, sources.settings
    ladder = [name for name, _ in state.climb.ladder]
    rungs = settings.rungs if settings is not None else [Rung(Level(name), ()) for name in ladder or [state.level]]
    rule = load.LoadSettings() if settings is None else settings.load
    cap, why = (None if remembered is None else state.cap(ladder)) or (len(rungs), "")  # without the rule: as configured
    if remembered is None or len(remembered.known) != len(rungs):
        return [_level(sources, rung, why if place > cap else "") for place, rung in enumerate(rungs)]
    return [
        _level(sources, rung, why if place > cap else "") | _measured(remembered, place, rung.level.name, shown, sources)
        for place, (rung, shown) in enumerate(zip(rungs, load.shown(rule, costs(state), remembered), strict=True))
    ]


def _level(sources: Sources, rung: Rung, objection: str) -> Json:
    """A level without the load rule, by the reboots recorded at it. `objection`: the pre-checks'."""
    level, state = rung.level, sources.state
    up_s, reboots = up_at(state, level.name, now_s=sources.now_s, boot_at_s=sources.memory.boot_at_s)
    return {
        "name": level.name,
        "in_force": level.name == state.level,
        "slots": level.slots if rung.programs else None,
        "num_envs": level.num_envs if rung.programs else None,
        "batch_size": level.batch_size if rung.programs else None,
        **_reboots(up_s, float(reboots), 0),
        "steps_per_min": None, "speed": None, "speed_error": None, "readings": 0, "worth": None,
        "next_trial_s": None, "shortest_s": None,
        "veto": rung.veto or objection,
    }  # fmt: skip


def up_at(state: State, level: str, *, now_s: float, boot_at_s: float | None) -> tuple[float, int]:
    """(Seconds for which the box was up at a level, the present stay included; unclean reboots there of a known uptime)."""
    record = state.levels.get(level, LevelRecord())
    blind = sum(each.cause == "unclean" and each.up_s is None and each.level == level for each in state.reboots)
    stays = level == state.level and boot_at_s is not None
    here_s = now_s - max(boot_at_s or 0.0, state.climb.changed_at_s or 0.0) if stays else 0.0
    return record.up_s + here_s, record.reboots - blind


def _measured(remembered: LoadState, place: int, name: str, shown: LevelShown, sources: Sources) -> Json:
    known, readings, now_s = remembered.known[place], remembered.speeds.readings[place], sources.now_s
    measured = known.up_s or known.reboots or known.failures  # before its first review the level has its time in force
    tenure = sources.memory.tenure
    here_s = tenure.up_s if tenure is not None and tenure.level == name else 0.0  # no review has added it yet
    return {
        **(_reboots(known.up_s + here_s, known.reboots, known.failures) if measured else {}),
        "steps_per_min": math.exp(remembered.speeds.mean[place]) if readings else None,
        **shown._asdict(),
        "readings": readings,
        "next_trial_s": None if shown.next_trial_s is None else max(0.0, shown.next_trial_s - now_s),
        "shortest_s": known.shortest_s,
    }


def _reboots(up_s: float, reboots: float, failures: int) -> Json:
    return {
        "up_s": up_s,
        "reboots": reboots,
        "failed_trials": failures,
        "mtbf_s": up_s / reboots if reboots and up_s > 0.0 else None,
        "mtbf_bound_s": mtbf_bound_s(reboots, up_s) if up_s else None,
    }


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
