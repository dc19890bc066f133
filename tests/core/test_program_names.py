"""Which programs a request means."""

import pytest

from supervisor.model.names import expand, members, plain


@pytest.mark.parametrize("spec", ["Pong", "Pong:Pong", "Pong:*", "Pong:"])
def test_a_program_is_its_own_group(spec):
    assert plain(spec) == "Pong"


def test_a_name_that_is_nobodys_stays_as_it_was_typed():
    assert plain("Pong:Breakout") == "Pong:Breakout"


def test_each_name_once_in_the_order_asked_and_all_of_them_sorted():
    known = [{"name": "Pong"}, {"name": "Breakout", "group": ""}]
    assert expand(["Pong:*", "Nobody", "Pong"], known) == ["Pong", "Nobody"]
    assert expand(["Pong", "all"], known) == ["Breakout", "Pong"]
    seeds = [
        {"name": name, "group": "G", "priority": priority} for name, priority in (("a", 9), ("b", 5), ("c", None), ("d", 5))
    ]
    assert expand(["all"], seeds) == expand(["G:*"], seeds) == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("Pong:*", ["Pong-s4", "Pong-s6"]), ("Pong:", ["Pong-s4", "Pong-s6"]), ("Pong:Pong-s4", ["Pong-s4"]), ("Pong-s4", ["Pong-s4"]),
        ("Pong-s4:Pong-s4", ["Pong-s4"]), ("Pong-s4:*", []), ("Pong", []), ("Qbert:Pong-s4", []), ("Qbert:*", ["Qbert"]), ("Qbert:x", []),
    ],
)  # fmt: skip
def test_the_programs_of_a_group(spec, found):
    views = [{"name": "Pong-s6", "group": "Pong"}, {"name": "Pong-s4", "group": "Pong"}, {"name": "Qbert", "group": "Qbert"}]
    assert members(spec, views) == found
