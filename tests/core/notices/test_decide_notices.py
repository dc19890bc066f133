"""Notices that this box ends, by hand: who saves, when a copy begins, who leaves, and how it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, kinds, of, settings, spec

from supervisor.features.alerts.messages import WriteAlert
from supervisor.features.backups.settings import BackupSettings
from supervisor.features.notices.messages import EndNotice, EndNoticesRead
from supervisor.features.notices.page import notices_view
from supervisor.features.notices.rules import END, RISK
from supervisor.features.offsite.messages import Claim, Lease, LeaseFound, OffsiteCopy, OffsiteDone
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.features.slurm.settings import SLURM, LauncherSettings
from supervisor.model.inputs import Survival, Terminated, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import DaemonSettings, Progress

OFFSITE = OffsiteSettings(repository="/srv/copies", every_s=900.0, timeout_s=600.0)
BACKUP = BackupSettings(calendar="off", before_level=False)
A1, B2 = Lease("a", 1, "ada"), Lease("b", 2, "bob")


def running(*programs, offsite=OFFSITE, **more):
    """Pong saved 300 s ago and takes 3 s for it, Qbert 30 s ago and takes 1 s."""
    core = Core(settings(*(programs or ("Pong", "Qbert")), offsite=offsite, backup=BACKUP, **more))
    core.begin()
    core.running(*(each if isinstance(each, str) else each.name for each in programs or ("Pong", "Qbert")))
    if offsite.on:
        core.give(LeaseFound(core.now_s, Claim.HELD, A1))
        core.give(OffsiteDone(core.now_s, "look", "start"))
        core.later(60.0).woke()
        core.give(OffsiteDone(core.now_s, "copy", "period", "", "abc", core.now_s, took_s=4.0))
    core.later(300.0)
    return core.look(**saved(core)) and core


def saved(core, **at_s):
    usual = {"Pong": (300.0, 3.0), "Qbert": (30.0, 1.0)}
    return {
        name: {
            "ckpt_at_s": at_s.get(name, core.now_s - usual.get(name, (1.0, 1.0))[0]), "ckpt_write_s": usual.get(name, (1.0, 1.0))[1],
            "steps": 100, "ckpt_count": 1,
        }
        for name in core.state.live
    }  # fmt: skip


def aws(core, left_s=120.0, kind=END, id_="aws terminate"):
    return EndNotice(id_, "aws", kind, "spot terminate", None if left_s is None else core.now_s + left_s)


def read(core, *found, **errors):
    return core.give(EndNoticesRead(core.now_s, found, errors))


def asked_to_save(decision):
    return [each.program for each in of(decision, commands.SetControl) if each.save_now and each.leave_by_s is None]


def copies(decision):
    return [(each.cause, each.limit_s, each.urgent) for each in of(decision, OffsiteCopy)]


def done(core):
    return core.give(OffsiteDone(core.now_s, "copy", "notice", "", "abd", core.now_s, took_s=4.0))


def test_two_minutes_are_used_to_the_last_second():
    core = running()
    told = read(core, notice := aws(core))
    (fact,) = of(told, facts.EndAnnounced)
    assert fact.why == "aws announces that this box ends in 2m: spot terminate"
    assert fact.leave_at_s == core.now_s + 120.0 - 3.0 - 6.0 - 5.0, "the longest save, a copy, and five seconds"
    assert asked_to_save(told) == ["Pong", "Qbert"], "who loses most first"
    assert [each.notice.kind for each in of(told, WriteAlert)] == ["notice"]
    assert copies(told) == []
    assert of(told, commands.AskToLeave) == []
    ends = of(told, commands.TellEnd)
    assert [(each.program, each.why) for each in ends] == [("Pong", "aws: spot terminate"), ("Qbert", "aws: spot terminate")]
    assert ends[0].until_wall_s == core.wall_offset_s + notice.until_s
    since_s = core.now_s
    assert copies(core.later(2.0).look(**saved(core, Qbert=since_s + 1.0))) == [], "Pong saves"
    begun = core.later(1.0).look(**saved(core, Pong=since_s + 2.0, Qbert=since_s + 1.0))
    assert copies(begun) == [("notice", 117.0, False)]
    assert kinds(done(core.later(4.0))) == ["OffsiteCopied"]
    assert of(core.later(50.0).woke(), commands.AskToLeave) == [], "it trains on"
    core.now_s = fact.leave_at_s
    leaving = core.woke()
    assert [each.program for each in of(leaving, commands.AskToLeave)] == ["Pong", "Qbert"]
    assert of(leaving, facts.StopIntended)[0].reason == "notice"
    assert of(leaving, facts.StopIntended)[0].grace_s == 8.0, "what is left without the copy"
    core.ended("Pong", code=75)
    last = core.ended("Qbert", code=75)
    assert copies(last) == [("notice", 14.0, False)]
    assert of(last, commands.Spawn) == []
    assert core.phase("Pong") is Phase.QUEUED
    assert core.program("Pong").why == "it waits for the announced end of this box"
    done(core.later(4.0))
    assert copies(core.later(1.0).woke()) == [], "one last copy"


def test_twenty_seconds_leave_no_time_for_a_save_before_everybody_leaves():
    core = running()
    told = read(core, aws(core, 20.0))
    assert asked_to_save(told) == []
    assert [each.program for each in of(told, commands.AskToLeave)] == ["Pong", "Qbert"]
    assert [each.grace_s for each in of(told, facts.StopIntended)] == [14.0, 14.0]
    core.ended("Pong", code=75)
    assert copies(core.ended("Qbert", code=75)) == [("notice", 20.0, False)]


def test_a_time_that_has_passed_gives_a_moment_all_the_same():
    core = running()
    told = read(core, aws(core, -3.0))
    assert [each.grace_s for each in of(told, facts.StopIntended)] == [2.0, 2.0]


def test_a_save_that_does_not_end_does_not_hold_up_the_copy():
    core = running()
    read(core, aws(core))
    core.now_s = core.wake_at_s
    assert [each[0] for each in copies(core.woke())] == ["notice"]


def test_who_cannot_save_is_not_waited_for():
    core = running()
    read(core, aws(core))
    core.later(1.0).ended("Qbert", signal=9)
    failed = core.look(core.report("Pong", "checkpoint_failed", error="disk full"), Pong=saved(core)["Pong"])
    assert [each[0] for each in copies(failed)] == ["notice"]


@pytest.mark.parametrize(("left_meanwhile", "then_asked"), [(False, ["Qbert"]), (True, [])])
def test_with_little_room_the_others_save_after_those_that_lose_most(left_meanwhile, then_asked):
    core = running()
    slow = {"ckpt_write_s": 40.0, "ckpt_count": 1}
    core.later(1.0).look(Pong={"ckpt_at_s": core.now_s - 300.0, **slow}, Qbert={"ckpt_at_s": core.now_s - 30.0, **slow})
    assert asked_to_save(read(core, aws(core))) == ["Pong"]
    if left_meanwhile:
        core.ask(Verb.STOP, "Qbert")
        core.ended("Qbert", code=75)
    qbert = {} if left_meanwhile else {"Qbert": {"ckpt_at_s": core.now_s - 30.0, **slow}}
    then = core.later(5.0).look(Pong={"ckpt_at_s": core.now_s, **slow}, **qbert)
    assert asked_to_save(then) == then_asked
    assert [each[0] for each in copies(then)] == (["notice"] if left_meanwhile else [])


def test_a_copy_that_was_under_way_makes_room_but_not_one_of_the_notice_itself():
    core = running()
    core.later(600.0).woke()
    assert (core.memory.copying.doing, core.memory.copying.cause) == ("copy", "period")
    read(core, aws(core))
    begun = core.later(1.0).look(**saved(core, Pong=core.now_s, Qbert=core.now_s))
    assert [(cause, urgent) for cause, _, urgent in copies(begun)] == [("notice", True)]
    assert copies(core.later(1.0).woke()) == []


def test_a_risk_is_saved_and_copied_and_training_goes_on():
    core = running()
    told = read(core, aws(core, None, RISK, "aws rebalance"))
    (fact,) = of(told, facts.EndAnnounced)
    assert (fact.why, fact.leave_at_s) == ("aws announces that this box may end: spot terminate", None)
    assert asked_to_save(told) == ["Pong", "Qbert"]
    assert of(told, commands.TellEnd) == []
    assert copies(core.later(1.0).look(**saved(core, Pong=core.now_s, Qbert=core.now_s))) == [("notice", 600.0, False)]
    assert of(core.later(500.0).woke(), commands.AskToLeave) == []
    over = read(core)
    assert [each.why for each in of(over, facts.EndCalledOff)] == ["aws no longer announces it: spot terminate"]


def test_an_end_without_a_time_is_copied_and_trained_on():
    core = running()
    told = read(core, aws(core, None))
    assert [each.until_wall_s for each in of(told, commands.TellEnd)] == [None, None]
    assert copies(core.later(1.0).look(**saved(core, Pong=core.now_s, Qbert=core.now_s)))[0][1] == 600.0
    assert of(core.later(5000.0).woke(), commands.AskToLeave) == []
    assert core.reboot("boot-2", last_sign_s=core.now_s - 4000.0).facts[0].cause == "preempted"


def test_a_notice_that_is_withdrawn_starts_everybody_again():
    core = running()
    read(core, aws(core, 20.0))
    core.ended("Pong", code=75)
    core.ended("Qbert", code=75)
    over = read(core)
    assert kinds(over)[0] == "EndCalledOff"
    assert sorted(each.spec.name for each in of(over, commands.Spawn)) == ["Pong", "Qbert"]
    assert core.state.notices.standing == {}


def test_the_file_goes_with_the_notice():
    core = running()
    read(core, aws(core))
    assert of(core.later(1.0).woke(), commands.TellEnd) == [], "told once"
    over = read(core.later(1.0))
    assert [(each.program, each.why) for each in of(over, commands.TellEnd)] == [("Pong", ""), ("Qbert", "")]
    assert core.memory.leaving.end_sent == {}


def test_a_source_that_cannot_be_read_withdraws_nothing():
    core = running()
    notice = aws(core)
    read(core, notice)
    assert kinds(read(core.later(1.0), aws="it has not answered within 2s")) == []
    view = notices_view(core.state, core.memory, now_s=core.now_s)
    assert view == {
        "standing": [
            {
                "source": "aws", "kind": "end", "what": "spot terminate", "wall_s": core.wall_offset_s + core.now_s - 1.0,
                "left_s": 119.0, "leaves_s": 105.0,
            }
        ],
        "errors": {"aws": "it has not answered within 2s"},
    }  # fmt: skip
    core.later(110.0)
    (late,) = notices_view(core.state, core.memory, now_s=core.now_s)["standing"]
    assert (late["left_s"], late["leaves_s"]) == (9.0, 0.0)
    core.now_s -= 110.0
    assert kinds(read(core.later(1.0), notice)) == [], "the same again says nothing new"


def test_a_box_that_is_still_there_goes_on_and_the_same_notice_counts_no_more():
    core = running()
    notice = aws(core, 20.0)
    read(core, notice)
    core.ended("Pong", code=75)
    core.ended("Qbert", code=75)
    done(core)
    assert core.wake_at_s == notice.until_s + 120.0
    over = core.to_wake()
    (fact,) = of(over, facts.EndCalledOff)
    assert fact.passed
    assert sorted(each.spec.name for each in of(over, commands.Spawn)) == ["Pong", "Qbert"]
    assert kinds(read(core.later(1.0), notice)) == []
    assert kinds(read(core.later(1.0))) == ["EndCalledOff"]
    assert [each.notice.kind for each in of(core.last, WriteAlert)] == [], "of one that was over, nobody is told again"
    assert kinds(read(core.later(1.0), aws(core)))[0] == "EndAnnounced"


def test_a_notice_that_is_over_already_is_none():
    core = running()
    assert kinds(read(core, aws(core, -121.0))) == []


def test_a_fenced_box_copies_nothing():
    core = running()
    core.give(LeaseFound(core.now_s, Claim.LOST, B2))
    assert of(read(core, aws(core)), facts.OffsiteAsked) == []


def test_a_script_without_beats_is_told_by_its_file_and_asked_to_leave_in_time():
    core = running(spec("mine", progress=Progress.LOG))
    told = read(core, aws(core))
    assert asked_to_save(told) == []
    assert [each.program for each in of(told, commands.TellEnd)] == ["mine"]
    assert [each[0] for each in copies(told)] == ["notice"], "its files are copied at once"
    core.now_s = of(told, facts.EndAnnounced)[0].leave_at_s
    assert [each.program for each in of(core.woke(), commands.AskToLeave)] == ["mine"]


def test_who_waits_for_a_restart_is_kept_down():
    core = running()
    core.ended("Pong", signal=9)
    core.spawned("Pong")
    core.ended("Pong", signal=9)
    assert core.phase("Pong") is Phase.BACKOFF
    read(core, aws(core, 20.0))
    assert of(core.later(15.0).woke(), commands.Spawn) == []


def test_a_daemon_that_is_killed_meanwhile_begins_again():
    core = running()
    read(core, notice := aws(core))
    again = core.later(2.0).begin(*(core.survivor(name, Survival.ALIVE) for name in ("Pong", "Qbert")))
    assert [each.program for each in of(again, commands.TellEnd)] == ["Pong", "Qbert"]
    core.look(**saved(core))
    assert kinds(read(core.later(1.0), notice)) == []
    core.now_s = core.state.notices.standing[notice.id].leave_at_s
    assert len(of(core.woke(), commands.AskToLeave)) == 2


def test_while_the_daemon_ends_nothing_is_begun():
    core = running()
    core.give(Terminated(core.now_s, "the host's shutdown", host=True))
    told = read(core, aws(core))
    assert asked_to_save(told) == []
    assert of(told, facts.EndAnnounced) != []


# --- SIGTERM of a container ----------------------------------------------------------------------------------------------


def left(decision):
    return [(each.program, each.grace_s) for each in of(decision, facts.StopIntended)]


@pytest.mark.parametrize(("within_s", "graces"), [(0.0, [20.0, 20.0]), (10.0, [9.0, 9.0]), (300.0, [20.0, 20.0])])
def test_all_leave_at_once_if_there_is_time_for_it(within_s, graces):
    core = running(daemon=DaemonSettings(stop_within_s=within_s))
    assert left(core.terminate()) == list(zip(["Pong", "Qbert"], graces, strict=True))


def test_who_loses_most_leaves_first_and_the_copy_has_the_rest():
    core = running(daemon=DaemonSettings(stop_within_s=4.5))
    assert left(core.terminate()) == [("Pong", 3.5)]
    assert core.wake_at_s == core.now_s + 2.25
    assert left(core.later(0.5).woke()) == []
    assert left(core.terminate()) == [], "asked again"
    assert left(core.later(0.5).ended("Pong", code=75)) == [("Qbert", 2.5)]
    assert copies(core.later(0.5).ended("Qbert", code=75)) == [("stop", 2.0, True)]
    assert of(core.later(2.0).woke(), commands.EndDaemon)


def test_who_hangs_does_not_cost_the_others_their_turn():
    core = running(daemon=DaemonSettings(stop_within_s=4.5))
    core.terminate()
    assert left(core.later(2.25).woke()) == [("Qbert", 1.25)]


@pytest.mark.parametrize("orderly", [False, True])
def test_the_end_of_the_box_is_preempted_and_held_against_no_level(orderly):
    core = running()
    read(core, aws(core))
    core.later(119.0)
    cause = "orderly" if orderly else "unclean"
    back = core.later(60.0).reboot("boot-2", cause=cause, last_sign_s=core.now_s - 60.0)
    (fact,) = of(back, facts.HostRebooted)
    assert (fact.cause, fact.why) == ("preempted", "the host ended as aws had announced (spot terminate), down 1m (test)")
    assert core.state.reboots_by_cause == {"preempted": 1}
    assert core.state.levels[core.state.level].reboots == 0
    assert [each.notice.severity for each in of(back, WriteAlert) if each.notice.kind == "reboot"] == ["warning"]
    assert core.state.notices.standing == {}
    assert kinds(read(core, replace(aws(core), until_s=None)))[0] == "EndAnnounced", "another one"


def test_the_same_notice_says_nothing_to_the_box_that_came_back():
    core = running()
    read(core, notice := aws(core))
    core.later(119.0).later(60.0).reboot("boot-2", last_sign_s=core.now_s - 60.0)
    assert kinds(read(core, notice)) == []


def test_an_end_long_after_the_announced_one_is_not_the_announced_one():
    core = running()
    read(core, aws(core))
    back = core.later(5000.0).reboot("boot-2", last_sign_s=core.now_s - 60.0)
    assert of(back, facts.HostRebooted)[0].cause == "unclean"


def test_another_box_that_goes_on_knows_why_the_first_one_ended():
    core = running()
    core.begin(*(core.survivor(name, Survival.ALIVE) for name in ("Pong", "Qbert")), box={"product": "one"})
    core.look(**saved(core))
    read(core, aws(core))
    back = core.later(180.0).reboot("boot-2", last_sign_s=core.now_s - 60.0, box={"product": "two", "hostname": "bob"})
    (fact,) = of(back, facts.HostRebooted)
    assert fact.cause == "preempted"
    assert fact.why.endswith("; aws had announced the end of the other one: spot terminate")
    assert core.state.reboots_by_cause == {"preempted": 1}
    assert core.state.reboots_total == 0, "the record of the new box begins"


def test_the_announced_end_of_this_host_ends_no_job_of_a_cluster():
    core = running(launcher=LauncherSettings(kind=SLURM))
    decision = read(core, aws(core, 30.0))
    assert core.state.notices.end() is not None
    assert asked_to_save(decision) == of(decision, commands.AskToLeave) == of(decision, commands.TellEnd) == []
