"""Alerts: which facts are told, and how what goes out gets to everybody exactly as often as it must."""

import hashlib
from dataclasses import replace

import pytest
from core_kit import Core, facts, gpu, gpus, kinds, of, settings
from fakes import FakeSources
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from supervisor.deciding.alarms import damaged, unwritable
from supervisor.features.alerts.decide import damage_text
from supervisor.features.alerts.messages import AlertTried, Deliver, ReportDue, WriteAlert
from supervisor.features.alerts.page import alerts
from supervisor.features.alerts.record import AlertRecord
from supervisor.features.alerts.rules import Notice
from supervisor.features.alerts.settings import AlertSettings
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold, fold_all
from supervisor.model.inputs import Survival
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory, Trouble
from supervisor.model.settings import Level, Rung
from supervisor.model.state import State
from supervisor.policy.box.prechecks import PrecheckSettings
from supervisor.policy.box.readings import Gpus, Host, Xid
from supervisor.policy.level.load import LoadSettings

RULES = AlertSettings(command=("page-me",))
DAY = 86_400.0


def core_of(*programs, rules=RULES, **more):
    return Core(settings(*(programs or ("Pong",)), alerts=rules, **more))


def tried(core, target="command", error="", id_=None, unsure=False):
    sending = core.memory.delivering.reaching[target].sending if id_ is None else id_
    return core.give(AlertTried(core.now_s, target, sending, error, unsure=unsure))


def told(decision):
    return [(command.notice.kind, command.notice.severity) for command in of(decision, WriteAlert)]


def full(core, name="Pong", at_ns=1, error="OSError: [Errno 28] No space left on device"):
    return core.look(core.report(name, "checkpoint_failed", at_ns, error=error), **{name: None})


# --- what is an alert ------------------------------------------------------------------------------------------------


def test_a_program_that_is_given_up_is_told_in_the_transaction_of_that_fact():
    core = core_of().running("Pong")
    decision = core.ended("Pong", code=78)
    assert kinds(decision)[-2:] == ["GaveUp", "AlertRaised"]
    (raised,) = of(decision, facts.AlertRaised)
    assert (raised.alert, raised.severity, raised.program, raised.targets) == ("fatal", "critical", "Pong", ("command",))
    assert raised.why.startswith("Pong: ")
    (deliver,) = of(decision, Deliver)
    assert (deliver.target, deliver.notice.id, deliver.notice.text) == ("command", raised.id, raised.why)
    assert told(decision) == [("fatal", "critical")]
    assert [each.notice.wall_s for each in of(decision, WriteAlert)] == [core.wall_offset_s + core.now_s]


def test_a_resume_that_finds_nothing_where_there_was_a_checkpoint_is_reported():
    core = core_of().running("Pong")
    core.look(Pong={"steps": 1_000, "ckpt_step": 900, "ckpt_at_s": core.now_s, "ckpt_count": 1})
    core.ended("Pong", signal=9)
    core.spawned("Pong")
    decision = core.later(1.0).look(core.report("Pong", "resumed", step=0), Pong=None)
    (raised,) = of(decision, facts.AlertRaised)
    assert (raised.alert, raised.severity) == ("checkpoint", "critical")
    assert raised.why.startswith("Pong: no checkpoint was found, although there was one at step 900; resumed at step 0")
    assert not core.state.programs["Pong"].ckpt.step, "told once: from here on there is none"


def test_without_a_target_it_goes_to_systemds_journal_alone():
    core = core_of(rules=AlertSettings()).running("Pong")
    decision = core.ended("Pong", code=78)
    assert "AlertRaised" not in kinds(decision)
    assert told(decision) == [("fatal", "critical")]


@pytest.mark.parametrize(("lives_s", "slow"), [(10.0, True), (590.0, False)])
def test_eight_deaths_without_health_are_reported_also_if_they_never_fall_into_an_hour(lives_s: float, slow: bool) -> None:
    core = core_of().running("Pong")
    for death in range(1, 9):
        core.later(lives_s).ended("Pong", signal=9)
        assert (("breaker", "critical") in told(core.last), core.program("Pong").retry.slow) == (
            death == 8,
            slow and death == 8,
        )
        while death < 8 and core.phase("Pong") is Phase.BACKOFF:
            core.to_wake()
        if death < 8:
            core.spawned("Pong")
            core.look(Pong=None)


def test_a_checkpoint_that_cannot_be_written():
    core = core_of("Pong", "Enduro").running("Pong", "Enduro")
    assert told(full(core)) == [("disk", "critical")]
    assert told(full(core, "Enduro", error="PermissionError: [Errno 13]")) == [("checkpoint", "critical")]


def test_a_journal_that_could_not_be_written():
    for error, kind in (("the journal: database or disk is full", "disk"), ("the journal: disk I/O error", "journal")):
        core = core_of().running("Pong")
        core.memory = replace(core.memory, trouble=Trouble(core.now_s, 0.0, error))
        assert told(core.later(60.0).look(Pong=None)) == [(kind, "critical")]
        notice = unwritable(error, 5.0, 6.0)
        text = f"the journal cannot be written ({error}): workers train on, but nothing starts until it can"
        id_ = hashlib.blake2b(b"unwritable/5.0/6.0", digest_size=8).hexdigest()
        assert notice == Notice(id_, kind, "critical", text, 6.0)


def test_gpus():
    core = core_of().running("Pong")
    core.later(1.0).see(gpus(gpu()))
    decision = core.later(1.0).see(gpus(gpu(lost="it has fallen off the bus")))
    assert ("gpu", "critical") in told(decision)
    core = core_of().running("Pong")
    assert told(core.later(1.0).see(gpus_unknown("no driver"))) == [], "a box without a GPU has none to lose"
    core = core_of().running("Pong")
    assert told(core.later(1.0).see(gpus_unknown("hangs", 9.0))) == [("gpu", "critical")]
    core = core_of().running("Pong")
    core.later(1.0).see(gpus(gpu()))
    assert told(core.later(1.0).see(gpus_unknown("driver gone"))) == [("gpu", "critical")]


def gpus_unknown(error, hung_s=None):
    return Gpus(None, error, hung_s)


def test_grave_errors_of_a_gpu():
    core = core_of().running("Pong")
    seen = gpus(gpu(), xids=(Xid(1, 0, 79), Xid(2, 0, 13)))
    assert told(core.later(1.0).see(seen)) == [("gpu", "critical")]


def test_a_full_disk_of_the_box():
    core = core_of(prechecks=PrecheckSettings(disk_free_mb=500)).running("Pong")
    core.later(1.0).see(host=Host(disk_free_bytes=10))
    assert told(core.last) == [("disk", "critical")]


def test_a_reboot_with_what_it_cost():
    core = core_of().running("Pong")
    decision = core.later(60.0).reboot("boot-2", steps={"Pong": 9000}, ckpt_steps={"Pong": 8500}, cause="unclean")
    assert told(decision) == [("reboot", "critical")]
    text = of(decision, facts.AlertRaised)[0].why
    assert "down 1m (test); it was up for " in text
    assert text.endswith("at level light; lost: Pong about 500 steps; resuming: Pong")
    decision = core.later(60.0).reboot("boot-3", cause="orderly", up_s=None, down_s=None)
    assert told(decision) == [("reboot", "info")]
    assert "after ? up" in decision.facts[-1].why or kinds(decision)[-1] == "AlertHeld"


def test_a_box_that_is_another_one_is_a_warning():
    core = core_of().running("Pong")
    core.begin(core.survivor("Pong", Survival.ALIVE), box={"product": "p1", "hostname": "alpha"})
    decision = core.later(60.0).reboot("boot-2", box={"product": "p2", "hostname": "beta"}, cause="unclean")
    assert told(decision)[0] == ("reboot", "warning")
    assert "this is another box than alpha" in of(decision, facts.AlertRaised)[0].why


def test_a_daemon_that_had_not_ended_in_order():
    core = core_of().running("Pong")
    decision = core.later(5.0).begin(core.survivor("Pong", Survival.ALIVE))
    assert told(decision) == [("daemon", "warning")]
    core.ask("shutdown")
    core.ended("Pong", code=75)
    assert told(core.later(5.0).begin()) == [], "this one had"


def test_a_damaged_journal_is_reported_once_by_the_daemon_that_found_it():
    core = core_of().running("Pong")
    core.later(5.0)
    fact = facts.JournalSalvaged("it was damaged", "row 5: bad CRC", "/state/journal.damaged", 40, None)
    stamped = Stamped(0, core.now_s, core.wall_offset_s + core.now_s, core.boot_id, fact)
    core.journal.append(stamped)
    core.state = fold(core.state, stamped)
    decision = core.begin(core.survivor("Pong", Survival.ALIVE))
    assert told(decision) == [("journal", "critical"), ("daemon", "warning")]
    text = of(decision, facts.AlertRaised)[0].why
    assert text == "the journal was damaged (row 5: bad CRC): 40 facts kept, ? lost; it is kept as /state/journal.damaged"
    assert told(core.later(5.0).begin(core.survivor("Pong", Survival.ALIVE))) == [("daemon", "warning")]
    assert damage_text(Core(settings()).state) == ""
    first = core_of()
    first.state = fold(first.state, stamped)
    assert told(first.begin())[0] == ("journal", "critical"), "also where no daemon is on record any more"


def test_a_level_that_a_reboot_has_cost():
    core = climbing()
    core.ask("pin", "heavy")
    core.ask("unpin")
    decision = None
    for number in range(2, 12):
        for name in list(core.state.live):
            core.spawned(name)
        core.later(1.0).look(**dict.fromkeys(core.state.live))
        decision = core.later(300.0).reboot(
            f"boot-{number}", cause="unclean", up_s=300.0, last_sign_s=core.now_s, down_s=5.0
        )
        if ("level", "warning") in told(decision):
            break
    assert ("level", "warning") in told(decision)
    assert core.state.level == "light"


def climbing():
    light, heavy = Level("light", slots=1), Level("heavy", slots=2)
    core = core_of("Pong", "Enduro")
    specs = tuple(replace(spec, own_digest=spec.name) for spec in core.settings.programs)
    ladder = (Rung(light, specs), Rung(heavy, specs))
    core.settings = replace(core.settings, level=light, programs=specs, load=LoadSettings(mode="climb"), ladder=ladder)
    core.begin()
    return core


# --- how it gets there -----------------------------------------------------------------------------------------------


def test_a_daemon_that_was_killed_before_it_arrived_leaves_it_to_the_next():
    core = core_of().running("Pong")
    core.ended("Pong", code=0)
    (first,) = of(core.last, Deliver)
    (again,) = of(core.later(5.0).begin(), Deliver)
    assert again.notice == first.notice, "the same id: who gets it twice can tell"
    tried(core)
    assert core.state.alerts.owed("command")[0].kind == "daemon", "in their order"


def test_a_target_that_fails_is_tried_again_and_told_of_once():
    core = core_of().running("Pong")
    core.ended("Pong", code=0)
    assert kinds(tried(core, error="connection refused")) == ["AlertTargetFailing"]
    assert core.wake_at_s == core.now_s + 15.0
    assert of(core.to_wake(), Deliver)
    assert kinds(tried(core, error="connection refused")) == []
    assert core.wake_at_s == core.now_s + 30.0
    assert of(core.to_wake(), Deliver)
    assert kinds(tried(core)) == ["AlertDelivered"]
    assert core.state.alerts.failing == {}
    assert kinds(tried(core, id_="nobody's")) == [], "an answer that nobody waits for"
    assert kinds(tried(core, target="unheard-of", id_="x")) == []


def test_an_alert_that_may_have_arrived_is_not_sent_again_and_the_next_one_says_so():
    core = core_of("Pong", "Enduro").running("Pong", "Enduro")
    core.ended("Pong", code=0)
    assert kinds(tried(core, error="no answer within 15s", unsure=True)) == ["AlertTargetFailing", "AlertsDropped"]
    assert not core.state.alerts.owed("command")
    assert not of(core.later(900.0).woke(), Deliver)
    (next_one,) = of(core.ended("Enduro", code=0), Deliver)
    assert next_one.notice.dropped == 1


def test_each_target_has_its_own_queue():
    rules = AlertSettings(urls=("ntfy://topic",), command=("page-me",))
    ntfy = rules.targets[0]
    core = core_of("Pong", "Enduro", rules=rules).running("Pong", "Enduro")
    assert {command.target for command in of(core.ended("Pong", code=0), Deliver)} == {ntfy, "command"}
    tried(core, ntfy, error="down")
    tried(core, "command")
    assert [command.target for command in of(core.later(1.0).ended("Enduro", code=0), Deliver)] == ["command"]
    assert [len(core.state.alerts.owed(target)) for target in (ntfy, "command")] == [2, 1]


def test_what_is_too_old_is_dropped_and_the_next_that_arrives_says_so():
    core = core_of("Pong", "Enduro").running("Pong", "Enduro")
    core.ended("Pong", code=0)
    tried(core, error="down")
    assert "AlertsDropped" in kinds(core.later(3 * DAY).woke())
    assert core.state.alerts.queue == ()
    (deliver,) = of(core.ended("Enduro", code=0), Deliver)
    assert deliver.notice.dropped == 1
    tried(core)
    assert core.state.alerts.dropped == {}


def test_the_daily_report_goes_out_once_for_each_of_its_times():
    core = core_of(rules=replace(RULES, report_at="08:00", kinds=("fatal",), min_severity="critical")).running("Pong")
    core.later(100.0)

    def report(due_s, text="Since 08:00: all trained\nnext: \x1b[31mred"):
        return core.give(ReportDue(core.now_s, core.wall_offset_s + due_s, text))

    assert kinds(report(-50.0)) == [], "of a time before the first daemon"
    decision = report(50.0)
    assert kinds(decision) == ["ReportMade", "AlertRaised"]
    (delivered,) = of(decision, Deliver)
    assert delivered.notice.text == "Since 08:00: all trained\nnext: \\x1b[31mred", "its lines stay lines"
    assert told(decision) == [("report", "info")]
    assert kinds(report(50.0)) == kinds(report(-50.0)) == []
    tried(core)
    assert core.state.alerts.queue == ()
    core.begin(salt="again")
    assert "ReportMade" not in kinds(report(50.0)), "the next daemon knows of it"
    assert len(core.told(facts.ReportMade)) == 1
    late = core.later(5 * DAY).give(ReportDue(core.now_s, core.wall_offset_s + 4 * DAY, "x" * 9000))
    assert len(of(late, facts.AlertRaised)[0].why) == 4000
    core.settings = replace(core.settings, alerts=RULES)
    assert kinds(report(5 * DAY)) == [], "it was switched off while one was on its way"


def test_a_target_that_leaves_the_config_is_owed_nothing():
    core = core_of().running("Pong")
    core.ended("Pong", code=0)
    core.load(replace(core.settings, alerts=AlertSettings()))
    assert core.state.alerts.queue == ()
    assert core.told(facts.AlertsDropped)[0].why == "1 alert dropped: command is no longer in the configuration"


def test_the_same_again_is_counted_and_told_as_one():
    core = core_of().running("Pong")
    full(core)
    tried(core)
    for number in range(2, 14):
        core.later(60.0).look(Pong={"ckpt_count": number, "ckpt_step": 100 * number, "ckpt_at_s": core.now_s})
        full(core, at_ns=number)
    assert len(core.told(facts.AlertHeld)) == 12
    assert len(core.told(facts.AlertRaised)) == 1
    began_s = core.now_s - 12 * 60.0
    core.memory = replace(core.memory, watches={})
    while core.wake_at_s is not None and len(core.told(facts.AlertRaised)) == 1:
        core.to_wake()
    assert core.now_s == pytest.approx(began_s + 3600.0, abs=61.0)
    summary = core.told(facts.AlertRaised)[-1]
    assert summary.more == 12
    assert summary.why.startswith("12 alerts of this kind in the last hour, the newest: Pong: ")
    assert core.state.alerts.held == {}


def test_a_stopped_daemon_sends_nothing_more():
    core = core_of().running("Pong")
    core.ask("shutdown")
    decision = core.ended("Pong", code=0)
    assert decision.memory.ended
    assert not of(decision, Deliver)


def test_facts_of_a_journal_that_has_lost_rows_do_no_harm():
    core = core_of().running("Pong")
    lost = [
        facts.AlertDelivered("taken", "nobody's", "command"),
        facts.AlertsDropped("dropped", "command", ("nobody's",)),
        facts.AlertTargetFailing("fails", "command", "down"),
    ]
    assert AlertRecord().after(facts.Stamped(0, 0.0, 0.0, "boot", facts.AlertFact("of a newer kind"))) == AlertRecord()
    state = fold_all((Stamped(0, 1.0, 1.0, "boot-1", fact) for fact in lost), core.state)
    assert (state.alerts.queue, state.alerts.dropped, list(state.alerts.failing)) == ((), {"command": 1}, ["command"])


@limits(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(["alert", "take", "fail", "kill", "wait", "day"]), max_size=30), st.integers(1, 12))
def test_no_alert_is_lost_whatever_happens(story, most):
    """Every alert was delivered, is owed, is counted in one that is, or is told to be dropped; the journal says the same."""
    core = core_of("Pong", rules=replace(RULES, at_most_per_h=most, same_within_s=600.0)).running("Pong")
    number, delivered = 0, []
    for deed in story:
        core.later(7.0)
        if deed == "alert":
            number += 1
            core.look(Pong={"ckpt_count": number, "ckpt_step": 100 * number, "ckpt_at_s": core.now_s})
            full(core, at_ns=number)
        elif (
            deed in {"take", "fail"}
            and core.memory.delivering.reaching.get("command")
            and core.memory.delivering.reaching["command"].sending
        ):
            delivered += [core.memory.delivering.reaching["command"].sending] if deed == "take" else []
            tried(core, error="" if deed == "take" else "down")
        elif deed == "kill":
            core.begin(core.survivor("Pong", Survival.ALIVE))
        elif deed == "wait":
            core.later(900.0).look(Pong=None)
        elif deed == "day":
            core.later(DAY).look(Pong=None)
    record = core.state.alerts
    raised = {fact.id: fact for fact in core.told(facts.AlertRaised)}
    assert len(raised) == len(core.told(facts.AlertRaised)), "no id is given twice"
    dropped = {id_ for fact in core.told(facts.AlertsDropped) for id_ in fact.ids}
    owed = {each.id for each in record.queue}
    assert set(delivered) | dropped | owed == set(raised)
    assert not (set(delivered) & owed)
    held = sum(each.count for each in record.held.values())
    assert held + sum(fact.more for fact in raised.values()) == len(core.told(facts.AlertHeld))


# --- what people see -------------------------------------------------------------------------------------------------


def test_the_page():
    core = core_of("Pong", "Enduro").running("Pong", "Enduro")
    empty = alerts(FakeSources(core.state, core.settings, core.memory, now_s=core.now_s))
    assert (empty["queue"], empty["held"], empty["deliveries"], empty["total"]) == ([], [], [], 0)
    (target,) = empty["targets"]
    assert (target["name"], target["state"], target["waiting"], target["configured"]) == ("command", "idle", 0, True)
    core.ended("Pong", code=0)
    (target,) = alerts(FakeSources(core.state, core.settings, core.memory, now_s=core.now_s))["targets"]
    assert (target["state"], target["waiting"]) == ("sending", 1)
    tried(core, error="down")
    shown = alerts(FakeSources(core.state, core.settings, core.memory, now_s=core.now_s + 5.0))
    left = replace(core.state, alerts=replace(core.state.alerts, queue=()))
    gone = replace(core.settings, alerts=AlertSettings())
    assert alerts(FakeSources(left, gone, core.memory, now_s=core.now_s))["targets"] == [], "it has left the config"
    assert len(alerts(FakeSources(left, None, Memory(), now_s=core.now_s))["targets"]) == 1
    (target,) = shown["targets"]
    assert (target["state"], target["error"], target["retry_in_s"]) == ("failing", "down", 10.0)
    assert shown["queue"][0]["program"] == "Pong"
    core.to_wake()
    tried(core)
    full(core, "Enduro")
    core.later(60.0).look(Enduro={"ckpt_count": 1, "ckpt_step": 100, "ckpt_at_s": core.now_s})
    full(core, "Enduro", at_ns=2)
    shown = alerts(FakeSources(core.state, None, Memory(), now_s=core.now_s))
    assert shown["held"] == [{"kind": "disk", "program": "Enduro", "count": 1, "since_s": 0.0}]
    assert shown["deliveries"][0]["target"] == "command"
    (target,) = shown["targets"]
    assert (target["configured"], target["last_wall_s"] is not None) == (False, True)


def test_a_journal_that_lost_facts_under_a_daemon_is_an_alert_without_a_record():
    notice = damaged("the journal was damaged (cut short): 7 facts were saved, 2 facts are lost", 5.0, 1.7e9)
    assert (notice.kind, notice.severity, notice.wall_s) == ("journal", "critical", 1.7e9)
    assert notice.text.endswith("2 facts are lost")
    assert notice.id != damaged("the same", 6.0, 1.7e9).id


def test_damage_that_left_no_file_says_so():
    fact = facts.JournalSalvaged("it was removed", "it ends at fact 0, and fact 7 had been written", "", 0, 7)
    state = fold(State(), Stamped(1, 1.0, 2.0, "", fact))
    assert damage_text(state).endswith("0 facts kept, 7 lost; the damaged file is gone")
