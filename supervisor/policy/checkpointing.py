"""How often a program saves a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """`[checkpoint]` in the config. All times in seconds."""

    min_s: float = 5.0
    max_s: float = 300.0
    first_s: float = 60.0
    move: float = 0.2
    prior_failures: float = 1.0
    prior_mtbf_s: float = 4 * 3600.0
