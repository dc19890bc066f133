"""How much work was lost, and when nobody can know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker.loss import AT_LEAST, UNKNOWN, Loss, furthest, loss, lost_share


def found(made, resumed, *, exact=False, saved=False, late=False, began=50_000, rate=100.0):
    return loss(made, resumed, exact=exact, saved=saved, began_step=began, rate=rate, saved_late=late)


def test_a_sign_of_life_that_is_newer_than_the_checkpoint():
    assert found(55_100, 54_896) == Loss(204, 2.04, 204 / 5_100, AT_LEAST)


def test_a_sign_of_life_that_is_older_than_the_checkpoint_says_nothing():
    assert found(54_700, 54_896) == found(54_896, 54_896) == UNKNOWN


@pytest.mark.parametrize(
    ("made", "resumed", "saved", "steps"),
    [
        (55_000, 54_896, False, 104),
        (55_000, 55_000, False, 0),  # it died at the very step that it had saved
        (54_990, 55_000, False, None),  # the checkpoint is newer than the last beat: how far it came then is unknown
        (54_990, 55_000, True, 0),  # it saved as it left
        (None, 55_000, True, None),
        (55_000, None, True, None),
    ],
)
def test_a_last_beat_that_was_read_after_the_end(made, resumed, saved, steps):
    cost = found(made, resumed, exact=True, saved=saved)
    assert (cost.steps, cost.bound) == (steps, "")
    assert (cost.seconds == 0.0) == (steps == 0)


@pytest.mark.parametrize(
    ("made", "saved", "late", "cost"),
    [
        (1_792, True, True, Loss(0, 0.0, 0.0)),  # it saved as it was asked to leave
        (1_750, True, True, Loss(0, 0.0, 0.0)),  # and had printed nothing for a while
        (1_792, True, False, UNKNOWN),  # it left in order, but its newest file is older than that
        (1_792, False, True, UNKNOWN),  # it had to be killed, and may have trained on after the file
        (1_800, True, True, Loss(8, 0.08, 8 / 1_800, AT_LEAST)),
    ],
)
def test_a_file_written_after_it_was_asked_to_leave_says_where_the_attempt_ended(made, saved, late, cost):
    assert found(made, 1_792, saved=saved, late=late, began=0) == cost


@pytest.mark.parametrize(
    ("computed", "steps", "bound"), [(None, 700, ""), (700, 700, ""), (200, 200, AT_LEAST), (0, None, "")]
)
def test_no_more_is_lost_than_was_computed_here(computed, steps, bound):
    cost = loss(700, 0, exact=True, saved=False, began_step=500, rate=10.0, computed=computed)
    assert (cost.steps, cost.bound) == (steps, bound)
    assert loss(700, 700, exact=True, saved=False, began_step=500, rate=10.0, computed=0).steps == 0


def test_without_a_rate_the_seconds_are_unknown():
    assert found(55_000, 54_000, rate=None).seconds is None
    assert found(55_000, 54_000, rate=0.0).seconds is None
    assert found(55_000, 55_000, exact=True, rate=None).seconds == 0.0


@given(
    st.one_of(st.none(), st.integers(0, 10**6)), st.one_of(st.none(), st.integers(0, 10**6)), st.booleans(), st.booleans()
)
def test_zero_is_never_said_of_an_end_that_nobody_saw(made, resumed, exact, saved):
    cost = found(made, resumed, exact=exact, saved=saved)
    if not exact:
        assert cost.steps != 0
    if cost.steps is None:
        assert cost == UNKNOWN
    else:
        assert cost.steps == max(0, made - resumed)


def test_the_furthest_of_all_sources():
    assert furthest(None, 3, 9, None, 4) == 9
    assert furthest(0) == 0
    assert furthest(None, None) is None


@pytest.mark.parametrize(
    ("lost", "steps", "began", "share"),
    [
        (300, 10_000, 4_000, 0.05),
        (0, 10_000, 4_000, 0.0),
        (9_000, 10_000, 4_000, 1.0),  # rolled back to before its beginning: all of it, and of others
        (5, 4_000, 4_000, 1.0),
        (0, 4_000, 4_000, 0.0),
        (300, 10_000, None, None),
    ],
)
def test_what_share_of_an_attempt_was_lost(lost, steps, began, share):
    assert lost_share(lost, steps, began) == share
