"""What a machine reads in a repository about the box that holds it, and what it writes there about the next one.

A mark is a snapshot of one small file. `presumed` says that a machine presumes the box dead whose newest copy and lease it
names: it is void as soon as that box gives another sign of life. `pause` and `resume` are the operator's; the newest counts.
"""

from __future__ import annotations

import socket
from typing import Final

from supervisor.features.next_box.rules import Sight
from supervisor.features.offsite.adapters import hardware
from supervisor.features.offsite.adapters.restic import COPY_TAG, MARK_TAG, Restic, ResticSnapshot

PRESUMED, PAUSE, RESUME = "presumed", "pause", "resume"
_NONE: Final = "-"


def look(restic: Restic) -> Sight:
    """What the repository says now. Raises ResticError."""
    snapshots, locks = restic.snapshots(MARK_TAG), sorted(f"{each.host}:{each.renewed_wall_s}" for each in restic.locks())
    copy, lease, marks = _newest(snapshots)
    holder = copy if lease is None or (copy is not None and copy.generation >= lease.generation) else lease
    word = next((each for each in reversed(marks) if each.word("mark") in {PAUSE, RESUME}), None)
    paused = word.host if word is not None and word.word("mark") == PAUSE else ""
    if holder is None:
        return Sight("", paused=paused)
    named = _named(copy, lease)
    on = holder.word("on")
    return Sight(
        " ".join((named, *locks)), holder.host, holder.word("then"), paused,
        next((each.host for each in marks if each.word("mark") == PRESUMED and each.word("of") == named), ""),
        on != "" and (f"on={on}",) == hardware.instance_tags(), named=named,
    )  # fmt: skip


def mark(restic: Restic, word: str) -> None:
    """Write a mark. `presumed` names the copy and the lease that are the newest now. Raises ResticError."""
    snapshots = restic.snapshots(MARK_TAG)
    copy, lease, marks = _newest(snapshots)
    number = 1 + max((each.number for each in marks), default=0)
    of = (f"of={_named(copy, lease)}",) if word == PRESUMED else ()
    tags = (MARK_TAG, f"mark={word}", f"number={number}", *of)
    restic.note("mark", f"{word}\n", host=socket.gethostname(), tags=tags)


def _newest(
    snapshots: list[ResticSnapshot],
) -> tuple[ResticSnapshot | None, ResticSnapshot | None, list[ResticSnapshot]]:
    """The newest copy, the lease that counts, and the marks. `snapshots`: the oldest first, by generation and number."""
    copies = [each for each in snapshots if COPY_TAG in each.tags]
    leases = [each for each in snapshots if each.lease is not None]
    marks = [each for each in snapshots if MARK_TAG in each.tags]
    return copies[-1] if copies else None, leases[-1] if leases else None, marks


def _named(copy: ResticSnapshot | None, lease: ResticSnapshot | None) -> str:
    return "/".join(_NONE if each is None else each.id for each in (copy, lease))
