"""The folds of the pages, with their older time merged by day, say what they say with everything in them."""

import json
from itertools import pairwise

import pytest
from adding_up import ledger_errors

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.policy.upkeep.accounting import Account
from supervisor.reports import accounts, days, digest
from supervisor.reports.cost_view import kept_steps
from supervisor.reports.digest import Digest
from supervisor.reports.incidents import incidents
from supervisor.reports.incidents_view import incidents_view

HOUR_S = 3600.0
FINE_S = 2 * HOUR_S
_INTERPOLATED_S = 0.5  # of a loss that reaches back over a mark that was merged


@pytest.fixture(autouse=True)
def short_days(monkeypatch):
    """A day of an hour."""
    monkeypatch.setattr(digest, "_KEEP_S", FINE_S)
    monkeypatch.setattr(days, "_DAY_S", HOUR_S)


@pytest.fixture(scope="module")
def journal():
    """A rough day with a service that leaves."""
    from world import Odds, World

    odds = Odds(crash_s=900.0, stall_s=1500.0, reboot_s=1.5 * HOUR_S, daemon_kill_s=HOUR_S, operator_s=1200.0)
    world = World(8, programs=3, odds=odds, look_s=20.0).begin()
    world.run(9 * HOUR_S)
    found = list(world.core.journal)
    middle = found[len(found) // 3]
    service = (
        facts.ProgramConfigured("", "board", "d", service=True),
        facts.SpawnIntended("", "board", "e" * 32, 1, "d", "light"),
    )
    return placed(found, middle.seq, *service) + stamped(found[-1], 2, facts.ProgramRemoved("", "board"))


def stamped(after, more, *told):
    return [Stamped(after.seq + more + n, after.at_s, after.wall_s, after.boot_id, fact) for n, fact in enumerate(told, 1)]


def placed(journal, seq, *told):
    """The journal with two more facts after one of its facts."""
    head = [each for each in journal if each.seq <= seq]
    tail = [Stamped(e.seq + len(told), e.at_s, e.wall_s, e.boot_id, e.fact) for e in journal if e.seq > seq]
    return [*head, *stamped(head[-1], 0, *told), *tail]


def zone(_wall_s):
    return "XLT", 0.0


def rows_of(journal):
    by_number = {each.seq: each for each in journal}
    return lambda numbers: {number: by_number[number] for number in numbers if number in by_number}


def by_day(journal, every):
    found = Digest()
    for number, each in enumerate(journal, 1):
        found.add(each)
        if number % every == 0:
            found.by_day(zone)
            found = Digest.of_json(json.loads(json.dumps(found.as_json())), rows_of(journal))
    return found


def whole(journal):
    found = Digest()
    for each in journal:
        found.add(each)
    return found


def sheets(ledger, begin_s, end_s):
    found = accounts.summary(ledger, since_s=begin_s, until_s=end_s)
    return {
        each.name: (
            {account: pytest.approx(each.seconds.get(account, 0.0), abs=_INTERPOLATED_S) for account in Account},
            pytest.approx(each.wall_s, abs=1e-3), each.failures, each.reboots, each.lost_steps, each.lost_unknown,
        )
        for each in (found.slots, *found.programs)
    }  # fmt: skip


@pytest.mark.parametrize("every", [40, 300])
def test_every_day_and_every_recent_window_is_the_same(journal, every):
    found, all_ = by_day(journal, every), whole(journal)
    merged_s = found.ledger.merged_s
    assert found.seq == journal[-1].seq
    assert merged_s > 4 * HOUR_S
    assert ledger_errors(found.ledger, journal[-1].at_s) == []
    old, new = (sum(len(list(each.within(0.0, merged_s))) for each in one.ledger.all_timelines()) for one in (found, all_))
    assert old < new / 5
    now_s = journal[-1].at_s + 9.0
    closed, fine = found.ledger.closed(now_s), all_.ledger.closed(now_s)
    bounds = [piece.end_s for piece in closed.merged]
    windows = [*pairwise(bounds), (0.0, now_s), (bounds[2], now_s), (merged_s + 77.0, now_s), (now_s - HOUR_S, now_s - 60.0)]
    for begin_s, end_s in windows:
        assert sheets(closed, begin_s, end_s) == sheets(fine, begin_s, end_s), (begin_s, end_s)
        for mine, other in zip(closed.trainings(), fine.trainings(), strict=True):
            assert kept_steps(mine, begin_s, end_s) == pytest.approx(kept_steps(other, begin_s, end_s), abs=0.01)


def test_a_window_within_a_day_has_its_share_of_that_day(journal):
    closed = by_day(journal, 100).ledger.closed(journal[-1].at_s)
    first, last = closed.merged[2].start_s, closed.merged[2].end_s
    middle_s = (first + last) / 2
    parts = [accounts.slots_in(closed, a, b) for a, b in ((first, middle_s), (middle_s, last))]
    day = accounts.slots_in(closed, first, last)
    for account in Account:
        assert sum(each.seconds.get(account, 0.0) for each in parts) == pytest.approx(
            day.seconds.get(account, 0.0), abs=1e-6
        )
    assert parts[0].wall_s == pytest.approx(parts[1].wall_s, rel=0.05)


def test_old_incidents_are_counted_by_cause_and_the_newest_of_a_day_keeps_its_facts(journal):
    found, rows = by_day(journal, 100), rows_of(journal)
    pages = (
        incidents_view(each, {}, limit=1, chars=500)
        for each in (found.incidents.between(-1.0, 1e9, rows)(), incidents(journal))
    )
    groups = [{(group["what"], group["error"]): group for group in page} for page in pages]
    assert groups[0].keys() == groups[1].keys()
    for key, group in groups[1].items():
        mine = groups[0][key]
        assert mine["count"] == group["count"]
        assert (mine["outage_s"], mine["lost_steps"]) == (pytest.approx(group["outage_s"]), group["lost_steps"])
        assert (mine["incidents"], mine["programs"]) == (group["incidents"], group["programs"])
    assert len(found.incidents.found) < len(incidents(journal)) / 2


def test_an_incident_whose_facts_were_archived_is_left_out(journal):
    found = by_day(journal, 100)
    later = [each for each in journal if each.at_s > 3 * HOUR_S]
    kept = [each.cause.at_s for each in found.incidents.between(0.0, 1e9, rows_of(later))()]
    assert len(kept) > 0
    assert min(kept) > 3 * HOUR_S
    again = Digest.of_json(json.loads(json.dumps(found.as_json())), rows_of([]))
    assert again.incidents.found == []


def test_old_spans_of_a_program_are_joined_and_counted(journal):
    now_s = journal[-1].at_s
    found, all_ = (each.lanes.lanes(now_s, 0.0, now_s) for each in (by_day(journal, 100), whole(journal)))
    assert found.marks == all_.marks
    for name, spans in all_.programs.items():
        assert sum(each.count for each in found.programs[name]) > len(spans) / 2
        assert len(found.programs[name]) < len(spans) or len(spans) == 2
        assert found.programs[name][0].from_s == spans[0].from_s
        fine = [each for each in spans if each.from_s > now_s - FINE_S]
        assert fine == [each for each in found.programs[name] if each.from_s > now_s - FINE_S]


def story(*told):
    return [Stamped(n, float(at_s), 1e9 + at_s, "b", fact) for n, (at_s, fact) in enumerate(told, 1)]


def long_after(resume):
    """A program that trains for two hours, is stopped for five, and resumes."""
    told = [
        (0, facts.DaemonStarted("", 1, "1", clean=True, salt="")),
        (0, facts.LevelChosen("set", "light", 1)), (0, facts.ProgramConfigured("new", "P", "d")),
        (0, facts.SpawnIntended("", "P", "a", 1, "d", "light")), (0, facts.BecameReady("", "P", "a", 0.0)),
        (0, facts.Resumed("", "P", "a", 0, None, None)), (3000, facts.Checkpointed("", "P", "a", 3000, 0.1, 0.1)),
        (7200, facts.StopIntended("", "P", "a", "operator", "x", 3.0)),
        (7200, facts.Exited("", "P", "a", "stopped", 0, None, 7200, None, counted=False)), (7200, facts.StayedDown("", "P")),
        *((7200 + n * HOUR_S, facts.OperatorAsked("x", "status", (), None)) for n in range(1, 6)),
        (26_000, facts.Requeued("", "P")), (26_000, facts.SpawnIntended("", "P", "b", 2, "d", "light")),
        (26_010, facts.BecameReady("", "P", "b", 10.0)), (26_010, resume),
    ]  # fmt: skip
    return story(*told)


@pytest.mark.parametrize(
    ("resume", "account", "in_each_hour"),
    [
        (facts.Resumed("", "P", "b", 3000, 4200, None), Account.LOST, [600.0, 3600.0]),
        (facts.ResumeUnknown("", "P", "b"), Account.UNKNOWN, [3600.0, 3600.0]),
    ],
)
def test_lost_and_unproven_work_is_booked_in_the_days_in_which_it_was_computed(resume, account, in_each_hour):
    journal = long_after(resume)
    found = by_day(journal[:-1], 1)
    assert found.ledger.merged_s >= 7200.0
    found.add(journal[-1])
    closed = found.ledger.closed(26_020.0)
    for hour, expected in enumerate(in_each_hour):
        begin_s = hour * HOUR_S
        assert accounts.slots_in(closed, begin_s, begin_s + HOUR_S).seconds[account] == pytest.approx(expected)
    assert ledger_errors(found.ledger, 26_020.0) == []


def test_a_program_that_waits_for_days_without_a_fact_is_on_the_bill():
    told = [
        (0, facts.DaemonStarted("", 1, "1", clean=True, salt="")), (0, facts.LevelChosen("set", "light", 1)),
        (0, facts.ProgramConfigured("new", "P", "d")), (10, facts.Gated("no GPU", "P", 0, 8, 4)),
        *((n * HOUR_S, facts.OperatorAsked("x", "status", (), None)) for n in range(1, 8)),
    ]  # fmt: skip
    found = by_day(story(*told), 1)
    assert found.ledger.merged_s >= 2 * HOUR_S
    closed = found.ledger.closed(7 * HOUR_S)
    assert accounts.slots_in(closed, HOUR_S, 2 * HOUR_S).seconds == {Account.WAITING: pytest.approx(HOUR_S)}
    assert accounts.summary(closed).slots.seconds == {Account.WAITING: pytest.approx(7 * HOUR_S)}


def test_time_that_later_facts_may_still_book_is_not_merged():
    """The daemon was away for five hours; then the worker's steps prove what it did meanwhile."""
    told = [
        (0, facts.DaemonStarted("", 1, "1", clean=True, salt="")),
        (0, facts.LevelChosen("set", "light", 1)), (0, facts.ProgramConfigured("new", "P", "d")),
        (0, facts.SpawnIntended("", "P", "a", 1, "d", "light")), (0, facts.BecameReady("", "P", "a", 0.0)),
        (5 * HOUR_S, facts.DaemonStarted("", 2, "1", clean=False, salt="", last_sign_s=10.0)),
        (5 * HOUR_S, facts.Tallied("", "P", "a", 10.0, 5 * HOUR_S, {"training": 5 * HOUR_S - 10.0}, 0.0, "training", 9)),
    ]  # fmt: skip
    closed = by_day(story(*told), 1).ledger.closed(5 * HOUR_S)
    assert accounts.summary(closed).slots.seconds == {Account.TRAINING: pytest.approx(5 * HOUR_S)}
