"""When a program that does not stay up is given up: the docstring's example and its borders."""

import pytest

from supervisor.policy.worker.restart import after_early_end, is_early


def test_the_worked_example_of_the_docstring():
    now_s, starts = 0.0, [0.0]
    while (delay_s := after_early_end(len(starts), 3)) is not None:
        now_s += delay_s
        starts.append(now_s)
    assert starts == [0, 1, 3, 6]


@pytest.mark.parametrize(
    ("lived_s", "start_s", "retries", "early"),
    [(0.99, 1.0, 3, True), (1.0, 1.0, 3, False), (0.0, 0.0, 3, False), (0.5, 1.0, None, False), (0.5, None, 3, False)],
)
def test_which_end_is_a_failed_start(lived_s, start_s, retries, early):
    assert is_early(lived_s=lived_s, start_s=start_s, start_retries=retries) is early


def test_without_retries_the_first_failure_is_the_last():
    assert after_early_end(1, 0) is None
