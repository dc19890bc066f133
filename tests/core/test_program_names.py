"""Which programs a request means."""

import pytest

from supervisor.model.names import expand, plain


@pytest.mark.parametrize("spec", ["Pong", "Pong:Pong", "Pong:*", "Pong:"])
def test_a_program_is_its_own_group(spec):
    assert plain(spec) == "Pong"


def test_a_name_that_is_nobodys_stays_as_it_was_typed():
    assert plain("Pong:Breakout") == "Pong:Breakout"


def test_each_name_once_in_the_order_asked_and_all_of_them_sorted():
    known = ["Pong", "Breakout"]
    assert expand(["Pong:*", "Nobody", "Pong"], known) == ["Pong", "Nobody"]
    assert expand(["Pong", "all"], known) == ["Breakout", "Pong"]
