"""What is slow, and when a restart is worth it."""

import pytest

from supervisor.policy.worker.intervention import SLOW, STILL, Intervention
from supervisor.policy.worker.slowness import Pace, after_s, has_passed, is_new_pace, is_slow, restart_due, usual
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
    ("for_s", "others", "done", "still", "due"),
    [
        (1799.0, 0, (), False, False), (1800.0, 0, (), False, True), (9000.0, 1, (), False, False),
        (1800.0, 0, (Intervention(SLOW, 1e5 - 21599.0),), False, False),
        (1800.0, 0, (Intervention(SLOW, 1e5 - 21600.0),), False, True),
        (1800.0, 0, (Intervention(SLOW, 0.0, fruitless=2),), False, False),
        (1799.0, 0, (), True, False), (1800.0, 1, (Intervention(STILL, 1e5 - 2000.0),), True, True),
        (1800.0, 0, (Intervention(STILL, 0.0, fruitless=2),), True, False),
    ],
)  # fmt: skip
def test_a_restart_must_be_likely_to_help(for_s, others, done, still, due):
    now_s = 1e5
    found = restart_due(DEFAULT, now_s=now_s, since_s=now_s - for_s, others_slow=others, done=done, still=still)
    assert found is due


STOOD = Intervention(STILL, 0.0, step=150, made=100)


@pytest.mark.parametrize(
    ("first", "step", "trained_s", "helped"),
    [
        (100, 250, 9.0, True), (100, 249, 9.0, False),  # as many steps as before, and half of them more
        (150, 5000, 9.0, False),  # it went on behind the phase: it saved there when it was asked to leave
        (0, 150, 9.0, False), (None, 250, 9.0, False), (100, None, 9.0, False), (150, 5000, 86400.0, True),
    ],
)  # fmt: skip
def test_only_the_same_phase_passed_is_help(first, step, trained_s, helped):
    assert has_passed(STOOD, first=first, step=step, trained_s=trained_s) is helped
    assert not has_passed(Intervention(STILL, 0.0), first=first, step=step, trained_s=9.0)


@pytest.mark.parametrize(
    ("rate", "known", "new"), [(5.0, None, True), (12.5, 10.0, False), (12.6, 10.0, True), (7.9, 10.0, True)]
)
def test_a_usual_rate_is_recorded_when_it_is_another_one(rate, known, new):
    assert is_new_pace(rate, known) is new


def test_a_new_attempt_has_three_times_as_long_to_become_as_fast_as_earlier_ones():
    assert (after_s(DEFAULT, anew=False), after_s(DEFAULT, anew=True)) == (60.0, 180.0)


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
