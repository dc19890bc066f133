"""What is slow, and when a restart is worth it."""

import pytest

from supervisor.policy.worker.slowness import Pace, is_slow, restart_due, usual
from supervisor.policy.worker.stall import StallSettings

DEFAULT = StallSettings()


@pytest.mark.fault("slow")
@pytest.mark.parametrize(("rate", "slow"), [(400.0, True), (499.0, True), (500.0, False), (1200.0, False), (0.0, True)])
def test_slow_is_less_than_half_of_the_usual(rate, slow):
    assert is_slow(DEFAULT, rate=rate, usual=1000.0) is slow


def test_the_usual_is_its_own_p90_once_there_are_enough_readings():
    assert usual((1.0,) * 59) is None
    assert usual((*[1.0] * 54, *[5.0] * 6)) == 5.0
    assert usual((*[1.0] * 55, *[5.0] * 5)) == 1.0


@pytest.mark.fault("slow")
@pytest.mark.parametrize(
    ("for_s", "others", "restarted_ago_s", "due"),
    [
        (1799.0, 0, None, False), (1800.0, 0, None, True), (9000.0, 1, None, False),
        (1800.0, 0, 21599.0, False), (1800.0, 0, 21600.0, True),
    ],
)  # fmt: skip
def test_a_restart_must_be_likely_to_help(for_s, others, restarted_ago_s, due):
    now_s = 1e5
    restarted_at_s = None if restarted_ago_s is None else now_s - restarted_ago_s
    found = restart_due(DEFAULT, now_s=now_s, since_s=now_s - for_s, others_slow=others, restarted_at_s=restarted_at_s)
    assert found is due


def pace_of(*at_s, first=0):
    """The pace of a program whose steps came at these times."""
    pace = Pace()
    for step, now_s in enumerate(at_s, first):
        pace = pace.after(step, now_s=now_s, awake_at_s=pace.at_s)
    return pace


@pytest.mark.parametrize(
    ("at_s", "limit_s"),
    [
        ((), 600.0), ((0,), 600.0), ((0, 1, 2), 600.0), ((0, 1, 2, 3), 30.0), ((0, 300, 600), 1500.0),
        ((0, 200, 201, 202), 1000.0), ((0, 200, 201, 202, 203, 204, 205), 30.0),
    ],
)  # fmt: skip
def test_steps_are_silent_after_five_times_their_largest_gap(at_s, limit_s):
    assert pace_of(*at_s).limit_s(DEFAULT, None) == limit_s
    assert pace_of(0.0, 0.1, 0.2, 0.3).limit_s(StallSettings(floor_s=1.0), None) == 1.0


def test_the_largest_gap_of_earlier_attempts_counts_and_the_daemons_absence_does_not():
    assert pace_of(0, 1, 2, 3).limit_s(DEFAULT, 100.0) == 500.0
    pace = pace_of(0, 1, 2, 3)
    assert pace.after(3, now_s=9.0, awake_at_s=3.0) is pace
    assert pace.after(None, now_s=9.0, awake_at_s=3.0) is pace
    assert pace.after(4, now_s=103.0, awake_at_s=102.0).limit_s(DEFAULT, None) == 30.0


def test_a_restart_that_has_helped_is_worth_another_one():
    due = {"now_s": 1e5, "since_s": 1e5 - 1800.0, "others_slow": 0, "restarted_at_s": 1e5 - 3600.0}
    assert not restart_due(DEFAULT, **due)
    assert restart_due(DEFAULT, **due, helped=True)
