"""Health: the worked examples, what follows from each illness, and that what is not known is never held against anyone."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.policy.worker import health
from supervisor.policy.worker.health import HealthSettings, Returns

SETTINGS = HealthSettings()
NUMBERS = st.floats(-1e9, 1e9)
MAYBE = st.none() | NUMBERS


@pytest.mark.parametrize(
    ("q", "bound", "sick"),
    [
        (60.0, 100.0, False), (100.0, 100.0, False), (140.0, 100.0, None), (1000.0, 100.0, None), (1000.1, 100.0, True),
        (1200.0, 100.0, True), (300.0, 100.0, None), (None, 100.0, None), (1e30, None, None),
    ],
)  # fmt: skip
def test_exploding_q(q, bound, sick):
    assert health.exploding(SETTINGS, q_max_abs=q, bound=bound) is sick


@pytest.mark.parametrize(
    ("share", "mean", "best", "first", "sick"),
    [
        (0.004, 20.0, 21.0, 1.0, False), (0.0099, 3.0, 21.0, 1.0, True), (0.01, 3.0, 21.0, 1.0, None),
        (0.0199, 3.0, 21.0, 1.0, None), (0.02, 3.0, 21.0, 1.0, False), (0.03, None, None, None, False), (None, 3.0, 21.0, 1.0, None),
        (0.004, None, 21.0, 1.0, None), (0.004, 3.0, None, 1.0, None), (0.004, 3.0, 21.0, None, None),
        (0.004, -21.0, -21.0, -21.0, True), (0.004, 19.0, 21.0, 1.0, False), (0.004, 18.9, 21.0, 1.0, True),
    ],
)  # fmt: skip
def test_collapsed_entropy(share, mean, best, first, sick):
    assert health.collapsed(SETTINGS, Returns(mean, best, first, 5.0), share=share) is sick


@pytest.mark.parametrize(
    ("mean", "best", "first", "sick"),
    [
        (12.0, 21.0, 1.0, None), (10.0, 21.0, 1.0, True), (11.0, 21.0, 1.0, None), (15.0, 21.0, 1.0, None),
        (17.0, 21.0, 1.0, False), (16.0, 21.0, 1.0, None), (-20.0, -3.0, -20.5, True), (-20.4, -20.1, -20.5, None), (5.0, 5.0, 5.0, None),
        (None, 21.0, 1.0, None), (10.0, None, 1.0, None), (10.0, 21.0, None, None),
    ],
)  # fmt: skip
def test_falling_return(mean, best, first, sick):
    assert health.falling(SETTINGS, Returns(mean, best, first, 5.0)) is sick


@given(st.tuples(MAYBE, MAYBE, MAYBE, MAYBE).filter(lambda found: None in found), NUMBERS)
def test_what_is_not_known_is_no_illness(found, number):
    a, b, c, d = found
    assert health.exploding(SETTINGS, q_max_abs=None, bound=number) is not True
    assert health.exploding(SETTINGS, q_max_abs=number, bound=None) is not True
    assert health.falling(SETTINGS, Returns(a, b, c, d)) is not True
    assert health.collapsed(SETTINGS, Returns(b, c, d, 1.0), share=a) is not True


@given(NUMBERS, NUMBERS, NUMBERS, st.floats(1e-3, 1e3), NUMBERS)
def test_a_fall_does_not_depend_on_how_a_game_counts(mean, best, first, scale, shift):
    assume(best - first > 1)
    lost = (best - mean) / (best - first)
    assume(not any(math.isclose(lost, edge, rel_tol=1e-3, abs_tol=1e-3) for edge in (0.5, 0.25)))
    one = health.falling(SETTINGS, Returns(mean, best, first, 0.5))
    moved = [value * scale + shift for value in (mean, best, first)]
    assert health.falling(SETTINGS, Returns(*moved, 0.5 * scale)) is one


@pytest.mark.parametrize(
    ("illness", "for_s", "games", "told"),
    [
        ("exploding", 59.0, None, False), ("exploding", 60.0, None, True), ("collapsed", 60.0, 9999, False),
        ("collapsed", 1800.0, None, True), ("falling", 1e9, 999, False), ("falling", 0.0, 1000, True),
        ("falling", 1e9, None, False),
    ],
)  # fmt: skip
def test_how_long_it_must_last(illness, for_s, games, told):
    assert health.lasted(SETTINGS, illness, for_s=for_s, games=games) is told


def test_what_follows_is_the_programs_word_before_the_boxs():
    assert [health.action(SETTINGS, ill, None) for ill in health.ILLNESSES] == ["rollback", "tell", "tell"]
    assert {health.action(SETTINGS, ill, "give_up") for ill in health.ILLNESSES} == {"give_up"}
    assert set(health.WORDS) == {*health.ILLNESSES, health.NO_LOSS, health.OFF_GPU}
