"""Whether the wall clock can be right, and how its earlier times are corrected once it is.

A board without a battery begins each boot in 1970, or at the date of its firmware, until the network sets its clock. A
time before this program was written cannot be right: the clock is *not set*. Journal time follows CLOCK_BOOTTIME, so all
time stamps before the clock is set are wrong by the same step. They are corrected by that step once the clock is set.
Until then such a time, and every age that is computed from it, is unknown.

Worked example: a boot begins at 1970-01-01 00:00:09. 65 s later the clock is set to 2026-11-21 05:02:00, a step of 56
years. The reboot that was stamped 00:00:12 was at 2026-11-21 05:00:58.

Why does the daemon not wait at its start until the clock is set: a box without a network would never train.
"""

from __future__ import annotations

from collections.abc import Mapping

SINCE_S = 1_704_067_200.0  # 2024-01-01; without `Final`: the client's fast verbs do not import typing


def is_set(wall_s: float) -> bool:
    return wall_s >= SINCE_S


def was_set(wall_s: float, step_s: float) -> bool:
    """Whether this step, which moved the clock to `wall_s`, is the one that set it."""
    return is_set(wall_s) and not is_set(wall_s - step_s)


def mended(wall_s: float, step_s: float | None) -> float:
    """The corrected time of a stamp of that boot. `step_s` is the step that set its clock; None: it is not set yet."""
    return wall_s if is_set(wall_s) or step_s is None else wall_s + step_s


def shown(wall_s: float, boot_id: str, steps: Mapping[str, float]) -> float:
    """The time of a fact as it is displayed; `steps` are the steps that set the clock, by boot id."""
    return mended(wall_s, steps.get(boot_id))
