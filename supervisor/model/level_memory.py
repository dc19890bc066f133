"""What this box has shown of its levels, read from the state: the memory of the load rule, and what interruptions cost."""

from __future__ import annotations

import functools
from statistics import median

from supervisor.model.codec import MalformedFact
from supervisor.model.snapshot import decoded
from supervisor.model.state import State
from supervisor.policy.level.load import LoadState
from supervisor.policy.level.worth import Costs


@functools.lru_cache(maxsize=16)
def _read(text: str) -> LoadState | None:
    try:
        return decoded(LoadState, text)
    except MalformedFact:  # of a version that remembers something else: the box is got to know again
        return None


def known(state: State) -> LoadState | None:
    """What the rule remembers of this box; None: nothing, or nothing that this version could read."""
    return _read(state.climb.load) if state.climb.load else None


def costs(state: State) -> Costs:
    """What a reboot and a change of level cost on this box: medians of what was measured, else the rule's guess."""
    guess = Costs()
    down = [reboot.down_s for reboot in state.reboots if reboot.down_s is not None]
    intervals = [program.interval_s for program in state.programs.values() if program.interval_s is not None]
    return Costs(
        downtime_s=median(down) if down else guess.downtime_s,
        interval_s=median(intervals) if intervals else guess.interval_s,
        change_s=median(state.climb.costs_s) if state.climb.costs_s else guess.change_s,
    )
