"""[when_done]: when this box is stopped, and by which command (`rules.py`)."""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record

DONE, STUCK, BUDGET = "done", "stuck", "budget"
CAUSES: Final = (DONE, STUCK, BUDGET)


class WhenDoneSettings(Record):
    command: tuple[str, ...] = key(
        (), "a program that stops this box; no shell reads it",
        unset="none: this box is not stopped", form='a list such as ["vastai", "stop", "instance", "1234"]',
    )  # fmt: skip
    when: tuple[str, ...] = key(
        (DONE,), "`done`: every program is DONE or given up; `stuck`: none can go on; `budget`: a limit of [cost]",
        choices=CAUSES, form='a list such as ["done"]',
    )  # fmt: skip
    after_s: float = key(600.0, "time between an end and the first step towards the command", low=0)
    timeout_s: float = key(300.0, "longest time of the command; so long after it the box must be gone", low=1, high=3600)
    hold_while_logged_in: bool = key(default=False, meaning="whether an open session (ssh, `supervisorctl fg`) holds it")


SECTIONS: Final = {"when_done": WhenDoneSettings}
