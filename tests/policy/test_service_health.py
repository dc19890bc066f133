"""When a service is unhealthy: the docstring's example, and what says nothing."""

import pytest

from supervisor.policy.script.service_health import Checked, HealthCheck, unhealthy

CHECK = HealthCheck(http="http://127.0.0.1:6006/")


@pytest.mark.parametrize(
    ("failures", "ok_at_s", "age_s", "ill"),
    [
        (0, 5.0, 3600.0, False),
        (2, 5.0, 3600.0, False),
        (3, 5.0, 3600.0, True),
        (3, None, 59.0, False),  # it is still starting
        (3, None, 60.0, True),  # it never answered
        (3, 5.0, 20.0, True),  # it has answered already: the grace is over
        (9, None, 60.0, True),
    ],
)
def test_a_row_of_failures_after_it_had_its_time(failures, ok_at_s, age_s, ill):
    found = Checked(failures, 100.0 if failures else None, "refused", ok_at_s)
    assert bool(unhealthy(CHECK, found, now_s=age_s, spawned_at_s=0.0)) is ill


def test_the_sentence_says_what_was_asked_and_why_not():
    found = Checked(3, 1.0, "connection refused", 0.5)
    for check, asked in ((CHECK, CHECK.http), (HealthCheck(tcp="h:1"), "h:1"), (HealthCheck(command=("a", "b")), "a b")):
        said = unhealthy(check, found, now_s=100.0, spawned_at_s=0.0)
        assert said == f"3 health checks in a row failed ({asked}): connection refused"
