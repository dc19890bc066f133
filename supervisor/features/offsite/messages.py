"""The inputs and commands of copies off the box."""

from __future__ import annotations

import enum
from dataclasses import field

from supervisor.model.commands import Command
from supervisor.model.inputs import Input
from supervisor.records import Record


class Claim(enum.Enum):
    HELD = "held"  # this box holds it
    WRITE = "write"  # no box holds it, or this box does as soon as its lease is written
    LOST = "lost"  # another box has taken over
    FOREIGN = "foreign"  # another box holds it, and this box never did


class Lease(Record):
    """Who holds a repository: `token` is the holder's own, `since_s` seconds since the epoch by the holder's clock."""

    token: str
    generation: int
    box: str
    since_s: float = 0.0
    id: str = ""  # id of its restic snapshot
    place: str = ""  # name of its repository: a lease of another repository proves nothing about this one


class OffsiteDue(Input):
    """The newest time of a calendar of [offsite] that has passed. `what` is forget or check."""

    what: str
    due_wall_s: float


class Origin(Record):
    """The copy from which this box was restored. `at_s`: its journal time, if known; `token`: of that box's lease."""

    box: str
    token: str
    at_s: float | None


class LeaseFound(Input):
    """This box's claim on the repository of copies (`rules.py`); `lease` is the valid lease now."""

    claim: Claim
    lease: Lease
    origin: Origin | None = None
    missing: dict[str, str] = field(default_factory=dict)  # by program: the code that this box lacks to continue it


class OffsiteDone(Input):
    """The result of a command about copies: `what` is copy, look, take-over, forget or check. With an `error` it failed."""

    what: str
    cause: str = ""
    error: str = ""
    snapshot: str = ""
    as_of_s: float = 0.0
    as_of_wall_s: float = 0.0
    steps: dict[str, int | None] = field(default_factory=dict)
    size_bytes: int = 0
    sent_bytes: int = 0
    took_s: float = 0.0
    missed: dict[str, str] = field(default_factory=dict)
    due_wall_s: float | None = None
    read_percent: int | None = None  # of the repository's data, by a check
    missing: dict[str, str] | None = None  # of a look that failed: as of `LeaseFound`; None: not looked at
    then: str = ""  # of a copy: as requested


class OffsiteCopy(Command):
    """Copy everything off the box, within `limit_s`. Outcome: OffsiteDone. `urgent`: ends the running task."""

    cause: str
    programs: tuple[str, ...]
    limit_s: float
    token: str  # of the lease on record; next: the lease's generation and the name of its repository
    generation: int
    place: str
    urgent: bool = False
    look_only: bool = False  # read the lease, copy nothing
    moved_with: str | None = None  # this disk came from other hardware, with this newest copy on record; None: it did not
    then: str = ""  # what the copy says of the next one


class OffsiteTakeOver(Command):
    """Write a lease of this box into the repository. Outcome: OffsiteDone."""


class OffsiteTend(Command):
    """Remove old copies (`what` is forget), or verify the repository (check). Outcome: OffsiteDone."""

    what: str
    due_wall_s: float | None = None
