"""The steps that each level would have kept in the time of a window: a part of the page `report` that no tracker has.

Values are measured, or "never measured"; none is scaled from another level. A level that the load rule has reviewed has a
speed with an error, and reboots that give a lower bound (`policy/level/worth.py`). For a level without a review, such as a
fixed one, the estimate is its kept steps in all its paid time, reboots included. It has no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.model.level_memory import costs
from supervisor.policy.level.worth import would_keep
from supervisor.policy.upkeep import cost
from supervisor.reports.cost_view import Games, at_level
from supervisor.reports.ledger import Ledger

Json = dict[str, Any]


def would_have(closed: Ledger, games: Games, levels: Sequence[Json], length_s: float) -> list[Json]:
    """One entry per level of the page `level`, in its order. If `kept_steps` is None, `why` gives the reason."""
    return [{**_shown(level), **_kept(closed, games, level, length_s)} for level in levels]


def _shown(level: Mapping[str, Any]) -> Json:
    keys = ("name", "in_force", "up_s", "reboots", "mtbf_s", "mtbf_bound_s", "steps_per_min", "speed", "speed_error", "veto")
    return {key: level[key] for key in keys}


def _kept(closed: Ledger, games: Games, level: Mapping[str, Any], length_s: float) -> Json:
    if level["steps_per_min"] is not None and level["up_s"]:
        steps_per_s, error = level["steps_per_min"] / 60.0, level["speed_error"]
        expected, least = would_keep(steps_per_s, error, level["reboots"], level["up_s"], costs(games.state), length_s)
        return {"kept_steps": expected, "kept_steps_least": least, "why": ""}
    paid_s, slot_s, kept = at_level(closed, games, level["name"], closed.first_s or 0.0, closed.at_s)
    rate = cost.slot_rate(kept, slot_s, paid_s)
    if rate is None:
        short = f"only {paid_s / 60:.0f} min measured" if 0.0 < paid_s < cost.LEAST_S else "no step was kept there"
        return {"kept_steps": None, "kept_steps_least": None, "why": short if paid_s > 0.0 else "never measured"}
    return {"kept_steps": kept / paid_s * length_s, "kept_steps_least": None, "why": ""}
