"""Changed copies of records: like those of `dataclasses.replace`, with and without slots."""

import dataclasses

import pytest

from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Level
from supervisor.model.state import Attempt, Program
from supervisor.records import replace

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
    copy = replace(record, **changes)
    assert copy == dataclasses.replace(record, **changes)
    assert type(copy) is type(record)
    assert copy is not record
    assert dataclasses.asdict(record) == before


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="Program has no field color, size"):
        replace(PROGRAM, size=1, why="it ran", color="red")


def test_a_copy_is_as_frozen_as_its_original():
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(PROGRAM, why="it ran").why = "it stopped"
