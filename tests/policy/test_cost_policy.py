"""The bill and what is left to pay: the worked example, and what is not known."""

import random
from statistics import fmean

import pytest

from supervisor.policy.upkeep.accounting import Account
from supervisor.policy.upkeep.cost import CAUSES, bill, blocks, hours_to_finish, rates, spread_of, usd_of, usd_per_million

H = 3600.0


def test_the_worked_example():
    seconds = {Account.TRAINING: 17 * H, Account.LOST: 2 * H, Account.DOWN: 1 * H}
    found = bill(10 * H, seconds, 2.0)
    assert (found.wall_hours, found.slot_hours, found.usd) == (10.0, 20.0, 20.0)
    assert {each.name: each.usd for each in found.causes} == pytest.approx(
        {"useful": 17.0, "downtime": 1.0, "lost work": 2.0}
    )
    assert sum(each.usd for each in found.causes) == pytest.approx(found.usd)
    assert usd_per_million(20.0, 144e6) == pytest.approx(0.1389, abs=1e-4)
    found = rates(
        {"Pong": 27e6, "Qbert": 9e6}, {"Pong": 10 * H, "Qbert": 10 * H}, dict.fromkeys(("Pong", "Qbert", "Boxing"), "")
    )
    assert found == {"Pong": 750.0, "Qbert": 250.0, "Boxing": 500.0}
    hours = hours_to_finish([left / found[name] for name, left in (("Pong", 13.5e6), ("Qbert", 9e6), ("Boxing", 9e6))], 2)
    assert (hours, usd_of(hours, 2.0)) == (10.0, 20.0)


def test_every_account_has_a_name_of_its_own_on_the_bill():
    assert sorted(CAUSES) == sorted(Account)
    assert len({*CAUSES.values()}) == len(CAUSES)


def test_without_a_price_hours_and_shares_are_reported():
    found = bill(2 * H, {Account.TRAINING: H, Account.IDLE: H}, None)
    assert found.usd is None
    assert [(each.name, each.hours, each.share, each.usd) for each in found.causes] == [
        ("useful", 1.0, 0.5, None), ("idle slots", 1.0, 0.5, None),
    ]  # fmt: skip


def test_nothing_paid_yet_is_no_share():
    (useful,) = bill(0.0, {}, 2.0).causes
    assert (useful.hours, useful.share, useful.usd) == (0.0, None, None)


@pytest.mark.parametrize(("kept", "held_s"), [(0, 600), (100, 0), (100, 599)])
def test_too_little_was_seen_for_a_rate(kept, held_s):
    """Then the mean of its kind is used: a script of another kind has none."""
    seen = {"walker-1": kept, "Pong": 6000.0}, {"walker-1": held_s, "Pong": 600.0}
    assert rates(*seen, {"walker-1": "walker", "walker-2": "walker", "Pong": ""}) == {"Pong": 10.0}


def test_what_is_not_known_makes_the_sum_unknown():
    assert hours_to_finish([3600.0], 0) is None
    assert hours_to_finish([], 2) == 0.0
    assert hours_to_finish([5 * H, 5 * H, 10 * H], 2) == 15
    assert hours_to_finish([10 * H, 5 * H, 5 * H], 2) == 10
    assert hours_to_finish([7 * H], 3) == 7
    assert (usd_of(None, 2.0), usd_of(1.0, None)) == (None, None)
    assert (usd_per_million(None, 5.0), usd_per_million(5.0, 0.0), usd_per_million(5.0, None)) == (None, None, None)


@pytest.mark.parametrize(("paid_s", "count"), [(0, 0), (7199, 0), (7200, 4), (9000, 5), (14_399, 7), (14_400, 8), (1e6, 8)])
def test_into_how_many_blocks_a_level_s_time_is_cut(paid_s, count):
    assert blocks(paid_s) == count


def test_the_range_of_the_worked_example():
    assert spread_of([480.0, 500.0, 500.0, 520.0]) == pytest.approx(0.0384, abs=1e-4)
    assert spread_of([500.0] * 8) == 0.0


@pytest.mark.parametrize("rates", [[], [0.0] * 4, [0.0, 0.0, 0.0, 100.0]])
def test_a_rate_that_may_be_0_has_no_range(rates):
    assert spread_of(rates) is None


@pytest.mark.parametrize("count", range(4, 9))
def test_the_range_holds_the_truth_nine_times_in_ten(count):
    chance, rounds = random.Random(count), 4000
    held = 0
    for _ in range(rounds):
        rates = [chance.gauss(500.0, 60.0) for _ in range(count)]
        held += abs(fmean(rates) - 500.0) <= spread_of(rates) * fmean(rates)
    assert held / rounds == pytest.approx(0.9, abs=0.02)
