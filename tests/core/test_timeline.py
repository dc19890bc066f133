"""The page `timeline`: spans and marks in time order, bounded."""

import json

import pytest
from core_kit import WALL_S, Core, settings
from fakes import FakeSources

from supervisor.model import facts
from supervisor.model.codec import as_text
from supervisor.model.facts import Stamped
from supervisor.reports.lanes import OFF, Span
from supervisor.reports.pages import pages
from supervisor.reports.timeline import merged


def page(rows, **query):
    now_s = query.pop("now_s", rows[-1].at_s)
    found = pages()["timeline"].of(
        FakeSources(journal=rows, now_s=now_s, wall_s=rows[-1].wall_s + now_s - rows[-1].at_s), query
    )
    assert json.loads(json.dumps(found)) == found
    return found


def told(spans, key):
    return [(round(each["from_s"]), round(each["to_s"]), each[key]) for each in spans]


def stamp(*at):
    return [Stamped(place, at_s, WALL_S + at_s, "boot", fact) for place, (at_s, fact) in enumerate(at, 1)]


def states(found, name="Pong"):
    return told(next(each["spans"] for each in found["programs"] if each["name"] == name), "phase")


@pytest.fixture
def night():
    """A daemon that dies, a reboot, a death and a backup."""
    from supervisor.features.backups.messages import BackupDue

    core = Core(settings("Pong")).running("Pong")
    core.later(99.0).begin(last_sign_s=core.now_s - 30.0)
    core.running("Pong")
    core.later(100.0).reboot("b" * 32, down_s=60.0, last_sign_s=140.0)
    core.running("Pong")
    core.later(100.0).give(BackupDue(core.now_s, WALL_S + core.now_s))
    core.later(100.0).ended("Pong", code=1)
    core.later(200.0).woke()
    return core


def test_the_states_of_a_program_with_the_time_in_which_its_box_was_off(night):
    found = page(night.journal, now_s=1000.0)
    assert states(found)[:2] == [(0, 1, "STARTING"), (1, 100, "RUNNING")]
    off = next(each for each in found["programs"][0]["spans"] if each["phase"] == OFF)
    assert (off["from_s"], off["to_s"]) == (140.0, 201.0)
    assert states(found)[-1][1] == 1000, "what goes on ends now"


def test_what_befell_the_box(night):
    found = page(night.journal, now_s=1000.0)
    assert [each["kind"] for each in found["box"]] == ["no daemon", "reboot"]
    reboot = found["box"][1]
    assert (reboot["from_s"], reboot["to_s"], reboot["cause"], reboot["level"]) == (140.0, 201.0, "unclean", "light")
    assert reboot["from_wall_s"] == WALL_S + 140.0
    assert [(each["kind"], each["what"]) for each in found["marks"]] == [
        ("daemon", "the daemon ended without notice"), ("death", "ended unseen"), ("reboot", "reboot of the host, unclean"), ("death", "crash"),
    ]  # fmt: skip
    assert found["backups"][0]["cause"] == "calendar"


def test_a_span_that_began_before_the_window_is_in_it(night):
    found = page(night.journal, now_s=100_000.0, since="10s")
    assert [each["from_s"] for each in found["levels"]] == [0.0]
    assert states(found)[0][0] < found["since_s"]
    assert found["marks"] == found["box"] == []
    earlier = page(night.journal, now_s=100_000.0, since="all", until="99900s")
    assert [each["kind"] for each in earlier["box"]] == ["no daemon"]


def test_levels_with_their_trials_vetoes_and_what_people_asked():
    found = page(stamp(
        (0.0, facts.LevelChosen("config", "light", 1)),
        (600.0, facts.LevelChosen("trying medium", "medium", 2, trial=True, by="the rule")),
        (700.0, facts.Vetoed("hot", "gpu_temperature", "light", "medium")),
        (701.0, facts.LevelChosen("hot", "light", 1, by="a veto")),
        (900.0, facts.VetoLifted("cool", "gpu_temperature", 200.0)),
        (901.0, facts.VetoLifted("of nothing", "gpu_temperature", 200.0)),
        (950.0, facts.OperatorAsked("ada asked", "stop", ("Pong",), 7)),
        (960.0, facts.RolledBackTo("back", "b1", {"Pong": 5}, "")),
        (970.0, facts.BackupIntended("by hand", "b2", "", "operator", ())),
        (980.0, facts.BackupFailed("full", "b2", "ENOSPC")), (981.0, facts.RollbackIntended("x", "b1", (), "", "ada")),
        (990.0, facts.DaemonSuspended("asleep", 5.0, 1000.0)), (991.0, facts.ClockStepped("stepped", 1.0)),
        (992.0, facts.BackupIntended("by hand", "b3", "", "operator", ())), (995.0, facts.BackedUp("made", "b3", {}, 1, "link")),
    ))  # fmt: skip
    assert [(*each, span["trial"]) for each, span in zip(told(found["levels"], "level"), found["levels"], strict=True)] == [
        (0, 600, "light", False), (600, 701, "medium", True), (701, 995, "light", False),
    ]  # fmt: skip
    assert told(found["vetoes"], "rule") == [(700, 900, "gpu_temperature")]
    assert told(found["backups"], "ok") == [(970, 980, False), (992, 995, True)]
    assert [span["why"] for span in found["backups"]] == ["full", "made"]
    assert told(found["box"], "kind") == [(985, 990, "suspended")]
    assert [(each["kind"], each["what"], each["program"]) for each in found["marks"]] == [
        ("operator", "stop", None), ("rollback", "back to backup b1", "Pong"), ("trouble", "a backup failed", None),
    ]  # fmt: skip


def test_programs_come_finish_and_go():
    found = page(stamp(
        (0.0, facts.ProgramConfigured("new", "Pong", "d", autostart=False)), (100.0, facts.ProgramConfigured("new", "Pong", "e")),
        (200.0, facts.Finished("done", "Pong")), (300.0, facts.RolledBack("diverged", "Pong", 9, 5, 1, 1)),
        (310.0, facts.ProgramConfigured("lr 1 -> 2", "Pong", "f")), (320.0, facts.ProgramConfigured("level", "Pong", "g", moved=True)),
        (400.0, facts.ProgramRemoved("gone", "Pong")), (500.0, facts.ProgramConfigured("new", "Qbert", "d")),
        (510.0, facts.Requeued("still waits", "Qbert")), (600.0, facts.HostRebooted("r", "a", "b", "orderly", "", 50.0, None, "light", ("Qbert",), {})),
    ))  # fmt: skip
    assert states(found) == [(0, 200, "STOPPED"), (200, 400, "DONE")]
    assert states(found, "Qbert") == [(500, 550, "QUEUED"), (550, 600, OFF)]
    assert [(each["kind"], each["what"], each["program"]) for each in found["marks"]] == [
        ("settings", "settings changed", "Pong"), ("done", "finished", "Pong"), ("rollback", "rolled back", "Pong"),
        ("settings", "settings changed", "Pong"), ("reboot", "reboot of the host, orderly", None),
    ]  # fmt: skip
    assert [each["name"] for each in page(stamp((0.0, facts.ProgramConfigured("new", "Pong", "d"))))["programs"]] == ["Pong"]


def test_a_journal_that_begins_with_a_snapshot_and_a_daemon_that_was_away_in_order():
    core = Core(settings("Pong")).running("Pong")
    rows = stamp(
        (50.0, facts.Snapshot("so far", as_text(core.state))), (60.0, facts.DaemonStopped("stopped")),
        (63.0, facts.DaemonStarted("again", 1, "v", clean=True, salt="")),
        (90.0, facts.DaemonStarted("again", 1, "v", clean=True, salt="")), (95.0, facts.Snapshot("more", "{}")),
    )  # fmt: skip
    found = page(rows)
    assert told(found["levels"], "level") == [(50, 95, core.state.level)]
    assert states(found) == [(50, 95, "RUNNING")]
    assert told(found["box"], "kind") == [(63, 90, "no daemon")]


def test_a_crash_loop_has_a_bound():
    rows = [(0.0, facts.ProgramConfigured("new", "Pong", "d"))]
    for number in range(5000):
        at_s, token = 10.0 * number, f"t{number}"
        rows += [
            (at_s, facts.SpawnIntended("s", "Pong", token, number, "d", "light")),
            (at_s + 2.0, facts.Exited("crash", "Pong", token, "crash", 1, None, None, None)),
            (at_s + 2.0, facts.BackedOff("waits", "Pong", at_s + 10.0, 8.0, slow=False)),
        ]
    found = page(stamp(*rows))
    assert len(found["programs"][0]["spans"]) <= 600
    assert len(found["marks"]) <= 301
    assert sum(each["count"] for each in found["marks"]) == 5000
    assert found["marks"][-1]["seq"] == len(rows) - 1, "the newest of them"
    assert {each["phase"] for each in found["programs"][0]["spans"]} == {"BACKOFF"}, "what it did for longest"


def test_many_programs_share_the_bound():
    rows = [(0.0, facts.ProgramConfigured("new", f"P{number:03}", "d")) for number in range(200)]
    for turn in range(100):
        rows += [(100.0 * turn + 1, facts.BackedOff("w", f"P{number:03}", 0.0, 1.0, slow=False)) for number in range(200)]
        rows += [(100.0 * turn + 50, facts.Requeued("q", f"P{number:03}")) for number in range(200)]
    found = page(stamp(*rows))
    assert len(found["programs"]) == 200
    assert sum(len(each["spans"]) for each in found["programs"]) <= 200 * 40


def test_what_is_merged():
    a, b = {"phase": "A"}, {"phase": "B"}
    assert merged([], 1.0) == []
    found = merged(
        [Span(0, 10, a), Span(10, 11, b), Span(11, 13, a), Span(20, 21, b), Span(21, 31, a), Span(31, 40, a)], 5.0
    )
    assert [(each.from_s, each.to_s, each.fields, each.count) for each in found] == [
        (0, 10, a, 1), (10, 13, a, 2), (20, 21, b, 1), (21, 40, a, 1),
    ]  # fmt: skip
    (found,) = merged([Span(20, 22, a), Span(22, 24, a), Span(24, 30, b), Span(31, 36, a)], 11.0)
    assert (found.from_s, found.to_s, found.fields, found.count) == (20, 36, b, 3), "what it did for longest"
    assert len(merged([Span(0, 5, a), Span(5, 10, b)], 5.0)) == 2, "each is as long as a part"
    assert len(merged([Span(0, 1, a), Span(6, 7, b)], 5.0)) == 2, "they are a part apart"
