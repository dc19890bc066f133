"""What a level is worth: the docstring's figures, limits, and the bound on the time between reboots."""

import math

import pytest

from supervisor.policy.level.worth import Costs, kept, mtbf_bound_s, reboot_rate, would_keep

HOUR_S = 3600.0
SEED = Costs(downtime_s=210.0, interval_s=300.0)


@pytest.mark.parametrize(
    ("mtbf_h", "penalty_min", "share"),
    [
        (0.3, 0, 0.726), (1, 0, 0.906), (3, 0, 0.967), (0.3, 5, 0.494), (3, 5, 0.940), (0.3, 10, 0.261), (3, 10, 0.913),
        (24, 10, 0.989),
    ],
)  # fmt: skip
def test_the_kept_share_of_the_worked_table(mtbf_h, penalty_min, share):
    assert kept(1 / (mtbf_h * HOUR_S), SEED, penalty_min * 60) == pytest.approx(share, abs=0.001)


def test_a_level_that_loses_more_than_it_makes_is_worth_next_to_nothing():
    assert kept(1.0, SEED, 600.0) == 0.001


def test_a_level_that_never_ran_is_taken_for_one_reboot_in_two_days():
    assert 1 / reboot_rate(0.0, 0.0) == pytest.approx(48 * HOUR_S)
    assert reboot_rate(1.0, 0.5 * HOUR_S) == pytest.approx((1 / 24 + 1) / (2.5 * HOUR_S))


@pytest.mark.parametrize(("reboots", "up_h", "least_h"), [(0, 27.3, 11.86), (1, 24, 6.17), (0.5, 24, 6.17), (5, 100, 10.78)])
def test_the_bound_on_the_time_between_reboots(reboots, up_h, least_h):
    assert mtbf_bound_s(reboots, up_h * HOUR_S) / HOUR_S == pytest.approx(least_h, abs=0.01)


def test_the_bound_is_the_quantile_that_it_claims():
    bound_s = mtbf_bound_s(2, 1000.0)
    mean = 1000.0 / bound_s
    assert math.exp(-mean) * (1 + mean + mean**2 / 2) == pytest.approx(0.1)


def test_what_a_level_would_have_kept():
    expected, least = would_keep(500.0, 0.03, 1.0, 24 * HOUR_S, SEED, 10 * HOUR_S)
    assert (expected, least) == (pytest.approx(17.93e6, rel=0.001), pytest.approx(17.04e6, rel=0.001))


@pytest.mark.parametrize("reboots", [0.0, 0.5, 3.0])
def test_the_least_is_never_more_than_what_is_expected(reboots):
    expected, least = would_keep(100.0, 0.0, reboots, 90_000.0, SEED, 1000.0)
    assert 0.0 < least <= expected <= 100.0 * 1000.0
    assert would_keep(100.0, 0.2, reboots, 90_000.0, SEED, 1000.0)[1] < least
    assert kept(0.0, SEED, 0.0) == 1.0
