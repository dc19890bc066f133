"""The rule of resolutions: how far back each reaches, and which one answers a question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.recorder.rules.resolution import TIERS, Held, bucket_of, kept_spans, points_for, rows_for, tier_for

TEN_S, MINUTE, TEN_MIN, HOUR, SIX_HOURS, DAY = TIERS


NOW_S = 400 * 86400.0
FULL = [Held(NOW_S - tier.keep_s, 0) for tier in TIERS]


@pytest.mark.parametrize(
    ("span_s", "points", "expected"),
    [
        (3600.0, 360, TEN_S), (3600.0, 359, MINUTE), (6 * 3600.0, 2160, TEN_S), (6 * 3600.0 + 20, 2200, MINUTE),
        (12 * 3600.0, 1000, MINUTE), (2 * 86400.0, 500, TEN_MIN), (14 * 86400.0, 500, HOUR), (90 * 86400.0, 2160, HOUR),
        (30 * 86400.0, 500, SIX_HOURS), (390 * 86400.0, 500, DAY), (390 * 86400.0, 10, DAY), (0.0, 10, TEN_S),
    ],
)  # fmt: skip
def test_the_finest_tier_that_reaches_back_and_has_not_too_many_points(span_s, points, expected):
    assert tier_for(TIERS, FULL, NOW_S - span_s, NOW_S, points, 0) == expected


@pytest.mark.parametrize(
    ("oldest_h", "since_h", "until_h", "points", "expected"),
    [
        pytest.param(
            (97, 91, 40, 0), 88, 100, 1000, TEN_MIN, id="a file over its bound: by the oldest row, not by the rule"
        ),
        pytest.param((97, 87, 40, 0), 88, 100, 1000, MINUTE, id="it reaches back"),
        pytest.param((99.5, 99.5, 99.5, 99.5), 0, 100, 500, TEN_S, id="a young box, asked for all: the points that it has"),
        pytest.param((99.51, 99.5, 99.5, 99, 96, 96), 0, 100, 500, TEN_S, id="a new box: longer periods only began earlier"),
        pytest.param((), 0, 1, 100, DAY, id="nothing was recorded"),
        pytest.param((97, 40, 40, 40), 88, 90, 1000, MINUTE, id="a window that ends before the finest begins"),
    ],
)
def test_a_tier_reaches_back_to_its_oldest_row(oldest_h, since_h, until_h, points, expected):
    held = [Held(hours * 3600.0, 5) for hours in oldest_h]
    assert tier_for(TIERS, held, since_h * 3600.0, until_h * 3600.0, points, 5) == expected


def test_an_answer_has_no_more_rows_than_there_is_room_for():
    held = [Held(0.0, rows) for rows in (9000, 3000, 300, 50, 20, 20)]
    found = [tier_for(TIERS, held, 0.0, 90_000.0, 10_000, most) for most in (9000, 8999, 3000, 2999, 50, 20, 19)]
    assert found == [TEN_S, MINUTE, MINUTE, TEN_MIN, HOUR, SIX_HOURS, DAY]


def test_room_is_shared_by_numbers_and_more_programs_have_more():
    assert [rows_for(18, programs) for programs in (0, 1, 20, 200)] == [16666, 16666, 16666, 24000]
    assert rows_for(50, 20) == 6000


@given(st.floats(600.0 * 10, 1095 * 86400.0), st.floats(600.0 * 10, 2e8))
def test_a_window_of_any_length_has_600_to_1000_points_where_the_record_has_them(span_s, age_s):
    held = [Held(NOW_S - min(tier.keep_s, age_s), 0) for tier in TIERS]
    held = [
        held[0],
        *(
            each._replace(oldest_s=bucket_of(each.oldest_s, tier.period_s))
            for each, tier in zip(held[1:], TIERS[1:], strict=True)
        ),
    ]
    span_s = min(span_s, age_s, TIERS[-1].keep_s)
    tier, joined_s = points_for(held, NOW_S - span_s, NOW_S, 1000, 1000, 1)
    period_s = joined_s or tier.period_s
    reaching = [
        each.period_s for each, has in zip(TIERS, held, strict=True) if has.oldest_s < NOW_S - span_s + each.period_s
    ]
    assert tier.period_s == min(reaching), "no finer one reaches back"
    assert period_s >= tier.period_s, "or some points would have no row"
    assert span_s / period_s <= 1000
    assert span_s / period_s >= 600 or period_s == tier.period_s


@pytest.mark.parametrize(
    ("span_s", "points", "rows", "tier", "joined_s"),
    [
        (720 * 60, 1000, 720, MINUTE, None), (720 * 60, 1000, 1001, MINUTE, 60), (60_000, 1000, 1000, MINUTE, None),
        (1001 * 60, 1000, 0, MINUTE, 90), (86_400, 1000, 0, MINUTE, 120), (720 * 3600, 240, 0, HOUR, 3 * 3600),
    ],
)  # fmt: skip
def test_neighbours_and_many_attempts_of_a_period_become_one_point(span_s, points, rows, tier, joined_s):
    held = [Held(each.oldest_s, rows) for each in FULL]
    assert points_for(held, NOW_S - span_s, NOW_S, points, 1000, 1) == (tier, joined_s)


def test_a_file_that_is_too_large_forgets_the_same_share_of_what_every_tier_has():
    ages = [tier.keep_s for tier in TIERS]
    assert kept_spans(TIERS, ages, 64, 64) == ages
    assert kept_spans(TIERS, [3600.0] * 6, 64, 64) == [3600.0] * 6
    assert kept_spans(TIERS, [1e9] * 6, 64, 64) == ages
    assert kept_spans(TIERS, [*ages[:3], *[20 * 86400.0] * 3], 80, 64) == pytest.approx(
        [*(age * 0.72 for age in ages[:3]), *[14.4 * 86400] * 3]
    )
