"""The daemon's own absence: who was away, whose age it is, how long to listen."""

import pytest

from supervisor.policy.worker import absence


@pytest.mark.parametrize(
    ("asked_s", "gap_s", "away"),
    [(2.0, 2.0, False), (2.0, 5.0, False), (2.0, 5.1, True), (0.0, 60.0, True), (2.0, 0.1, False)],
)
def test_away_is_who_came_back_later_than_asked(asked_s, gap_s, away):
    assert absence.was_away(asked_s=asked_s, gap_s=gap_s) is away


@pytest.mark.parametrize(
    ("at_s", "moved_s"), [(100.0, 160.0), (103.0, 163.0), (133.0, 163.0), (163.0, 163.0), (165.0, 165.0)]
)
def test_time_away_is_nobodys_age(at_s, moved_s):
    assert absence.moved_on(at_s, ((103.0, 163.0),)) == moved_s


def test_absences_add_up():
    assert absence.moved_on(0.0, ((1.0, 2.0), (5.0, 9.0))) == 5.0
    assert absence.moved_on(7.0, ((1.0, 2.0), (5.0, 9.0))) == 9.0
    assert absence.moved_on(7.0, ()) == 7.0


def test_an_unknown_time_stays_unknown() -> None:
    assert absence.moved_on_if_known(None, ((1.0, 2.0),)) is None
    assert absence.moved_on_if_known(0.0, ((1.0, 2.0),)) == 1.0


def test_the_newest_absences_are_remembered():
    known = ()
    for number in range(absence.MOST + 3):
        known = absence.remember(known, (float(number), number + 0.5))
    assert len(known) == absence.MOST
    assert known[-1] == (absence.MOST + 2.0, absence.MOST + 2.5)


@pytest.mark.parametrize(("away_s", "settle_s"), [(4.0, 2.0), (10.0, 5.0), (3600.0, 5.0)])
def test_what_gathered_meanwhile_is_heard_first(away_s, settle_s):
    assert absence.settle_s(away_s) == settle_s


def test_the_first_gasp_of_a_starving_box_is_reported():
    assert absence.is_news((), 5.0)
    assert not absence.is_news(((0.0, 10.0),), 70.0)
    assert absence.is_news(((0.0, 10.0),), 70.1)
