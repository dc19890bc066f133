"""The newest checkpoint of a script that has just ended: it may have been saved after the daemon's last look."""

from __future__ import annotations

import time
from typing import Final

import structlog

from supervisor import lack
from supervisor.adapters.process.own_checkpoints import Budget, Scanner, Unanswered, place_of
from supervisor.model.inputs import OwnCheckpoint
from supervisor.model.settings import ProgramSpec
from supervisor.ports import Clock

_MOST_S: Final = 5.0  # the next start waits for this


def last_checkpoint(spec: ProgramSpec | None, run_dir: str, clock: Clock) -> OwnCheckpoint | None:
    """None: there is none, the directory does not answer, or only the script's own check can tell, which may take long."""
    place = None if spec is None else place_of(spec, run_dir)
    if place is None or place.check:
        return None
    try:
        found = Scanner().scan(place, Budget(time.monotonic() + _MOST_S), now_wall_s=clock.wall_s(), running=False)
        return found.as_input(clock)
    except Exception as error:  # noqa: BLE001  the exit code must be reported all the same
        lack.check(error)
        if not isinstance(error, Unanswered):
            structlog.get_logger().exception("checkpoints_not_looked_at", base=place.base)
        return None
