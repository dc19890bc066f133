"""When supervision cannot be trusted any more, and which ends nobody has reported."""

import pytest

from supervisor.policy.box.supervision import Failing, distrust, unreported


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        (Failing("recorder", "no room", 9000.0), ""),
        (Failing("recorder", "it has ended", None), ""),
        (Failing("sampler", "no file", 120.0, vital=True), ""),
        (
            Failing("sampler", "no file", 121.0, vital=True),
            "its thread sampler has failed for 2m 1s (no file): extralife starts anew, and adopts its workers",
        ),
        (
            Failing("sampler", "it has ended", None, vital=True),
            "its thread sampler has ended: extralife starts anew, and adopts its workers",
        ),
    ],
)
def test_a_vital_thread_that_has_ended_or_failed_for_two_minutes_is_not_trusted(failing, why):
    assert distrust([Failing("edges", "x", 1.0), failing]) == why


def test_an_attempt_without_a_process_in_two_looks_in_a_row_is_unreported():
    assert unreported(frozenset("p"), frozenset("pq")) == frozenset("p")
