"""When those are killed that were asked to leave, and who counts as held by the kernel."""

import pytest

from supervisor.policy.worker import ending


def test_the_grace_then_twice_as_long_each_time():
    due, times = ending.kill_due_s(asked_at_s=0.0, grace_s=20.0, killed_at_s=None), []
    for _ in range(8):
        times.append(due)
        due = ending.kill_due_s(asked_at_s=0.0, grace_s=20.0, killed_at_s=due)
    assert times == [20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1240.0, 1840.0]


def test_a_short_grace_is_not_followed_by_a_volley():
    assert ending.kill_due_s(asked_at_s=100.0, grace_s=0.5, killed_at_s=100.5) == 110.5


@pytest.mark.parametrize(
    ("proc_state", "stall", "killed", "held"),
    [
        ("D", "uninterruptible", False, True),
        ("D", None, True, True),
        ("D", None, False, False),
        ("S", "uninterruptible", True, False),
        (None, "uninterruptible", True, False),
    ],
)
def test_held_is_who_stays_in_state_d(proc_state, stall, killed, held):
    assert ending.is_held(proc_state=proc_state, stall=stall, killed=killed) is held
