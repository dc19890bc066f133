"""What the tests of the journal share: journals of given facts, and nights of the simulator to fill them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.adapters.journal import schema
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.model.codec import encode
from supervisor.model.facts import Fact, Finished, Stamped
from supervisor.model.inputs import SnapshotDue

if TYPE_CHECKING:
    from collections.abc import Sequence


def night(seed: int, *stretches_s: float, odds: dict[str, float] | str) -> list[Stamped]:
    """The facts of a simulated box, with a snapshot after each stretch but the last. `odds`: of a box by name, or these."""
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / each) for each in ("sim", "core")]
    from boxes import BOXES
    from world import Odds, World

    chances = BOXES[odds][0] if isinstance(odds, str) else Odds(**odds)
    world = World(seed, programs=3, odds=chances, look_s=20.0, upkeep=odds == "year").begin()
    for at, stretch_s in enumerate(stretches_s, 1):
        world.run(stretch_s)
        if at < len(stretches_s):
            world.post(SnapshotDue(0.0, 1))
    return list(world.core.journal)


def row(item: Stamped) -> schema.Row:
    unchecked = (item.seq, item.at_s, item.wall_s, item.boot_id, *encode(item.fact), 0)
    return (*unchecked[:7], schema.crc_of(unchecked))


def stamped(seq: int, fact: Fact | None = None) -> Stamped:
    return Stamped(seq, seq + 0.5, 1.7e9, "boot", fact or Finished(f"fact {seq}", "p"))


def written(path: Path, facts: Sequence[Stamped]) -> Path:
    """A journal of these facts."""
    schema.build(path, [row(item) for item in facts])
    return path


def all_of(path: Path, after_seq: int = 0) -> list[Stamped]:
    with JournalReader(path) as reader:
        return list(reader.read(after_seq))


def names(directory: Path) -> list[str]:
    """The files there, without the journal's spare."""
    return sorted(each.name for each in directory.iterdir() if each.name != "journal-copy")


def never(_seconds: float) -> bool:
    """A pause that stops nothing."""
    return False
