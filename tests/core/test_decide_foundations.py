"""Files and directories that the daemon relies on: found missing, restored, in trouble, and in place again."""

from dataclasses import replace

from core_kit import Core, facts, kinds, of, settings

from supervisor.deciding.foundations import showing
from supervisor.model import commands
from supervisor.model.inputs import Asked, FoundationsLooked, Verb
from supervisor.policy.box.foundations import Finding, Look
from supervisor.reports.status_view import troubles_view

GONE = Finding("control socket", "/r/s", Look.MISSING, restorable=True)
FAILED = replace(GONE, error="No space left on device")
LOCK = Finding("lock", "/s/lock", Look.MISSING, restarts=True)
DEAD = Finding("state directory", "/s", Look.REPLACED, holds_starts=True)


def looked(core, *findings):
    return core.give(FoundationsLooked(core.now_s, findings))


def begun():
    return Core(settings("Pong")).running("Pong")


def test_what_a_worker_restores_is_reported_once():
    core = begun()
    first = looked(core, GONE)
    assert of(first, facts.FoundationLost) == [
        facts.FoundationLost(
            "the control socket /r/s was removed: it is restored", "control socket", "/r/s", "missing", troubled=False
        )
    ]
    assert troubles_view(core.memory) == [], "what is being restored is no trouble yet"
    core.later(2.0)
    over = looked(core)
    assert of(over, facts.FoundationRestored) == [
        facts.FoundationRestored(
            "the control socket /r/s is in place again, after 2s", "control socket", "/r/s", 2.0, troubled=False
        )
    ]
    assert core.memory.foundations == {}


def test_it_is_trouble_if_it_stays_away_or_cannot_be_restored_and_its_end_is_recorded():
    for then in (FAILED, replace(GONE, look=Look.DAMAGED, detail="it is empty")):
        core = begun()
        looked(core, GONE)
        assert [fact.troubled for fact in of(looked(core.later(2.0), then), facts.FoundationLost)] == [True]
        assert [each["name"] for each in troubles_view(core.memory)] == ["control socket"]
        assert kinds(looked(core.later(2.0), then)) == [], "it is recorded once"
        (over,) = of(looked(core.later(2.0)), facts.FoundationRestored)
        assert (over.troubled, over.for_s) == (True, 6.0)
        assert troubles_view(core.memory) == []
    core = begun()
    looked(core, GONE)
    looked(core.later(2.0), replace(GONE, look=Look.REPLACED))
    assert troubles_view(core.memory) == [], "its worker has made it again"


def test_the_daemon_restarts_itself_for_what_its_start_restores():
    core = begun()
    decision = looked(core, LOCK)
    assert [(fact.why, fact.troubled) for fact in of(decision, facts.FoundationLost)] == [
        ("the lock /s/lock was removed: extralife restarts itself, which restores it; workers run on", False)
    ]
    (stopping,) = of(decision, facts.DaemonStopping)
    assert (stopping.why, stopping.keep_workers) == ("extralife restarts itself, which restores: lock", True)
    assert of(decision, commands.EndDaemon) == [commands.EndDaemon(reexec=True)]
    assert core.memory.ended
    assert troubles_view(core.memory) == []


def test_the_alert_of_a_restart_waits_for_the_next_daemon():
    from supervisor.features.alerts.messages import Deliver
    from supervisor.features.alerts.settings import AlertSettings

    core = Core(settings("Pong", alerts=AlertSettings(command=("true",)))).running("Pong")
    decision = looked(core, LOCK)
    assert [(fact.alert, fact.severity) for fact in of(decision, facts.AlertRaised)] == [("foundation", "warning")]
    assert not of(decision, Deliver)


def test_trouble_is_an_alert_at_once_although_that_of_the_restart_was_sent_a_moment_ago():
    from supervisor.features.alerts.settings import AlertSettings

    core = Core(settings("Pong", alerts=AlertSettings(command=("true",)))).running("Pong")
    sent = []
    for findings in ((GONE,), (FAILED,), (FAILED, replace(FAILED, name="boot marker"))):
        sent += [(fact.severity, fact.more) for fact in of(looked(core.later(2.0), *findings), facts.AlertRaised)]
    assert sent == [("warning", 0), ("critical", 0)], "the second critical one is held as any other"
    assert {key: each.count for key, each in core.state.alerts.held.items()} == {"foundation/": 1}


def test_it_does_not_restart_itself_as_long_as_its_start_would_fail():
    core = begun()
    assert not of(looked(core, replace(LOCK, error="another supervisord has locked it")), commands.EndDaemon)
    assert not of(looked(core, replace(LOCK, look=Look.UNKNOWN)), commands.EndDaemon)
    assert len(troubles_view(core.memory)) == 1
    assert of(looked(core, LOCK), commands.EndDaemon)


def test_a_fourth_restart_within_a_minute_waits_for_its_end():
    core = begun()
    core.state = replace(core.state, restarts_s=(core.now_s - 40.0, core.now_s - 20.0, core.now_s - 10.0))
    decision = looked(core, LOCK)
    assert not of(decision, commands.EndDaemon)
    assert "has restarted itself 3 times within a minute" in troubles_view(core.memory)[0]["why"]
    last = looked(core.later(20.0), LOCK)
    assert of(last, commands.EndDaemon)
    assert last.state.restarts_s[1:] == (core.now_s - 30.0, core.now_s)


def test_a_daemon_that_ends_does_not_begin_anew_for_a_file():
    core = begun()
    core.give(Asked(core.now_s, Verb.SHUTDOWN, 1))
    assert not of(looked(core, LOCK), commands.EndDaemon)


def test_a_file_that_comes_and_goes_is_recorded_once_in_ten_minutes_and_again_if_it_stays_away():
    core = begun()
    looked(core, FAILED)
    looked(core.later(2.0))
    assert kinds(looked(core.later(2.0), FAILED)) == []
    assert kinds(looked(core.later(2.0))) == [], "an end without a beginning is not recorded"
    looked(core.later(2.0), FAILED)
    assert kinds(looked(core.later(591.9), FAILED)) == []
    assert [fact.troubled for fact in of(looked(core.later(0.1), FAILED), facts.FoundationLost)] == [True]


def test_alerts_say_trouble_and_its_end():
    from supervisor.features.alerts.messages import WriteAlert

    core = begun()
    told = []
    for findings in ((DEAD,), (), (GONE,), ()):
        told += [(each.notice.kind, each.notice.severity) for each in of(looked(core.later(1.0), *findings), WriteAlert)]
    assert told == [("foundation", "critical"), ("foundation", "info"), ("foundation", "warning")]


def test_what_cannot_be_recorded_is_shown_and_dealt_with_later():
    core = begun()
    item = FoundationsLooked(core.now_s, (DEAD, GONE))
    core.memory = showing(core.memory, item, core.now_s, 1.7e9)
    assert [each["name"] for each in troubles_view(core.memory)] == ["state directory"]
    core.memory = showing(core.memory, FoundationsLooked(core.now_s, (GONE,)), core.now_s + 9.0, 1.7e9)
    assert [each.since_s for each in core.memory.foundations.values()] == [core.now_s], "it stands since it was found"
    decision = looked(core, DEAD, GONE)
    assert [fact.name for fact in of(decision, facts.FoundationLost)] == ["state directory", "control socket"]


def test_what_lies_in_a_directory_that_is_gone_is_not_told_beside_it():
    core = begun()
    lock = replace(LOCK, error="another supervisord has locked it")
    decision = looked(core, DEAD, LOCK)
    assert [fact.name for fact in of(decision, facts.FoundationLost)] == ["state directory"]
    assert not of(decision, commands.EndDaemon)
    looked(core.later(2.0), lock)
    assert core.memory.foundations["lock"].recorded
    again = looked(core.later(2.0), DEAD, lock)
    assert not of(again, facts.FoundationRestored), "it is still gone"
    assert set(core.memory.foundations) == {"state directory", "lock"}
    assert len(showing(core.memory, FoundationsLooked(core.now_s, (DEAD, lock)), 9.0, 1.7e9).foundations) == 1
