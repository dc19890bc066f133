"""A snapshot is the facts before it: for every state there is, at every cut, over versions that add a field."""

import dataclasses
import enum
import importlib.util
import json
import os
import re
import typing

import pytest
from core_kit import Core, facts, kinds, settings

from supervisor.model import codec
from supervisor.model.codec import MalformedFact, as_text, of_text
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold, fold_all, replay
from supervisor.model.inputs import SnapshotDue
from supervisor.model.state import Checkpoint, LastExit, State
from supervisor.policy.worker.restart import DeadEnd, Deaths

SEEDS = int(os.environ.get("SIM_SEEDS", "2"))


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Leaf:
    colour: Colour
    weight: float | None = None


@dataclasses.dataclass(frozen=True)
class Tree:
    leaf: Leaf
    pairs: tuple[tuple[str, float], ...] = ()
    leaves: dict[str, Leaf] = dataclasses.field(default_factory=dict)
    row: tuple[Leaf, ...] = ()
    other: Leaf | None = None


class Bird(typing.NamedTuple):
    leaf: Leaf
    heights_m: tuple[float, ...] = ()


TREE = Tree(Leaf(Colour.RED), (("a", 1.5),), {"x": Leaf(Colour.RED, 2.0)}, (Leaf(Colour.RED),), Leaf(Colour.RED))


def test_a_record_comes_back_with_all_that_is_in_it():
    text = as_text(TREE)
    back = of_text(Tree, text)
    assert back == TREE
    assert type(back.leaf.colour) is Colour
    assert type(back.pairs[0]) is tuple
    assert text == json.dumps(json.loads(text), separators=(",", ":"))


def test_a_named_tuple_is_a_record_too_with_its_names():
    bird = Bird(Leaf(Colour.RED), (1.5, 2.0))
    assert as_text(bird) == '{"leaf":{"colour":"red","weight":null},"heights_m":[1.5,2.0]}'
    assert of_text(Bird, as_text(bird)) == bird
    assert of_text(Bird, '{"leaf":{"colour":"red"},"wings":2}') == Bird(Leaf(Colour.RED)), "one field more, one less"
    with pytest.raises(MalformedFact, match=r"^a Bird is not whole: .* missing 1 required positional argument: 'leaf'$"):
        of_text(Bird, "{}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a Tree is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "[] is not a Tree"),
        ("{}", "a Tree is not whole: Tree.__init__() missing 1 required positional argument: 'leaf'"),
        ('{"leaf":{"colour":"blue"}}', "'blue' is no Colour"),
        ('{"leaf":{"colour":"red","weight":"1"}}', "'1' is not a number"),
        ('{"leaf":{"colour":"red"},"pairs":[["a"]]}', "['a'] is not a list of 2"),
        ('{"leaf":{"colour":"red"},"pairs":["ab"]}', "'ab' is not a list of 2"),
        ('{"leaf":{"colour":"red"},"other":3}', "3 is not a Leaf"),
    ],
)
def test_what_is_no_snapshot_is_malformed(text, says):
    with pytest.raises(MalformedFact, match=f"^{re.escape(says)}$"):
        of_text(Tree, text)


def test_a_field_more_or_less_is_no_matter():
    assert of_text(Tree, '{"leaf":{"colour":"red","height":3},"age":1}') == Tree(Leaf(Colour.RED))


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (float("nan"), "a Tree that is not JSON: Out of range float values are not JSON compliant"),
        (object(), "a Tree that is not JSON: Object of type object is not JSON serializable"),
        ("heavy", "'heavy' is not a number"),
    ],
    ids=["nan", "object", "word"],
)
def test_what_would_not_come_back_is_refused(weight, says):
    with pytest.raises(MalformedFact, match=f"^{re.escape(says)}"):
        as_text(Tree(Leaf(Colour.RED, weight)))


def test_what_comes_back_as_something_else_is_refused():
    with pytest.raises(MalformedFact, match=r"^a Tree that does not come back as it was$"):
        as_text(Tree(Leaf(Colour.RED), pairs=[("a", 1.0)]))


# --- in the journal ----------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_taken_when_it_is_due_and_changes_nothing():
    core = Core(settings("Pong")).running("Pong")
    before = core.state
    decision = core.give(SnapshotDue(core.now_s, 2345))
    assert kinds(decision) == ["Snapshot"]
    assert decision.facts[0].why == "state after 2,345 more facts"
    assert core.state == before


def journal_of(seed):
    """A rough night, with snapshots here and there."""

    from world import Odds, World

    world = World(seed, odds=Odds(crash_s=900.0, operator_s=600.0), look_s=20.0).begin()
    world.run(6 * 3600.0)
    return list(world.core.journal)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_at_any_cut_the_snapshot_stands_for_what_was_before(seed):
    """fold(snapshot, rest) == fold(all), for every place in the journal at which the snapshot could have been taken."""
    journal = journal_of(seed)
    whole = fold_all(journal)
    state = State()
    assert len(journal) > 50
    for cut, item in enumerate(journal):
        if cut % (len(journal) // 12) == seed % 3:
            row = Stamped(cut, state.at_s, state.wall_s, state.boot_id, facts.Snapshot("due", as_text(state)))
            kept = [row, *journal[cut:]]
            assert fold_all(kept) == whole
            assert replay([*journal[:cut], *kept]) == (whole, 0)
            assert fold(State(boots=99), row) == state, "whatever came before"
        state = fold(state, item)


def test_what_was_lost_before_the_newest_snapshot_is_not_missed():
    journal = journal_of(3)
    cut = len(journal) // 2
    state = fold_all(journal[:cut])
    row = Stamped(cut, state.at_s, state.wall_s, state.boot_id, facts.Snapshot("due", as_text(state)))
    assert replay([*journal[: cut // 2], row, *journal[cut:]]) == (fold_all(journal), 0)


# --- what is made when the module is imported -----------------------------------------------------------------------------


def test_the_tables_come_out_alike_when_they_are_made_again():
    """Tables of converters are made at import: here they are made anew, and everything that there is passes through them."""
    source = importlib.util.spec_from_file_location(codec.__name__, codec.__file__)
    fresh = importlib.util.module_from_spec(source)
    source.loader.exec_module(fresh)
    core = Core(settings("Pong", "Qbert")).running("Pong", "Qbert")
    core.ended("Qbert", signal=9)
    core.ask("stop", "Pong")
    text = fresh.as_text(core.state)
    assert text == as_text(core.state)
    assert fresh.of_text(State, text) == core.state
    for stamped in core.journal:
        row = fresh.encode(stamped.fact)
        assert row == codec.encode(stamped.fact)
        assert fresh.decode(*row) == stamped.fact
    assert fresh._KINDS == codec._KINDS
    assert {kind: tuple(fields) for kind, fields in fresh._FIELDS.items()} == {
        kind: tuple(fields) for kind, fields in codec._FIELDS.items()
    }


def test_a_program_of_a_release_whose_record_was_flat_keeps_its_checkpoint_its_end_and_its_deaths():
    flat = {
        "name": "Pong", "phase": "BACKOFF", "since_s": 1.0, "since_wall_s": 2.0, "digest": "d",
        "ckpt_step": 900, "ckpt_at_s": 5.0, "ckpt_stall_s": 0.1, "ckpt_path": "/w/900.pt", "ckpt_bytes": 7, "quarantined_since_ckpt": True, "quarantined_step": 950,
        "exit_cause": "killed", "exit_code": None, "exit_signal": 9, "exit_wall_s": 3.0, "ended_at_s": 6.0, "asked_at_s": None,
        "deaths_s": [6.0], "death_resumes": [800], "streak": 1, "openings": 0, "died_after_s": 4.0,
        "dead_end": {"cause": "killed", "status": -9, "step": 950, "count": 1},
    }  # fmt: skip
    program = of_text(State, json.dumps({"programs": {"Pong": flat}})).programs["Pong"]
    assert program.ckpt == Checkpoint(900, 5.0, 0.1, "/w/900.pt", 7, quarantined=True, quarantined_step=950)
    assert program.exit == LastExit("killed", None, 9, 3.0, 6.0)
    assert program.deaths == Deaths((6.0,), 1, 0, DeadEnd("killed", -9, 950), 4.0)
