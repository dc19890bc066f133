"""Records: what is made of a class, and changed copies, are like those of the standard library, with and without slots."""

import copy
import dataclasses
import re
from dataclasses import field
from pathlib import Path
from typing import ClassVar

import pytest

from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Level
from supervisor.model.state import Attempt, Program
from supervisor.records import Record, dataclass, replace

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


# --- classes --------------------------------------------------------------------------------------------------------------


def classes(make, **options):
    """A base and a class of every kind of field, by one of the two decorators."""

    @make(**options)
    class Base:
        VERSION: ClassVar[int] = 1
        why: str

    @make(**options)
    class Whole(Base):
        """With a docstring."""

        step: int | None = None
        names: list = field(default_factory=list)
        secret: str = field(default="hidden", repr=False)
        aside: int = field(default=0, compare=False)
        total: int = field(init=False, compare=False)

        def __post_init__(self):
            object.__setattr__(self, "total", (self.step or 0) + self.aside)

    @make(**options)
    class OwnWords(Base):
        def __eq__(self, other):
            return isinstance(other, OwnWords)

        def __hash__(self):
            return 7

        def __repr__(self):
            return "own words"

    return Base, Whole, OwnWords


def told(do):
    """What came of it, without the names of the classes' places."""
    try:
        return do()
    except Exception as error:
        return type(error), str(error).rpartition(">.")[2]


KINDS = pytest.mark.parametrize(
    "options", [{"frozen": frozen, "slots": slots} for frozen in (True, False) for slots in (True, False)], ids=str
)
USES = {
    "made": lambda base, whole, own: [str(whole("w")), str(whole("w", 3, aside=4)), whole("w", 3, aside=4).total],
    "described": lambda base, whole, own: [str(whole("w", names=[1])), str(own("w")), whole.__doc__, whole.__match_args__],
    "equal": lambda base, whole, own: [whole("w") == whole("w"), whole("w") == whole("v"), whole("w", aside=1) == whole("w"),
                                       base("w") == whole("w"), own("w") == own("v"), base("w") != 3],
    "hashed": lambda base, whole, own: hash(base("w")) == hash(base("w")),
    "hashed by itself": lambda base, whole, own: hash(own("w")),
    "lists apart": lambda base, whole, own: whole("w").names is whole("w").names,
    "too few": lambda base, whole, own: whole(),
    "too many": lambda base, whole, own: base("w", 1),
    "no such field": lambda base, whole, own: whole("w", color="red"),
    "a field for others only": lambda base, whole, own: whole("w", total=1),
    "changed": lambda base, whole, own: setattr(base("w"), "why", "v"),
    "changed back": lambda base, whole, own: delattr(whole("w"), "step"),
    "fields": lambda base, whole, own: [each.name for each in dataclasses.fields(whole)],
    "as a dictionary": lambda base, whole, own: dataclasses.asdict(whole("w", names=[[1]])),
    "replaced": lambda base, whole, own: str(dataclasses.replace(whole("w"), step=5, why="v")),
    "copied": lambda base, whole, own: [copy.copy(whole("w", 2)) == whole("w", 2), copy.deepcopy(whole("w", 2)) == whole("w", 2)],
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("use", USES)
def test_a_class_is_like_one_of_the_standard_library(options, use):
    """Asked twice: first a method is compiled, then it is there."""
    theirs, ours = classes(dataclasses.dataclass, **options), classes(dataclass, **options)
    expected = told(lambda: USES[use](*theirs))
    assert [told(lambda: USES[use](*ours)) for _ in range(2)] == [expected, expected]


@KINDS
def test_only_a_class_without_slots_that_may_change_takes_another_attribute(options):
    """Not compared: some standard libraries stumble over one that is frozen and has slots, and name another error."""
    base, _, _ = classes(dataclass, **options)
    refused = dataclasses.FrozenInstanceError if options["frozen"] else AttributeError
    if options["frozen"] or options["slots"]:
        with pytest.raises(refused):
            base("w").color = "red"
    else:
        base("w").color = "red"


def test_every_record_of_the_daemon_is_made_so():
    standard = re.compile(r"from dataclasses import .*\bdataclass\b|dataclasses\.dataclass\(")
    files = (Path(__file__).parents[1] / "supervisor").rglob("*.py")
    assert [path.name for path in files if standard.search(path.read_text())] == ["records.py"]


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
