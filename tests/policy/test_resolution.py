"""The rule of resolutions: how far back each reaches, and which one answers a question."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.upkeep.resolution import TIERS, bucket_of, kept_spans, tier_for

TEN_S, MINUTE, TEN_MIN, HOUR = TIERS


def test_each_tier_is_coarser_and_reaches_further_and_holds_whole_periods_of_the_finer():
    pairs = [*itertools.pairwise(TIERS)]
    assert len(pairs) == 3
    assert all(tier.period_s % finer.period_s == 0 for finer, tier in pairs)
    assert all(tier.keep_s > finer.keep_s > tier.period_s for finer, tier in pairs)


NOW_S = 400 * 86400.0
FULL = [NOW_S - tier.keep_s for tier in TIERS]


@pytest.mark.parametrize(
    ("span_s", "points", "expected"),
    [
        (3600.0, 360, TEN_S), (3600.0, 359, MINUTE), (6 * 3600.0, 2160, TEN_S), (6 * 3600.0 + 20, 2200, MINUTE),
        (12 * 3600.0, 1000, MINUTE), (2 * 86400.0, 500, TEN_MIN), (14 * 86400.0, 500, HOUR), (90 * 86400.0, 2160, HOUR),
        (400 * 86400.0, 10, HOUR), (0.0, 10, TEN_S),
    ],
)  # fmt: skip
def test_the_finest_tier_that_reaches_back_and_has_not_too_many_points(span_s, points, expected):
    assert tier_for(TIERS, FULL, NOW_S - span_s, NOW_S, points) == expected


@pytest.mark.parametrize(
    ("oldest_h", "since_h", "until_h", "points", "expected"),
    [
        pytest.param(
            (97, 91, 40, 0), 88, 100, 1000, TEN_MIN, id="a file over its bound: by the oldest row, not by the rule"
        ),
        pytest.param((97, 87, 40, 0), 88, 100, 1000, MINUTE, id="it reaches back"),
        pytest.param((99.5, 99.5, 99.5, 99.5), 0, 100, 500, TEN_S, id="a young box, asked for all: the points that it has"),
        pytest.param((), 0, 1, 100, HOUR, id="nothing was recorded"),
        pytest.param((97, 40, 40, 40), 88, 90, 1000, MINUTE, id="a window that ends before the finest begins"),
    ],
)
def test_a_tier_reaches_back_to_its_oldest_row(oldest_h, since_h, until_h, points, expected):
    oldest_s = [hours * 3600.0 for hours in oldest_h]
    assert tier_for(TIERS, oldest_s, since_h * 3600.0, until_h * 3600.0, points) == expected


def test_a_file_that_is_too_large_forgets_the_same_share_of_what_every_tier_has():
    ages = [tier.keep_s for tier in TIERS]
    assert kept_spans(TIERS, ages, 64, 64) == ages
    assert kept_spans(TIERS, [3600.0] * 4, 64, 64) == [3600.0] * 4
    assert kept_spans(TIERS, [1e9] * 4, 64, 64) == ages
    assert kept_spans(TIERS, [*ages[:3], 20 * 86400.0], 80, 64) == pytest.approx(
        [*(age * 0.72 for age in ages[:3]), 14.4 * 86400]
    )


@given(st.floats(0.0, 1e9), st.sampled_from(TIERS))
def test_a_moment_is_in_its_period(at_s, tier):
    begun_s = bucket_of(at_s, tier.period_s)
    assert begun_s <= at_s < begun_s + tier.period_s * (1 + 1e-9)
    assert begun_s % tier.period_s == 0
