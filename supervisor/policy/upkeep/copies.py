"""Why a copy off the box is made: its cause in the journal, and which causes do not wait."""

from __future__ import annotations

from typing import Final

LEVEL, ROLLBACK, OPERATOR, PERIOD = "level", "rollback", "operator", "period"
REBOOT, NOTICE, START, STOP = "reboot", "notice", "start", "stop"
DONE: Final = "done"  # this box is about to be stopped for good, so the repository is verified after the copy
IDLE, LEFT = "idle", "left"  # with DONE, what a copy says if no other one follows
URGENT: Final = frozenset({OPERATOR, REBOOT, NOTICE, STOP})  # these do not wait after a failure
PREEMPTING: Final = URGENT | {DONE}  # these interrupt a check or a removal of old copies
