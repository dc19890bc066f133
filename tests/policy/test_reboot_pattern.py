"""What reboots have in common: a table of runs, and what must hold of any run."""

import pytest

from supervisor.policy.box.reboot_pattern import Struck, pattern

MIN, HOUR = 60.0, 3600.0


def runs(*struck, level="heavy"):
    """(minute, minutes after the level began[, level]) each."""
    return [
        Struck(each[0] * MIN, each[2] if len(each) > 2 else level, None if each[1] is None else each[1] * MIN)
        for each in struck
    ]


EXAMPLE = runs((0, 15), (25, 18), (50, 20), (70, 16))


@pytest.mark.parametrize(
    ("reboots", "told"),
    [
        ([], ""),
        (EXAMPLE, "4 in 1h 10m, each 15m to 20m after heavy began"),
        (EXAMPLE[:2], ""),
        ([*EXAMPLE[:3], *runs((70, 16, "light"))], "4 in 1h 10m, 3 of them 15m to 20m after heavy began"),
        (runs((0, 18), (20, 18), (40, 18)), "3 in 40m, each 18m after heavy began"),
        (runs((0, 1), (20, 11), (40, 5)), "3 in 40m, each 1m to 11m after heavy began"),
        (runs((0, 1), (20, 12), (40, 5)), "3 in 40m, all at heavy"),
        (runs((0, 15), (20, None), (40, 16)), "3 in 40m, all at heavy"),
        (runs((0, 15), (20, None), (40, 16), (50, 1, "light")), "4 in 50m, 3 of them at heavy"),
        (runs((0, 15), (20, 15, "light"), (40, 15, "medium")), "3 in 40m"),
        (runs((0, 15), (20, 15), (40, 15), level=""), "3 in 40m"),
        (runs((0, 15), (120, 15), (240, 15)), "3 in 4h, each 15m after heavy began"),
        (runs((0, 15), (130, 15), (260, 15)), "3 in 4h 20m, each 15m after heavy began"),
        (runs((0, 15), (540, 15), (1440, 15)), "3 in 1d, each 15m after heavy began"),
        (runs((0, 15), (540, 15), (1441, 15)), ""),
        (
            runs((1, 15), (50, 15), (500, 15), (510, 15), (560, 15)),
            "3 in 1h, each 15m after heavy began",
        ),  # a run of its own
        (runs((-9000, 15), (0, 15), (25, 15), (50, 15)), "3 in 50m, each 15m after heavy began"),
    ],
)
def test_what_is_said(reboots, told):
    assert pattern(reboots, now_s=reboots[-1].at_s if reboots else 0.0) == told


def test_a_day_without_another_ends_it():
    assert pattern(EXAMPLE, now_s=EXAMPLE[-1].at_s + 24 * HOUR)
    assert pattern(EXAMPLE, now_s=EXAMPLE[-1].at_s + 24 * HOUR + 1) == ""
