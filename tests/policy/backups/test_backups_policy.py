"""When a backup is due, which ones go, what one is called."""

import datetime as dt
import functools
import re
import time
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from supervisor.features.backups.rules import CALENDAR, LEVEL, OPERATOR, Kept, name_of, superfluous
from supervisor.policy.upkeep.calendars import CALENDARS, is_due, last_due

NOW_S, YEAR_S = 1_800_000_000.0, 365 * 86_400.0
WEDNESDAY = dt.datetime(2026, 11, 18, 9, 7, 30, 5, tzinfo=dt.timezone(dt.timedelta(hours=1)))


@pytest.mark.parametrize(
    ("calendar", "due"),
    [
        ("off", None),
        ("hourly", "2026-11-18T09:00:00+01:00"),
        ("daily 03:30", "2026-11-18T03:30:00+01:00"),
        ("daily 09:08", "2026-11-17T09:08:00+01:00"),
        ("weekly wed 12:00", "2026-11-11T12:00:00+01:00"),
        ("weekly wed 08:00", "2026-11-18T08:00:00+01:00"),
        ("weekly sun 03:30", "2026-11-15T03:30:00+01:00"),
    ],
)
def test_the_newest_time_of_the_calendar(calendar, due):
    assert re.fullmatch(CALENDARS, calendar)
    found = last_due(calendar, WEDNESDAY)
    assert (found and found.isoformat()) == due


def test_a_time_of_the_calendar_is_due_at_its_own_moment():
    nine = WEDNESDAY.replace(minute=0, second=0, microsecond=0)
    assert [last_due(calendar, nine) for calendar in ("hourly", "daily 09:00", "weekly wed 09:00")] == [nine] * 3


@pytest.mark.parametrize(
    ("zone", "changes"),
    [
        ("Europe/Berlin", ("2026-03-29", "2026-10-25")),
        ("America/New_York", ("2026-03-08", "2026-11-01")),
        ("Australia/Lord_Howe", ("2026-04-05", "2026-10-04")),  # by half an hour
        ("Africa/Cairo", ("2026-04-24", "2026-10-29")),  # at midnight
    ],
)
def test_a_change_of_the_clock_makes_no_second_backup_and_leaves_none_out(zone, changes):
    """Once for each day or week, from two days before to two days after, with a look every ten minutes; each hour once."""
    wrong = []
    for change in changes:
        noon = dt.datetime.fromisoformat(change).replace(hour=12, tzinfo=ZoneInfo(zone))
        begin_s, end_s = ((noon + dt.timedelta(days=days)).timestamp() for days in (-2, 2))
        looks = [
            dt.datetime.fromtimestamp(begin_s + 600 * n, ZoneInfo(zone)) for n in range(int(end_s - begin_s) // 600 + 1)
        ]
        for calendar in [f"daily {hour:02}:{minute}" for hour in range(24) for minute in (15, 45)]:
            answered = [last_due(calendar, looks[0]).timestamp()]
            for now in looks:
                due_s = last_due(calendar, now).timestamp()
                if is_due(due_s, newest_due_wall_s=answered[-1], began_wall_s=None, now_wall_s=now.timestamp()):
                    answered.append(due_s)
            wrong += [(calendar, change)] * (len(answered) != 5)
            apart = {round((after - before) / 3600, 1) for before, after in pairwise(answered)}
            assert apart <= {23.0, 23.5, 24.0, 24.5, 25.0}, (calendar, change)
        hours = {last_due("hourly", now).timestamp() for now in looks}
        assert {after - before for before, after in pairwise(sorted(hours))} <= {1800.0, 3600.0, 5400.0}
        assert last_due("weekly sun 01:45", looks[-1]).timestamp() == last_due("weekly sun 01:45", looks[-30]).timestamp()
    assert not wrong


@pytest.mark.parametrize(
    "calendar", ["", "daily", "daily 24:00", "daily 3:30", "weekly 03:30", "30 3 * * *", "daily 03:30 "]
)
def test_what_is_no_calendar(calendar):
    assert not re.fullmatch(CALENDARS, calendar)


def test_due_is_what_was_not_answered_yet():
    due = functools.partial(is_due, now_wall_s=300.0)
    assert due(200.0, newest_due_wall_s=100.0, began_wall_s=500.0)  # the box was off at the time
    assert not due(100.0, newest_due_wall_s=100.0, began_wall_s=0.0)
    assert due(200.0, newest_due_wall_s=None, began_wall_s=150.0)
    assert not due(100.0, newest_due_wall_s=None, began_wall_s=150.0)  # nothing was there at the time
    assert not due(100.0, newest_due_wall_s=None, began_wall_s=None)


@pytest.mark.parametrize(("ahead_s", "due"), [(3 * 3600.0, False), (86_400.0, False), (86_401.0, True), (10 * YEAR_S, True)])
def test_a_time_that_was_answered_by_a_clock_that_was_years_ahead_does_not_count(ahead_s, due):
    """Hours ahead are a time zone: the same night must not get a second backup."""
    for newest, began in ((NOW_S + ahead_s, 0.0), (None, NOW_S + ahead_s)):
        assert is_due(NOW_S - 60.0, newest_due_wall_s=newest, began_wall_s=began, now_wall_s=NOW_S) is due


def test_each_kind_is_kept_for_itself_and_the_operators_stay():
    known = [Kept(f"n{day}", CALENDAR, day) for day in (3, 1, 2)] + [Kept("heavy", LEVEL, 0), Kept("mine", OPERATOR, -9)]
    assert superfluous(known, 2) == ["n1"]
    assert superfluous(known, 2, spare=["n1"]) == []
    assert superfluous(known, 1) == ["n1", "n2"]
    assert superfluous([Kept("x", "what?", 0)], 1) == []


def test_a_name_is_its_time_and_its_label_and_never_taken():
    assert name_of(1_800_000_000, "", []) == "20270115-080000"
    assert name_of(1_800_000_000, " -Before HEAVY: ../x-", []) == "20270115-080000-before-heavy-x"
    taken = ["20270115-080000", "20270115-080000.2"]
    assert [name_of(1_800_000_000, "...", taken[:count]) for count in (1, 2)] == [taken[1], "20270115-080000.3"]


def test_a_backup_is_called_by_its_time_in_utc_wherever_the_box_is(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        name = name_of(1_800_000_000.0, "", [])
    time.tzset()
    assert name == "20270115-080000"
