"""When a backup is due, which ones go, what one is called."""

import datetime as dt

import pytest

from supervisor.policy.upkeep.backups import (
    CALENDAR,
    LEVEL,
    OPERATOR,
    Kept,
    calendar_error,
    is_due,
    last_due,
    name_of,
    superfluous,
)

WEDNESDAY = dt.datetime(2026, 11, 18, 9, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))


@pytest.mark.parametrize(
    ("calendar", "due"),
    [
        ("off", None),
        ("hourly", "2026-11-18T09:00:00+01:00"),
        ("daily 03:30", "2026-11-18T03:30:00+01:00"),
        ("daily 09:01", "2026-11-17T09:01:00+01:00"),
        ("weekly wed 12:00", "2026-11-11T12:00:00+01:00"),
        ("weekly wed 08:00", "2026-11-18T08:00:00+01:00"),
        ("weekly sun 03:30", "2026-11-15T03:30:00+01:00"),
    ],
)
def test_the_newest_time_of_the_calendar(calendar, due):
    assert calendar_error(calendar) is None
    found = last_due(calendar, WEDNESDAY)
    assert (found and found.isoformat()) == due


@pytest.mark.parametrize(
    "calendar", ["", "daily", "daily 24:00", "daily 3:30", "weekly 03:30", "30 3 * * *", "daily 03:30 "]
)
def test_what_is_no_calendar_is_told(calendar):
    assert "weekly DAY HH:MM" in calendar_error(calendar)


def test_due_is_what_was_not_answered_yet():
    assert is_due(200.0, newest_due_wall_s=100.0, began_wall_s=500.0)  # the box was off at the time
    assert not is_due(100.0, newest_due_wall_s=100.0, began_wall_s=0.0)
    assert is_due(200.0, newest_due_wall_s=None, began_wall_s=150.0)
    assert not is_due(100.0, newest_due_wall_s=None, began_wall_s=150.0)  # nothing was there at the time
    assert not is_due(100.0, newest_due_wall_s=None, began_wall_s=None)


def test_each_kind_is_kept_for_itself_and_the_operators_stay():
    known = [Kept(f"n{day}", CALENDAR, day) for day in (3, 1, 2)] + [Kept("heavy", LEVEL, 0), Kept("mine", OPERATOR, -9)]
    assert superfluous(known, 2) == ["n1"]
    assert superfluous(known, 2, spare=["n1"]) == []
    assert superfluous(known, 1) == ["n1", "n2"]
    assert superfluous([Kept("x", "what?", 0)], 1) == []


def test_a_name_is_its_time_and_its_label_and_never_taken():
    assert name_of(1_800_000_000, "", []) == "20270115-080000"
    assert name_of(1_800_000_000, "Before HEAVY: ../x", []) == "20270115-080000-before-heavy-x"
    taken = ["20270115-080000", "20270115-080000.2"]
    assert name_of(1_800_000_000, "...", taken) == "20270115-080000.3"
