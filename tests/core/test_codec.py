"""Facts and rows are the same thing, in both directions, for every fact there is."""

import dataclasses
import json
import math
import re
import types
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import codec, facts
from supervisor.model.codec import MalformedFact, UnknownFact, converter, decode, encode, kinds
from supervisor.model.lifecycle import Phase
from supervisor.model.state import AtLevel, Checkpoint, Counting, Program, Retry, Starts

# Lone surrogates too: the last log lines of a worker are whatever bytes it printed.
TEXT = st.text(max_size=20) | st.text(st.characters(codec=None), max_size=5)
PLAIN = {
    str: TEXT,
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
}


def values(annotation):
    if annotation in PLAIN:
        return PLAIN[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return st.lists(values(args[0]), max_size=4).map(tuple)
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=4)
    assert origin is types.UnionType, annotation
    return st.one_of(*map(values, args))


def any_of(cls):
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{each.name: values(hints[each.name]) for each in dataclasses.fields(cls)})


ANY_FACT = st.sampled_from(sorted(kinds().values(), key=lambda cls: cls.__name__)).flatmap(any_of)


@given(ANY_FACT)
def test_every_fact_comes_back_as_it_was(fact):
    kind, version, body = encode(fact)
    back = decode(kind, version, body)
    assert back == fact
    assert type(back) is type(fact)
    assert all(type(getattr(back, each.name)) is type(getattr(fact, each.name)) for each in dataclasses.fields(fact))
    assert encode(back) == (kind, version, body)


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_kind_comes_back(kind):
    """Each one at least once, whatever hypothesis draws: the smallest value of every field."""
    hints = typing.get_type_hints(kinds()[kind])
    smallest = {str: "", int: 0, bool: False, float: 0.5}
    fields = {
        each.name: smallest.get(hints[each.name], () if typing.get_origin(hints[each.name]) is tuple else None)
        for each in dataclasses.fields(kinds()[kind])
    }
    fields = {name: {} if typing.get_origin(hints[name]) is dict else value for name, value in fields.items()}
    fact = kinds()[kind](**fields)
    assert decode(*encode(fact)) == fact


def test_a_row_reads_as_prose():
    fact = facts.GaveUp(program="Pong", why="no such game")
    assert encode(fact) == ("GaveUp", 1, '{"why":"no such game","program":"Pong"}')


def test_a_field_that_came_later_gets_its_default():
    row = '{"why": "", "pid": 1, "version": "0.1.0", "clean": true, "salt": "00"}'
    assert decode("DaemonStarted", 1, row).adopted == 0


def test_a_field_of_a_newer_daemon_is_passed_over():
    row = '{"why": "", "program": "Pong", "episodes": 25000}'
    assert decode("Finished", 1, row) == facts.Finished(why="", program="Pong")


def test_a_whole_number_is_a_float_where_the_field_is_one():
    fact = decode("ClockStepped", 1, '{"why": "", "step_s": 3600}')
    assert type(fact.step_s) is float
    assert encode(fact)[2] == '{"why":"","step_s":3600.0}'


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(UnknownFact, match=r"^fact kind 'GpuCaughtFire' is unknown here: a newer extralife wrote it$"):
        decode("GpuCaughtFire", 1, "{}")


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_refused(version):
    with pytest.raises(UnknownFact, match=f"^fact Finished has version {version}, this extralife knows version 1$"):
        decode("Finished", version, '{"why": "", "program": "Pong"}')


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("Finished", "{", "fact Finished is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("Finished", '["why"]', "fact Finished is not a JSON object: '[\"why\"]'"),
        ("Finished", '{"why": ""}', "fact Finished lacks program"),
        ("Finished", "{}", "fact Finished lacks program, why"),
        ("Finished", '{"why": "", "program": 3}', "fact Finished, field program: 3 is not str"),
        ("Finished", '{"why": "", "program": null}', "fact Finished, field program: None is not str"),
        ("Wanted", '{"why": "", "program": "", "run": 1, "by": ""}', "fact Wanted, field run: 1 is not bool"),
        ("LevelChosen", '{"why": "", "level": "light", "slots": true}', "fact LevelChosen, field slots: True is not int"),
        ("LevelChosen", '{"why": "", "level": "light", "slots": 2.0}', "fact LevelChosen, field slots: 2.0 is not int"),
        ("ClockStepped", '{"why": "", "step_s": "1"}', "fact ClockStepped, field step_s: '1' is not a number"),
        ("ClockStepped", '{"why": "", "step_s": true}', "fact ClockStepped, field step_s: True is not a number"),
        ("ClockStepped", '{"why": "", "step_s": NaN}', "fact ClockStepped, field step_s: nan is not finite; unknown is None"),
        ("ClockStepped", '{"why": "", "step_s": 1e999}', "fact ClockStepped, field step_s: inf is not finite; unknown is None"),
        ("ClockStepped", '{"why": "", "step_s": 1' + "0" * 400 + "}", "fact ClockStepped, field step_s: a whole number too large for a float"),
        ("OperatorAsked", '{"why": "", "request": "", "args": "ab", "uid": 0}', "fact OperatorAsked, field args: 'ab' is not a list"),
        ("OperatorAsked", '{"why": "", "request": "", "args": [1], "uid": 0}', "fact OperatorAsked, field args: 1 is not str"),
        ("OperatorAsked", '{"why": "", "request": "", "args": [], "uid": "0"}', "fact OperatorAsked, field uid: '0' is not int"),
        ("Examined", '{"why": "", "program": "", "token": "", "evidence": []}', "fact Examined, field evidence: [] is not an object"),
        ("Examined", '{"why": "", "program": "", "token": "", "evidence": {"a": 1}}', "fact Examined, field evidence: 1 is not str"),
    ],
)  # fmt: skip
def test_a_damaged_body_is_named(kind, body, says):
    with pytest.raises(MalformedFact, match=f"^{re.escape(says)}$"):
        decode(kind, 1, body)


def test_a_body_that_is_nested_without_end_is_no_json():
    with pytest.raises(MalformedFact, match=r"^fact Finished is not JSON: maximum recursion depth exceeded"):
        decode("Finished", 1, "[" * 100_000)


def test_a_long_body_that_is_no_object_is_shown_in_part():
    with pytest.raises(MalformedFact, match=rf"^fact Finished is not a JSON object: '\[{'1,' * 39}1'$"):
        decode("Finished", 1, f"[{'1,' * 500}1]")


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        (facts.ClockStepped("", math.nan), "fact ClockStepped, field step_s: nan is not finite; unknown is None"),
        (facts.ClockStepped("", -math.inf), "fact ClockStepped, field step_s: -inf is not finite; unknown is None"),
        (facts.Finished("", program=3), "fact Finished, field program: 3 is not str"),
        (facts.ProgramFact("", program=""), "ProgramFact is not a fact of supervisor/model/facts.py"),
        (type("Finished", (facts.ProgramFact,), {})("", program=""), "Finished is not a fact of supervisor/model/facts.py"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(fact, says):
    with pytest.raises(MalformedFact, match=f"^{re.escape(says)}$"):
        encode(fact)


@pytest.mark.parametrize("annotation", [list[int], set[str], dict[int, str], int | str, int | None | str, object])
def test_a_field_type_that_json_cannot_hold_is_found_at_import(annotation):
    told = f"a record cannot have a field of type {annotation}"
    with pytest.raises(TypeError, match=f"^{re.escape(told)}$"):
        converter(annotation)


FLAT = {  # fields of earlier releases, beside those that have not moved
    "name": "Pong", "phase": "RUNNING", "since_s": 1.0, "since_wall_s": 2.0, "digest": "d", "retry_at_s": 9.0, "slow": True,
    "steps_exact": True, "began_step": 5, "spawn_failures": 2, "has_run": True, "roll_from": 7, "bad_checkpoints": ["a"],
    "needs": [{"level": "light", "gpu_bytes": 1, "host_bytes": None}], "batches": [["light", 64]],
    "usuals": [{"level": "", "rate": 20.0, "save_gap_s": None}],
}  # fmt: skip


@pytest.mark.parametrize("nested", [{}, {"ckpt": {"step": 3}}])
def test_a_program_of_an_earlier_release_has_its_fields_where_they_are_now(nested):
    found = codec.of_text(Program, json.dumps(FLAT | nested))
    assert found == Program(
        "Pong", Phase.RUNNING, 1.0, 2.0, "d", retry=Retry(9.0, slow=True), counting=Counting(exact=True, began_step=5),
        starts=Starts(failures=2, has_run=True), ckpt=Checkpoint(3 if nested else None, roll_from=7, bad=("a",)),
        by_level={"light": AtLevel(1, None, 64), "": AtLevel(rate=20.0)},
    )  # fmt: skip


@pytest.mark.parametrize("wrong", [{"needs": [{}]}, {"needs": 5}, {"batches": [[]]}, {"ckpt": 5}])
def test_a_damaged_program_of_an_earlier_release_is_named(wrong):
    with pytest.raises(codec.MalformedFact, match="a Program is not whole"):
        codec.of_text(Program, json.dumps(FLAT | wrong))
