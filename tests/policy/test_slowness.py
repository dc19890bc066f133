"""What is slow, and when a restart is worth it."""

import pytest

from supervisor.policy.worker.slowness import is_slow, restart_due, usual
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
