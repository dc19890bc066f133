"""The checkpoint interval: published optima, what is not known, and a box that dies after eighteen minutes."""

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker.checkpointing import CheckpointSettings, History, choose, daly_s, hazard, posterior_rate

DEFAULT = CheckpointSettings()
WIDE = CheckpointSettings(min_s=0.001, max_s=1e9)


@pytest.mark.parametrize(("mtbf_min", "optimum_min"), [(24 * 60, 117.0), (6 * 60, 57.0), (15, 9.1)])
def test_dalys_published_optima(mtbf_min, optimum_min):
    """Daly 2006, C = 5 min."""
    assert daly_s(5 * 60, mtbf_min * 60) / 60 == pytest.approx(optimum_min, rel=0.01)


def test_the_worked_example():
    assert daly_s(1.0, 18 * 60.0) == pytest.approx(45.8, abs=0.1)


def test_dalys_second_term():
    """By the formula with its ratio C / 2M written out: a save of 60 s, one failure in 10 min."""
    x = 60.0 / 1200.0
    assert daly_s(60.0, 600.0) == pytest.approx(math.sqrt(72_000.0) * (1 + math.sqrt(x) / 3 + x / 9) - 60.0)


def test_a_save_that_costs_more_than_the_box_lives_is_done_once_a_life():
    assert daly_s(200.0, 100.0) == 100.0
    assert daly_s(500.0, 100.0) == 100.0


def test_ignorance_is_the_prior_and_evidence_moves_it_away():
    assert posterior_rate(DEFAULT, 0, 0.0) == pytest.approx(1 / DEFAULT.prior_mtbf_s)
    assert posterior_rate(DEFAULT, 1000, 1000 * 1080.0) == pytest.approx(1 / 1080, rel=0.02)


def reference_hazard(uptimes_s, at_s, rate):
    """The same estimate by the textbook, with the standard library's deviation and density."""
    n = len(uptimes_s)
    width = max(30.0, 1.06 * statistics.stdev(uptimes_s) * n**-0.2)
    at_s = min(at_s, max(uptimes_s))
    kernel = sum(
        statistics.NormalDist(died_s, width).pdf(at_s) / sum(each >= died_s for each in uptimes_s)
        for died_s in sorted(uptimes_s)
    )
    return (n * kernel + 5 * rate) / (n + 5)


@pytest.mark.parametrize("uptime_s", [0.0, 700.0, 1500.0, 2600.0, 9000.0])
@pytest.mark.parametrize(
    "uptimes_s", [(600.0, 900.0, 1500.0, 2400.0, 2500.0), (1000.0, 1010.0, 1020.0, 1035.0, 1041.0, 1060.0)]
)
def test_the_hazard_is_the_textbooks(uptimes_s, uptime_s):
    assert hazard(uptimes_s, uptime_s, 1e-4) == pytest.approx(reference_hazard(uptimes_s, uptime_s, 1e-4))


# --- the choice --------------------------------------------------------------------------------------------------------


def test_before_anything_is_measured():
    verdict = choose(DEFAULT, History(), cost_s=None, current_s=None)
    assert verdict.interval_s == DEFAULT.first_s
    assert verdict.why == "no save measured yet: begins with a save every 10s"
    assert choose(DEFAULT, History(), cost_s=None, current_s=60.0) is None
    assert choose(CheckpointSettings(max_s=7.0), History(), cost_s=None, current_s=None).interval_s == 7.0


AWARE = History(reboots=6, level_exposure_s=6480.0, uptimes_s=(1080.0,) * 6, uptime_s=60.0)
FIVE = replace(AWARE, reboots=5, uptimes_s=(1080.0,) * 5)


@pytest.mark.parametrize(
    ("known", "cost_s", "why"),
    [
        (History(), 0.25, "a save costs 250ms, one failure in 2h on average: saves every 1m"),  # two priors of one in four hours
        (
            History(program_failures=3, program_exposure_s=7200.0, reboots=6, level_exposure_s=6480.0), 0.004,
            "a save costs 4ms, one failure in 32m 1s on average: saves every 5s",
        ),
        (AWARE, 0.004, "a save costs 4ms, one failure in 1h 15m at this uptime: saves every 6s"),
        (FIVE, 0.004, "a save costs 4ms, one failure in 1h 18m at this uptime: saves every 6.1s"),
        (replace(FIVE, uptimes_s=(1080.0,) * 4), 0.004, "a save costs 4ms, one failure in 46m 43s on average: saves every 5s"),
        (replace(AWARE, uptime_s=None), 0.004, "a save costs 4ms, one failure in 41m 11s on average: saves every 5s"),
    ],
)  # fmt: skip
def test_the_choice_says_what_it_is_made_of(known, cost_s, why):
    verdict = choose(DEFAULT, known, cost_s=cost_s, current_s=None)
    assert verdict.why == why


def test_it_moves_by_more_than_a_fifth_of_the_present_interval():
    hundred = CheckpointSettings(min_s=100.0, max_s=100.0)
    moved = [choose(hundred, History(), cost_s=0.25, current_s=now) is not None for now in (83.0, 83.4, 125.0, 125.1)]
    assert moved == [True, False, False, True]
    assert choose(WIDE, History(), cost_s=0.25, current_s=None).interval_s == daly_s(0.25, 7200.0)


@given(st.floats(0.001, 10), st.integers(0, 100), st.floats(0, 1e6), st.integers(1, 20))
def test_more_failures_never_save_less_often(cost_s, failures, exposure_s, more):
    few = choose(WIDE, History(failures, exposure_s), cost_s=cost_s, current_s=None)
    many = choose(WIDE, History(failures + more, exposure_s), cost_s=cost_s, current_s=None)
    assert many.interval_s <= few.interval_s * (1 + 1e-9)


# --- what it is worth -------------------------------------------------------------------------------------------------

RESTART_S, COST_S, LOOK_S = 20.0, 1.0, 30.0


def life(next_interval, uptime_s):
    """One boot: restart, then train and save until the box dies. Returns the seconds of training that were kept."""
    now_s, kept_s, unsaved_s, interval_s, looked_s = RESTART_S, 0.0, 0.0, None, -math.inf
    while True:
        if now_s - looked_s >= LOOK_S:
            interval_s, looked_s = next_interval(now_s, interval_s), now_s
        step_s = min(1.0, interval_s - unsaved_s)
        if now_s + step_s > uptime_s:
            return kept_s
        now_s, unsaved_s = now_s + step_s, unsaved_s + step_s
        if unsaved_s >= interval_s - 1e-9:
            if now_s + COST_S > uptime_s:
                return kept_s
            now_s, kept_s, unsaved_s = now_s + COST_S, kept_s + unsaved_s, 0.0


def waste(uptimes_s, policy):
    """`policy(uptimes so far, uptime, current)`; the share of all time that left no kept training behind."""
    kept_s = sum(
        life(lambda now_s, current_s, past=tuple(uptimes_s[:boot]): policy(past, now_s, current_s), uptime_s)
        for boot, uptime_s in enumerate(uptimes_s)
    )
    return 1.0 - kept_s / sum(uptimes_s)


def ours(past, uptime_s, current_s):
    """As `deciding/healing.py` asks: the record of the level, the present uptime included; no failures of its own."""
    exposure_s = sum(past) + uptime_s
    known = History(0, exposure_s, len(past), exposure_s, past[-50:], uptime_s)
    verdict = choose(DEFAULT, known, cost_s=COST_S, current_s=current_s)
    return current_s if verdict is None else verdict.interval_s


@pytest.mark.parametrize("seed", [1, 2])
def test_on_a_box_that_dies_every_eighteen_minutes(seed):
    """The user's box: fixed ten minutes throw away more than a quarter; ours, learning from nothing, under 6.5 %."""
    dice = random.Random(seed)
    uptimes = [max(60.0, dice.gauss(18 * 60, 90)) for _ in range(60)]
    fixed, learned = waste(uptimes, lambda *_: 600.0), waste(uptimes, ours)
    assert fixed > 0.25
    assert learned < 0.065
    assert waste(uptimes[40:], lambda past, *rest: ours(tuple(uptimes[:40]) + past, *rest)) < 0.055, "once it knows the box"
