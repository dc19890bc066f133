"""Whether a live worker still makes progress."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StallSettings:
    """`[stall]` in the config. All times in seconds."""

    floor_s: float = 30.0
    factor: float = 5.0
    live_s: float = 10.0
    start_s: float = 120.0
    importing_s: float = 300.0
    building_s: float = 60.0
    building_s_per_env: float = 2.0
    restoring_s: float = 300.0
    compiling_s: float = 900.0
    evaluating_s: float = 900.0
    saving_s: float = 120.0
    leaving_s: float = 120.0
    cap_s: float = 3600.0
    continue_s: float = 5.0
    slow_ratio: float = 0.5
    slow_for_s: float = 60.0
