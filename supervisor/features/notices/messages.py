"""The inputs and commands of notices."""

from __future__ import annotations

from dataclasses import field

from supervisor.model.inputs import Input
from supervisor.records import Record


class EndNotice(Record):
    """One notice. The same `id` means the same event; `what` is the source's own term; `until_s` is journal time."""

    id: str
    source: str
    kind: str
    what: str
    until_s: float | None = None  # None: the source gives no time


class EndNoticesRead(Input):
    """All notices that this box ends, from all sources; posted when they change. `errors`: sources that cannot be read."""

    found: tuple[EndNotice, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)  # by source
