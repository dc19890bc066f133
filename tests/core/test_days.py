"""The page `days`: kept and lost steps, hours and dollars by local day."""

import json

import pytest
from core_kit import WALL_S
from fakes import FakeSources

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.reports.accounts import slots_in, summary
from supervisor.reports.cost_view import Games
from supervisor.reports.days import days_view
from supervisor.reports.ledger import fold_accounts
from supervisor.reports.pages import pages

HOUR_S, DAY_S = 3600.0, 86_400.0
MIDNIGHT_S = WALL_S // DAY_S * DAY_S  # UTC


def utc(_):
    return "UTC", 0.0


def shifting(at_wall_s):
    """Summer time ends at 01:00 UTC of the second day."""
    return ("XST", 7200.0) if at_wall_s < MIDNIGHT_S + DAY_S + HOUR_S else ("XT", HOUR_S)


def days(rows, now_s, *, zone=utc, since_s=0.0, until_s=None, price=2.0):
    """Journal time 0 is midnight, UTC."""
    stamped = [Stamped(n, at_s, MIDNIGHT_S + at_s, "boot", fact) for n, (at_s, fact) in enumerate(rows, 1)]
    closed = fold_accounts(stamped).closed(now_s)
    found = days_view(
        closed, Games(None, FakeSources().state), since_s, now_s if until_s is None else until_s,
        zone=zone, wall_s=MIDNIGHT_S + now_s, usd_per_hour=price,
    )  # fmt: skip
    assert json.loads(json.dumps(found)) == found
    return found, closed


def run(*more):
    """One program: a step a second from 22:00, dead at 23:50 with its checkpoint at 23:40, trains again from 00:10."""
    return [
        (0.0, facts.DaemonStarted("began", 1, "v", clean=True, salt="")), (0.0, facts.LevelChosen("config", "light", 1)),
        (0.0, facts.ProgramConfigured("new", "Pong", "d")), (22 * HOUR_S, facts.SpawnIntended("s", "Pong", "t", 1, "d", "light")),
        (22 * HOUR_S, facts.BecameReady("r", "Pong", "t", 0.0)), (22 * HOUR_S, facts.Resumed("r", "Pong", "t", 0, None)),
        (23 * HOUR_S + 2400.0, facts.Checkpointed("c", "Pong", "t", 6000, None, None)),
        (23 * HOUR_S + 3000.0, facts.Exited("crash", "Pong", "t", "crash", 1, None, 6600, 6000, counted=True)),
        (23 * HOUR_S + 3000.0, facts.Requeued("again", "Pong")),
        (24 * HOUR_S + 600.0, facts.SpawnIntended("s", "Pong", "u", 2, "d", "light")),
        (24 * HOUR_S + 600.0, facts.Resumed("r", "Pong", "u", 6000, 600, 600.0, "crash")),
        (24 * HOUR_S + 600.0, facts.BecameReady("r", "Pong", "u", 0.0)),
        (30 * HOUR_S, facts.Checkpointed("c", "Pong", "u", 26_000, None, None)), *more,
    ]  # fmt: skip


def test_what_was_kept_belongs_to_its_day_and_a_loss_to_the_day_of_its_resume():
    found, closed = days(run(), 36 * HOUR_S)
    first, second = found["days"]
    assert [each["date"] for each in found["days"]] == ["2027-01-15", "2027-01-16"]
    before = 6000.0 * 120 / 130  # minutes from its start to midnight, of those until it trained again at step 6,000
    assert (first["kept_steps"], first["lost_steps"], first["computed_steps"]) == pytest.approx((before, 0, before))
    assert (second["kept_steps"], second["lost_steps"]) == pytest.approx((26_000.0 - before, 600))
    assert second["computed_steps"] == second["kept_steps"] + 600
    assert second["lost"] == [{"cause": "crash", "steps": 600, "resumes": 1, "unknown": 0}]
    assert (first["hours"], second["hours"], first["usd"], second["usd"]) == (24.0, 12.0, 48.0, 24.0)
    assert (first["failures"], second["failures"]) == (1, 0)
    assert found["total"]["kept_steps"] == 26_000.0
    for day in (first, second):
        assert sum(each["usd"] for each in day["causes"]) == pytest.approx(day["usd"])
    assert slots_in(closed, 0.0, closed.at_s) == summary(closed).slots


def test_a_day_is_the_boxs_own_and_may_have_25_hours():
    found, _ = days(run(), 60 * HOUR_S, zone=shifting, since_s=HOUR_S)
    assert [each["date"] for each in found["days"]] == ["2027-01-15", "2027-01-16", "2027-01-17"]
    assert [each["hours"] for each in found["days"]] == [21.0, 25.0, 13.0]
    assert found["days"][1]["from_wall_s"] == MIDNIGHT_S + 22 * HOUR_S
    assert (found["zone"], found["utc_offset_s"]) == ("XT", HOUR_S)


def test_a_window_inside_a_day_and_no_price():
    found, _ = days(run(), 36 * HOUR_S, since_s=26 * HOUR_S, until_s=27 * HOUR_S, price=None)
    (day,) = found["days"]
    assert (day["hours"], day["usd"], day["usd_per_million_frames"], found["left_out"]) == (1.0, None, None, 0)
    assert found["says"].startswith("no price is configured")


def test_of_a_long_past_the_newest_hundred_days_are_reported():
    found, _ = days(run(), 150 * DAY_S + 60.0)
    assert (len(found["days"]), found["left_out"]) == (100, 51)
    assert [day["hours"] for day in (found["days"][0], found["days"][-1])] == pytest.approx([24.0, 1 / 60])
    assert found["total"]["hours"] == pytest.approx(3600.0, abs=0.1)


def test_losses_of_unknown_size_and_reboots_are_counted():
    more = [
        (31 * HOUR_S, facts.HostRebooted("r", "a", "b", "unclean", "", 60.0, None, "light", ("Pong",), {}, last_sign_s=31 * HOUR_S - 60)),
        (31 * HOUR_S, facts.Exited("ended", "Pong", "u", "reboot", None, None, None, None)),
        (31 * HOUR_S, facts.Requeued("again", "Pong")),
        (32 * HOUR_S, facts.SpawnIntended("s", "Pong", "v", 3, "d", "light")),
        (32 * HOUR_S, facts.Resumed("r", "Pong", "v", 26_000, None, None, "reboot")),
        (33 * HOUR_S, facts.Resumed("r", "Pong", "v", 26_000, 0, None, "moonshine")),
    ]  # fmt: skip
    found, _ = days(run(*more), 36 * HOUR_S)
    day = found["days"][1]
    assert (day["reboots"], day["lost_unknown"], day["lost_steps"]) == (1, 1, 600)
    assert day["lost"][1] == {"cause": "reboot of the host", "steps": 0, "resumes": 1, "unknown": 1}
    assert len(day["lost"]) == 2


def test_the_page_takes_the_boxs_zone():
    sources = FakeSources(now_s=10.0)
    found = pages()["days"].of(sources, {})
    assert (found["zone"], found["utc_offset_s"], found["usd_per_hour"]) == ("XLT", 7200.0, None)
    assert [each["date"] for each in found["days"]] == ["2027-01-15"]
