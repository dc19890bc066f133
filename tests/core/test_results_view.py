"""What tests of many runs say together: over seeds, over games, and what they do not say."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.reports.results_view import _words, interquartile_mean, interval, results_view
from supervisor.reports.sources import NewestResult


def test_runs_are_drawn_by_the_published_numbers() -> None:
    """The first of SplitMix64 with the seed 0, from its authors' program."""
    assert list(islice(_words(), 3)) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def run(program: str, game: str, score: float, hns: float | None, **known: object) -> NewestResult:
    return NewestResult(program, game, "ppo", 84, None, 1000, 30, score, hns, **known)  # type: ignore[arg-type]


def test_the_worked_examples() -> None:
    assert interquartile_mean([0, 0.1, 0.2, 0.4, 0.6, 0.9, 1.1, 13.9]) == pytest.approx(0.525)
    assert interquartile_mean([100, 2, 1, 3, 4]) == 3
    assert interquartile_mean([7.0]) == 7.0


def test_a_row_is_over_seeds_with_every_figure_under_its_name() -> None:
    found = results_view([
        NewestResult("Pong-s4", "Pong", "ppo", 84, 4, 1000, 30, 10.0, 0.5, hours_trained=2.0),
        NewestResult("Pong-s6", "Pong", "ppo", 84, 6, 3000, 20, 14.0, 1.5, hours_trained=4.0),
        run("Catch", "Catch", 1.0, None),
    ])  # fmt: skip
    catch, pong = found["rows"]
    assert pong == {
        "game": "Pong", "algo": "ppo", "resolution": 84, "seeds": 2, "env_steps_min": 1000, "env_steps_max": 3000,
        "hours_trained": 3.0, "test_games": 50, "return_mean": 12.0, "return_std": pytest.approx(8**0.5), "return_min": 10.0,
        "return_max": 14.0, "hns_mean": 1.0, "hns_min": 0.5, "hns_max": 1.5,
    }  # fmt: skip
    assert (catch["return_std"], catch["hns_mean"], catch["hns_min"], catch["hours_trained"]) == (None, None, None, None)
    assert [item["program"] for item in found["runs"]] == ["Catch", "Pong-s4", "Pong-s6"]
    (overall,) = found["overall"]
    assert (overall["games"], overall["runs"], overall["hns_iqm"]) == (1, 2, 1.0)


def test_one_seed_a_game_has_no_interval() -> None:
    (overall,) = results_view([run("a", "Pong", 1, 0.2), run("b", "Qbert", 1, 0.4)])["overall"]
    assert (overall["hns_iqm"], overall["hns_iqm_low"], overall["hns_iqm_high"]) == (pytest.approx(0.3), None, None)


def test_algorithms_and_resolutions_are_not_mixed() -> None:
    small = NewestResult("c", "Pong", "ppo", 32, 1, 1, 1, 1.0, 0.5)
    other = NewestResult("d", "Pong", "dqn", 84, 1, 1, 1, 1.0, 0.7)
    found = results_view([run("a", "Pong", 1, 0.2), small, other])
    assert len(found["rows"]) == len(found["overall"]) == 3
    assert results_view([]) == {"rows": [], "overall": [], "runs": []}


def test_the_interval_draws_within_games_and_is_the_same_each_time() -> None:
    """Two games of two runs each that agree: nothing varies, however different the games are."""
    assert interval({"Pong": [1.0, 1.0], "Qbert": [5.0, 5.0]}) == (3.0, 3.0)
    wide = interval({"Pong": [0.0, 1.0, 2.0, 3.0]})
    assert wide is not None
    assert wide == interval({"Pong": [0.0, 1.0, 2.0, 3.0]})
    assert 0.0 <= wide[0] < 1.5 < wide[1] <= 3.0


def test_the_interval_is_as_wide_as_theory_says() -> None:
    """Of 400 even scores between 0 and 1. The variance of a trimmed mean is 1/(1 - 2a)^2 [the middle's variance, plus 2a
    times the squared distance to the cut] / n (Huber 1981); for a = 1/4 of a uniform that is 4 (1/96 + 1/32) / 400 =
    0.0204^2, so 95 % lie within 0.04 on either side."""
    found = interval({"Pong": [number / 400 for number in range(400)]}, 400)
    assert found is not None
    assert found[0] == pytest.approx(0.46, abs=0.012)
    assert found[1] == pytest.approx(0.54, abs=0.012)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.floats(-5, 50), min_size=1, max_size=5), min_size=1))
def test_the_interval_holds_only_what_was_seen(by_game: dict[str, list[float]]) -> None:
    scores = [score for group in by_game.values() for score in group]
    found = interval(by_game, 20)
    assert (found is None) == all(len(group) == 1 for group in by_game.values())
    if found is not None:
        assert min(scores) - 1e-9 <= found[0] <= found[1] <= max(scores) + 1e-9
