"""Facts as JSON rows: one shape for the API, `extralifectl journal` and the journal of a dead daemon."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any, Final

from supervisor import wall_clock
from supervisor.model.facts import Stamped
from supervisor.reports.sources import Json, Sources

_WORDS: Final = {  # kinds of facts whose own words a reader would not know
    "SpawnIntended": "starting", "BecameReady": "running", "Wanted": "requested", "OperatorAsked": "asked",
    "ProgramConfigured": "configured", "ProgramRemoved": "removed", "LevelChosen": "level", "StayedDown": "stopped",
    "StopIntended": "stopping", "KillIntended": "killing", "BackedOff": "waiting", "Tallied": "time spent",
    "FoundationLost": "file trouble", "FoundationRestored": "file restored", "ConfigMended": "config valid",
    "Sickened": "unhealthy", "Healed": "healthy again", "LadderLaid": "ladder", "Recovered": "healthy",
    "StartsFrom": "checkpoint", "CommandGone": "command left",
}  # fmt: skip


def word(kind: str) -> str:
    """A readable name of a kind of fact: `CheckpointBad` becomes `checkpoint bad`."""
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in kind).strip()
    return _WORDS.get(kind, spaced)


def fact_row(stamped: Stamped) -> dict[str, Any]:
    """One fact: its position and time in the journal, its program, its reason, and its own fields under `fields`.

    The fields are not mixed with the stamp: `Reported` has a `kind` of its own, and a later fact may have a `seq`.
    """
    fact = stamped.fact
    values = {field.name: getattr(fact, field.name) for field in fields(fact)}
    return {
        "seq": stamped.seq,
        "at_s": stamped.at_s,
        "wall_s": stamped.wall_s,
        "boot_id": stamped.boot_id,
        "kind": type(fact).__name__,
        "program": values.pop("program", None),
        "why": values.pop("why"),
        "fields": values,
    }


def facts(sources: Sources, after: int, program: str | None, limit: int, kinds: list[str]) -> Json:
    """Rows of the journal, oldest first: the first `limit` after a position, or the newest -`limit`. No kinds: all."""
    found = sources.facts(after, kinds, program, limit)
    return {"facts": select(found, program, limit, kinds, sources.state.clock_steps)}


def select(
    journal: Iterable[Stamped], program: str | None, limit: int, kinds: Sequence[str], clock_steps: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The requested rows, oldest first: the first `limit`, or the newest -`limit` when it is negative.

    `clock_steps` (`State.clock_steps`) corrects times of boots whose clock was set later. A fact about several programs
    (a reboot) is found under each of them. `journal` starts after the reader's position.
    """
    wanted = frozenset(kinds)
    found = (item for item in journal if _fits(item, program, wanted))
    chosen: Iterable[Stamped] = islice(found, limit) if limit >= 0 else deque(found, maxlen=-limit)
    return [
        fact_row(item) | {"wall_s": wall_clock.shown(item.wall_s, item.boot_id, clock_steps)} for item in chosen
    ]  # fmt: skip


def _fits(stamped: Stamped, program: str | None, kinds: frozenset[str]) -> bool:
    fact = stamped.fact
    if kinds and type(fact).__name__ not in kinds:
        return False
    if program is None:
        return True
    named = getattr(fact, "program", None)
    return named == program if named is not None else program in getattr(fact, "programs", ())
