"""The pattern of the reboots on record (`policy/box/reboot_pattern.py`): for the alert, `reboots` and `status`."""

from __future__ import annotations

from supervisor.model.state import State
from supervisor.policy.box.reboot_pattern import Struck, pattern


def reboot_pattern(state: State, *, now_s: float) -> str:
    """One clause; empty when there is no pattern."""
    struck = [Struck(each.at_s, each.level, each.up_s) for each in state.reboots if each.cause == "unclean"]
    return pattern(struck, now_s=now_s)
