"""Records: frozen dataclasses with slots, and changed copies like those of the standard library."""

import dataclasses

import pytest

from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Level
from supervisor.model.state import Attempt, Program
from supervisor.records import Record, replace

PROGRAM = Program("Pong", Phase.RUNNING, 1.0, 2.0, "digest", attempt=Attempt(1, "token", 1.0, "digest"))


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (PROGRAM, {}),
        (PROGRAM, {"why": "it ran", "attempt": None}),
        (PROGRAM.attempt, {"pid": 7}),
        (Level(slots=2), {"slots": 3}),
    ],
)
def test_a_copy_is_that_of_the_standard_library(record, changes):
    before = dataclasses.asdict(record)
    changed = replace(record, **changes)
    assert changed == dataclasses.replace(record, **changes)
    assert type(changed) is type(record)
    assert changed is not record
    assert dataclasses.asdict(record) == before


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="Program has no field color, size"):
        replace(PROGRAM, size=1, why="it ran", color="red")


def test_a_class_below_record_is_a_frozen_dataclass_with_slots():
    class Base(Record):
        why: str

    class Whole(Base):
        step: int | None = None

    made = Whole("it ran", step=7)
    assert (repr(made).rpartition(".")[2], made == Whole("it ran", 7)) == ("Whole(why='it ran', step=7)", True)
    assert (Base.__slots__, Whole.__slots__, hasattr(made, "__dict__")) == (("why",), ("step",), False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.step = 8
