"""The rule of live pictures: how often one is made anew."""

import pytest

from supervisor.policy.upkeep.refresh import period_s


@pytest.mark.parametrize(
    ("took_s", "share", "expected_s"),
    [
        (0.0, 0.004, 1.0), (0.002, 0.004, 1.0), (0.004, 0.004, 1.0), (0.008, 0.004, 2.0), (0.008, 0.005, 1.6),
        (0.02, 0.004, 5.0), (0.1, 0.004, 5.0),
    ],
)  # fmt: skip
def test_a_picture_that_costs_more_is_made_less_often(took_s: float, share: float, expected_s: float) -> None:
    assert period_s(took_s, share) == pytest.approx(expected_s)
