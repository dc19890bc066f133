"""A program that trains on without saving."""

from __future__ import annotations

import pytest

from supervisor.policy.worker import unsaved


@pytest.mark.parametrize(
    ("age_s", "interval_s", "steps", "saved", "says"),
    [
        (660.0, 10.0, 60_000, 9_000, "no checkpoint for 11m since step 9,000 (due every 10s), now at step 60,000"),
        (660.0, 300.0, 60_000, 9_000, ""),
        (901.0, 300.0, 60_000, 9_000, "no checkpoint for 15m 1s since step 9,000 (due every 5m), now at step 60,000"),
        (900.0, 300.0, 60_000, 9_000, ""),
        (600.0, 10.0, 60_000, 9_000, ""),
        (660.0, 10.0, 9_000, 9_000, ""),  # it makes no steps
        (660.0, 10.0, None, None, ""),  # nothing is known
        (660.0, 10.0, 0, None, ""),
        (660.0, 10.0, 1, None, "no checkpoint for 11m since training began (due every 10s), now at step 1"),
    ],
)
def test_the_rule(age_s: float, interval_s: float, steps: int | None, saved: int | None, says: str) -> None:
    assert unsaved.overdue(age_s, interval_s, steps, saved) == says


@pytest.mark.parametrize(
    ("gap_s", "known_s", "new"),
    [
        (None, None, False),
        (300.0, None, True),
        (300.0, 300.0, False),
        (370.0, 300.0, False),
        (375.0, 300.0, True),  # its limit is a quarter longer
        (240.0, 300.0, True),
        (245.0, 300.0, False),
        (5.0, 120.0, False),  # ten minutes is the limit of both
    ],
)
def test_a_usual_gap_is_recorded_if_its_limit_is_another(gap_s: float | None, known_s: float | None, new: bool) -> None:
    assert unsaved.is_new_gap(gap_s, known_s) is new
