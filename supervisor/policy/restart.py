"""When to start a program again after its attempt died."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """`[restart]` in the config. All times in seconds."""

    first_delay_s: float = 0.0
    base_delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 300.0
    healthy_s: float = 600.0
    window_s: float = 3600.0
    window_deaths: int = 8
    slow_retry_s: float = 1800.0
    slow_retry_max_s: float = 6 * 3600.0
    same_step_deaths: int = 3
