"""What reboots have in common: a table of runs, and what must hold of any run."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.box.reboot_pattern import LEAST, Struck, pattern

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


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1e6), st.sampled_from(["light", "heavy", ""]), st.none() | st.floats(0.0, 1e5)
        ),
        max_size=12,
    ),
    st.floats(0.0, 1e6),
)  # fmt: skip
def test_it_counts_what_is_there_and_names_no_level_that_had_fewer_than_three(found, later_s):
    reboots = [Struck(*each) for each in sorted(found, key=lambda each: each[0])]
    now_s = reboots[-1].at_s + later_s if reboots else later_s
    told = pattern(reboots, now_s=now_s)
    assert pattern(reboots[-LEAST + 1 :], now_s=now_s) == "", "fewer than three are no pattern"
    if not told:
        return
    count = int(told.split()[0])
    assert LEAST <= count <= len(reboots)
    run = reboots[-count:]
    assert re.match(r"\d+ in \S", told)
    for level in ("light", "heavy"):
        if level in told:
            assert sum(each.level == level for each in run) >= LEAST
    assert pattern([Struck(each.at_s + 5.0, each.level, each.after_s) for each in reboots], now_s=now_s + 5.0) == told or (
        count == len(reboots)
    ), "it is the distances that count"
