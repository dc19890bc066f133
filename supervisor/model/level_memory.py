"""Data about the levels of this box, read from the state: the state of the load rule, and the costs of interruptions."""

from __future__ import annotations

import functools
from statistics import median

from supervisor.model.codec import MalformedFact, of_text
from supervisor.model.state import State
from supervisor.policy.level.load import LoadState
from supervisor.policy.level.worth import Costs


@functools.lru_cache(maxsize=16)
def _read(text: str) -> LoadState | None:
    try:
        return of_text(LoadState, text)
    except MalformedFact:  # another version wrote it with other fields: the rule begins again without a record
        return None


def known(state: State) -> LoadState | None:
    """The load rule's state for this box; None: there is none, or this version cannot read it."""
    return _read(state.climb.load) if state.climb.load else None


def costs(state: State) -> Costs:
    """The costs of a reboot and of a change of level on this box: medians of measurements, else the rule's defaults."""
    guess = Costs()
    down = [reboot.down_s for reboot in state.reboots if reboot.down_s is not None]
    intervals = [program.interval_s for program in state.programs.values() if program.interval_s is not None]
    return Costs(
        downtime_s=median(down) if down else guess.downtime_s,
        interval_s=median(intervals) if intervals else guess.interval_s,
        change_s=median(state.climb.costs_s) if state.climb.costs_s else guess.change_s,
    )
