"""What the tests of the journal share: journals of given facts, and nights of the simulator to fill them."""

import sys
from pathlib import Path

from supervisor.adapters.journal import schema
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.model.codec import encode
from supervisor.model.facts import Finished, Stamped
from supervisor.model.inputs import SnapshotDue


def night(seed, *stretches_s, odds):
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


def row(item):
    unchecked = (item.seq, item.at_s, item.wall_s, item.boot_id, *encode(item.fact), 0)
    return (*unchecked[:7], schema.crc_of(unchecked))


def stamped(seq, fact=None):
    return Stamped(seq, seq + 0.5, 1.7e9, "boot", fact or Finished(f"fact {seq}", "p"))


def written(path, facts):
    """A journal of these facts."""
    schema.build(path, [row(item) for item in facts])
    return path


def all_of(path, after_seq=0):
    with JournalReader(path) as reader:
        return list(reader.read(after_seq))


def names(directory):
    """The files there, without the journal's spare."""
    return sorted(each.name for each in directory.iterdir() if each.name != "journal-copy")


def never(_seconds):
    """A pause that stops nothing."""
    return False
