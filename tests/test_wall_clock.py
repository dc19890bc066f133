"""A clock that begins in 1970: what its times are worth, and when they are mended."""

import pytest

from supervisor.wall_clock import SINCE_S, is_set, mended, shown, was_set

NOW_S = 1_795_237_320.0  # 2026-11-21 05:02:00 UTC
STEP_S = NOW_S - 74.0


def test_the_worked_example():
    reboot_s = mended(12.0, STEP_S)
    assert reboot_s == NOW_S - 62.0
    assert mended(9.0, STEP_S) - (NOW_S - 115.0) == 50.0


@pytest.mark.parametrize(("wall_s", "known"), [(0.0, False), (SINCE_S - 1.0, False), (SINCE_S, True), (NOW_S, True)])
def test_no_time_before_this_program_can_be_right(wall_s, known):
    assert is_set(wall_s) is known


@pytest.mark.parametrize(
    ("wall_s", "step_s", "found"),
    [
        (NOW_S, STEP_S, True),
        (NOW_S, 3600.0, False),
        (NOW_S, -3600.0, False),
        (90.0, 20.0, False),
        (90.0, 90.0 - NOW_S, False),
    ],
)
def test_the_step_that_sets_it(wall_s, step_s, found):
    assert was_set(wall_s, step_s) is found


def test_only_times_that_were_not_set_are_mended():
    assert mended(NOW_S, STEP_S) == NOW_S
    assert mended(12.0, None) == 12.0
    assert shown(12.0, "this", {"this": STEP_S}) == 12.0 + STEP_S
    assert shown(12.0, "another", {"this": STEP_S}) == 12.0
