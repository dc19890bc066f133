"""What is done with the time between a notice that the box ends and the end."""

import pytest

from supervisor.features.notices.messages import EndNotice
from supervisor.features.notices.rules import END, RISK, Plan, explains, is_over, is_same, over_at_s, plan
from supervisor.policy.upkeep.leaving import Saving

PONG, QBERT = Saving("Pong", unsaved_s=300.0, save_s=3.0), Saving("Qbert", unsaved_s=30.0, save_s=1.0)


def end(left_s, kind=END):
    return EndNotice("x", "aws", kind, "spot terminate", None if left_s is None else 1000.0 + left_s)


def planned(left_s, *savings, kind=END, copy_s=8.0):
    return plan(end(left_s, kind), savings, copy_s=copy_s, now_s=1000.0)


def test_two_minutes_save_and_copy_at_once_and_leave_when_what_is_trained_could_not_be_copied_any_more():
    assert planned(120.0, QBERT, PONG) == Plan(("Pong", "Qbert"), (), 1096.0, 1104.0)


@pytest.mark.parametrize(("left_s", "leave_after_s"), [(30.0, 14.0), (26.1, 10.1), (26.0, 10.0)])
def test_thirty_seconds_are_enough_for_a_save_before_they_leave(left_s, leave_after_s):
    found = planned(left_s, PONG, QBERT)
    assert found.leave_at_s == pytest.approx(1000.0 + leave_after_s)


@pytest.mark.parametrize("left_s", [25.9, 20.0, 1.0, 0.0, -50.0])
def test_with_less_everybody_leaves_at_once(left_s):
    assert planned(left_s, PONG, QBERT) == Plan((), (), None, 1000.0)


def test_as_many_are_asked_at_once_as_can_be_saved_and_copied():
    slow = [Saving(name, unsaved_s, 20.0) for name, unsaved_s in (("a", 10.0), ("b", 900.0), ("c", 400.0))]
    found = planned(120.0, *slow, copy_s=30.0)
    assert (found.first, found.then) == (("b",), ("c", "a")), "120 - (20 + 30 + 5) - 30 = 35s are room for one"
    assert (found.copy_by_s, found.leave_at_s) == (1035.0, 1065.0)


def test_if_not_even_one_can_be_saved_and_copied_the_copy_takes_what_is_there():
    found = planned(120.0, Saving("a", 900.0, 45.0), copy_s=30.0)
    assert (found.first, found.then, found.copy_by_s) == ((), (), 1010.0)
    found = planned(120.0, Saving("a", 900.0, 27.5), copy_s=30.0)
    assert (found.first, found.then, found.copy_by_s) == (("a",), (), 1027.5), "28s are just enough"


def test_equal_losses_go_by_name_and_a_save_without_time_divides_by_no_zero():
    found = planned(120.0, Saving("b", 1.0, 0.0), Saving("a", 1.0, 0.0), PONG)
    assert found.first == ("Pong", "a", "b")


def test_without_a_copy_and_without_programs_only_the_time_to_spare_is_left():
    assert planned(60.0, copy_s=0.0) == Plan((), (), 1055.0, 1055.0)


@pytest.mark.parametrize("kind", [END, RISK])
def test_without_a_time_everything_is_saved_and_copied_and_nobody_leaves(kind):
    assert planned(None, PONG, QBERT, kind=kind) == Plan(("Pong", "Qbert"), (), 1060.0, None)


def test_a_risk_never_makes_anybody_leave():
    assert planned(5.0, PONG, kind=RISK).leave_at_s is None


def test_an_end_is_over_two_minutes_after_its_time():
    assert not is_over(end(30.0), 1149.9)
    assert is_over(end(30.0), 1150.0)
    assert over_at_s(1030.0) == 1150.0
    assert not is_over(end(None), 1e9)


@pytest.mark.parametrize(
    ("before_s", "now_s", "same"), [(30.0, 35.0, True), (30.0, 35.1, False), (30.0, 25.0, True), (30.0, 24.9, False), (None, None, True), (None, 30.0, False), (30.0, None, False)]
)  # fmt: skip
def test_a_time_that_moves_by_a_few_seconds_says_nothing_new(before_s, now_s, same):
    assert is_same(end(before_s), end(now_s)) is same


@pytest.mark.parametrize(
    ("left_s", "kind", "sign_s", "explained"),
    [
        (120.0, END, 1100.0, True), (120.0, END, 1720.0, True), (120.0, END, 1721.0, False), (120.0, END, 400.0, True), (120.0, END, 399.0, False),
        (None, END, 5200.0, True), (None, END, 5201.0, False), (None, RISK, 1100.0, False),
    ],
)  # fmt: skip
def test_which_end_of_the_box_a_notice_explains(left_s, kind, sign_s, explained):
    assert explains(end(left_s, kind), announced_s=1000.0, last_sign_s=sign_s) is explained
