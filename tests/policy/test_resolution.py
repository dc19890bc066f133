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


@pytest.mark.parametrize(
    ("span_s", "points", "expected"),
    [
        (3600.0, 360, TEN_S), (3600.0, 359, MINUTE), (6 * 3600.0, 2160, TEN_S), (6 * 3600.0 + 1, 2200, MINUTE),
        (12 * 3600.0, 1000, MINUTE), (2 * 86400.0, 500, TEN_MIN), (14 * 86400.0, 500, HOUR), (90 * 86400.0, 2160, HOUR),
        (400 * 86400.0, 10, HOUR), (0.0, 10, TEN_S),
    ],
)  # fmt: skip
def test_the_finest_tier_that_reaches_back_and_has_not_too_many_points(span_s, points, expected):
    assert tier_for(TIERS, span_s, points) == expected


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
