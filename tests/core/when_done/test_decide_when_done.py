"""The end of the work, by hand: what is saved, copied and told before the command that stops the box, and what calls it off."""

import time
from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, gpu, gpus, kinds, of, reply, settings, spec

from supervisor.features.alerts.messages import AlertTried, WriteAlert
from supervisor.features.alerts.settings import AlertSettings
from supervisor.features.offsite.messages import Claim, Lease, LeaseFound, OffsiteCopy, OffsiteDone
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.features.when_done.messages import StopBox, WhenDoneEnded
from supervisor.features.when_done.page import costs_for_nothing, when_done_view
from supervisor.features.when_done.settings import BUDGET, CAUSES, DONE, STUCK, WhenDoneSettings
from supervisor.features.when_done.work import saves
from supervisor.model.inputs import Asked, FoundationsLooked, Sampled, Survival, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.settings import Progress
from supervisor.policy.box.foundations import Finding, Look
from supervisor.policy.box.lost_gpu import RETRY_S
from supervisor.policy.box.readings import Gpus, Host
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.worker.restart import RestartSettings

RULES = WhenDoneSettings(("stop-me", "1"), CAUSES, after_s=600.0, timeout_s=300.0)
OFFSITE = OffsiteSettings(repository="/srv/copies", every_s=1e6, forget="off", check="off", late_s=1e6)
PRICE = CostSettings(usd_per_hour=1.2)
LEASE = Lease("a", 1, "ada")


def running(*programs, rules=RULES, **more):
    """These programs run (Pong and Qbert without others), and this box holds the repository where there is one."""
    core = Core(settings(*(programs or ("Pong", "Qbert")), when_done=rules, **more))
    core.begin()
    for name in sorted(core.state.live):
        core.spawned(name)
    core.later(1.0).look(**dict.fromkeys(core.state.live))
    if core.settings.offsite.on:
        core.give(LeaseFound(core.now_s, Claim.HELD, LEASE))
        core.give(OffsiteDone(core.now_s, "look"))
        core.later(60.0).woke()
        core.give(OffsiteDone(core.now_s, "copy", "period", snapshot="abb", as_of_s=core.now_s))
    return core


def done(core, *names):
    for name in names or ("Pong", "Qbert"):
        core.ended(name, code=0)
    return core


def ask(core, do, for_s=None):
    core.request += 1
    return reply(core.give(Asked(core.now_s, Verb.WHEN_DONE, core.request, (), "", "alice", 1000, do, for_s)))[1:]


def copied(core, error="", **more):
    found = {} if error else {"snapshot": "abc", "as_of_s": core.now_s, "steps": {"Pong": 5}, **more}
    return core.give(OffsiteDone(core.now_s, "copy", "done", error, **found))


def ran(core, error="", output=""):
    return core.give(WhenDoneEnded(core.now_s, error, output))


def sessions(core, *names):
    return core.give(Sampled(core.now_s, host=Host(logged_in=names)))


def stops(decision):
    return [each.argv for each in of(decision, StopBox)]


def steps(core):
    return [each.step for each in core.told(facts.WhenDoneStep)]


def line(core, *names):
    memory = Memory(host=Host(logged_in=names)) if names else core.memory
    wall_s = core.wall_offset_s + core.now_s
    return when_done_view(core.state, core.settings, memory, now_s=core.now_s, wall_s=wall_s)["line"]


# --- the steps -----------------------------------------------------------------------------------------------------------


def test_the_last_done_is_followed_by_the_wait_the_copy_the_report_and_the_command():
    core = running(spec("board", progress=Progress.NONE, service=True), "Pong", "Qbert", offsite=OFFSITE, cost=PRICE)
    done(core, "Pong")
    assert steps(core) == [], "Qbert still trains"
    began_s = core.later(2939.0).now_s
    done(core, "Qbert")
    assert steps(core) == ["begin"]
    assert core.last.facts[-1].why == (
        "all is done (Pong, Qbert): this box is stopped in 10m (`extralifectl when-done cancel` keeps it)"
    )
    assert core.wake_at_s == began_s + 600.0
    left = core.later(600.0).woke()
    assert steps(core) == ["begin", "leave"]
    assert [each.program for each in of(left, commands.AskToLeave)] == ["board"]
    assert "it waits for board" in line(core)
    asked = core.later(1.0).ended("board", code=75)
    assert kinds(asked)[-1] == "OffsiteAsked"
    assert of(asked, commands.Spawn) == [], "also a service stays down"
    (copy,) = of(asked, OffsiteCopy)
    assert copy.cause == DONE
    assert "it waits for the copy off the box" in line(core)
    report = copied(core.later(5.0))
    assert steps(core) == ["begin", "leave", "report", "run"]
    assert stops(report) == [("stop-me", "1")]
    told = next(each for each in of(report, facts.WhenDoneStep) if each.step == "report")
    assert told.why == (
        "all is done (Pong, Qbert); $1.20 so far; saved here and off the box as abc: Pong (no known checkpoint), "
        "Qbert (no known checkpoint); this box is now told to stop"
    )
    assert line(core).endswith(": stop-me runs")
    ended = ran(core.later(2.0), output="stopping")
    assert of(ended, facts.WhenDoneStep)[0].why == "stop-me has succeeded: this box should end now; it printed: stopping"
    assert line(core).endswith("stop-me has succeeded, and this box should end now")


def test_without_a_repository_and_with_nothing_to_wait_for_the_command_runs_in_the_turn_of_the_last_end():
    core = running(rules=replace(RULES, after_s=0.0))
    done(core)
    assert stops(core.last) == [("stop-me", "1")]
    assert steps(core) == ["begin", "leave", "report", "run"]
    (report,) = [each.why for each in of(core.last, facts.WhenDoneStep) if each.step == "report"]
    assert report.startswith(
        "all is done (Pong, Qbert); 1s so far; saved on this box only: Pong (no known checkpoint), Qbert"
    )
    assert of(core.last, facts.WhenDoneStep)[0].why.endswith(": this box is stopped now")


def test_the_command_waits_until_the_report_is_accepted_but_not_for_ever():
    rules = replace(RULES, after_s=0.0)
    for accepted in (True, False):
        core = running(rules=rules, alerts=AlertSettings(command=("page-me",), kinds=("reboot",), at_most_per_h=1))
        done(core)
        assert stops(core.last) == []
        (alert,) = core.told(facts.AlertRaised)
        assert (alert.alert, alert.severity) == ("done", "info")
        if accepted:
            sending = core.memory.delivering.reaching["command"].sending
            assert stops(core.later(3.0).give(AlertTried(core.now_s, "command", sending))) == [("stop-me", "1")]
        else:
            assert core.wake_at_s == core.now_s + 30.0
            assert stops(core.to_wake()) == [("stop-me", "1")]


def test_an_end_of_trainings_that_nobody_wants_or_that_are_services_is_no_end():
    core = running(spec("board", progress=Progress.NONE, service=True), "Pong")
    core.ask("stop", "Pong")
    core.ended("Pong", code=75)
    core.ended("board", code=0)
    assert steps(core) == []
    assert line(core) == "no end is near (stop-me waits for: done, stuck, budget)"


def test_what_is_given_up_does_not_keep_the_box_and_is_named():
    core = running()
    core.ended("Pong", code=0)
    core.ended("Qbert", code=78)
    fact = of(core.last, facts.WhenDoneStep)[0]
    assert (fact.cause, fact.why.partition(": ")[0]) == (DONE, "all is done (Pong), except Qbert FATAL")
    core = running()
    core.ended("Pong", code=78)
    core.ended("Qbert", code=78)
    fact = of(core.last, facts.WhenDoneStep)[0]
    assert (fact.cause, fact.why.partition(": ")[0]) == (STUCK, "nothing can go on (Pong FATAL, Qbert FATAL)")
    assert ("done", "warning") in [(c.notice.kind, c.notice.severity) for c in of(core.last, WriteAlert)]


# --- a cause is not ended by the steps towards the command -----------------------------------------------------------------


NO_GPU = Gpus((), "this box has no NVIDIA driver", absent=True)


def without_gpu(when=CAUSES, **more):
    """Pong is DONE, Qbert waits for its lost GPU, and a service runs."""
    board = spec("board", progress=Progress.NONE, service=True)
    programs = (spec("Pong", when_no_gpu="cpu"), spec("Qbert", min_free_mb=1), board)
    core = Core(settings(*programs, when_done=replace(RULES, when=when, after_s=0.0), **more))
    core.begin()
    core.see(NO_GPU)
    for name in ("Pong", "board"):
        core.spawned(name)
    core.later(1.0).look(Pong=None, board=None)
    core.see(NO_GPU)
    core.ended("Pong", code=0)
    return core


@pytest.mark.parametrize("offsite", [True, False])
def test_a_box_without_its_gpu_is_stopped_although_everyone_is_asked_to_leave(offsite):
    core = without_gpu(alerts=AlertSettings(command=("page-me",)), **({"offsite": OFFSITE} if offsite else {}))
    if offsite:
        core.give(LeaseFound(core.now_s, Claim.HELD, LEASE))
        core.give(OffsiteDone(core.now_s, "look"))
    core.ended("board", code=0)
    if offsite:
        copied(core)
    core.give(AlertTried(core.now_s, "command", core.memory.delivering.reaching["command"].sending))
    core.later(30.0).woke()
    assert steps(core) == ["begin", "leave", "report", "run"]
    assert core.phase("Qbert") is Phase.GATED
    assert [each.alert for each in core.told(facts.AlertRaised)].count("done") == 2


def test_a_gpu_that_is_back_calls_the_end_off_also_when_all_have_left():
    core = without_gpu(offsite=OFFSITE)
    core.ended("board", code=0)
    assert core.state.when_done.keeps_down
    back = core.later(60.0).see(gpus(gpu(free_mb=70_000)))
    assert steps(core)[-1] == "call off"
    assert sorted(each.spec.name for each in of(back, commands.Spawn)) == ["Qbert", "board"]


def test_after_a_start_the_end_waits_for_the_first_look_at_the_gpus():
    core = without_gpu(when=(STUCK,))
    core.begin(core.survivor("board", Survival.ALIVE))
    assert steps(core) == ["begin", "leave"]
    again = core.later(1.0).see(NO_GPU)
    assert steps(core) == ["begin", "leave"] * 2
    assert of(again, WriteAlert) == [], "it was reported before the restart"
    core = running("Pong", rules=replace(RULES, after_s=0.0))
    core.look(Pong=None)
    core.settings = replace(core.settings, when_done=replace(RULES, when=(STUCK,), after_s=60.0))
    core.later(9.0).ended("Pong", code=69)
    core.later(30.0).reboot("boot-2")
    assert core.phase("Pong") is Phase.STARTING
    assert steps(core) == ["begin"], "the reboot may have brought the GPU back"


def test_a_worker_that_finds_no_gpu_again_and_again_does_not_keep_the_box():
    core = running("Pong")
    core.later(9.0).ended("Pong", code=69)
    assert steps(core) == ["begin"]
    for _ in range(4):
        core.later(RETRY_S).woke()
        core.spawned("Pong")
        core.later(5.0).ended("Pong", code=69)
    core.later(600.0 - 4 * (RETRY_S + 5.0)).woke()
    assert steps(core) == ["begin", "leave", "report", "run"]
    core = running("Pong")
    core.later(9.0).ended("Pong", code=69)
    core.later(RETRY_S).woke()
    core.spawned("Pong")
    core.look(Pong=None)
    assert steps(core) == ["begin", "call off"], "it trains, so there is a GPU"


def test_a_program_that_dies_the_same_way_again_and_again_is_over_until_it_trains():
    core = running("Pong", restart=RestartSettings(window_deaths=2, slow_retry_s=100.0))
    for _ in range(3):
        assert steps(core) == []
        core.ended("Pong", code=1)
        if core.phase("Pong") is Phase.BACKOFF:
            core.to_wake()
        if core.attempt("Pong").pid is None:
            core.spawned("Pong")
    assert steps(core) == ["begin"], "a trial start is no work yet"
    assert core.last.facts == () or core.phase("Pong") is Phase.STARTING
    core.look(Pong=None)
    assert steps(core) == ["begin", "call off"]


@pytest.mark.parametrize(("ends", "over"), [([1, 1, 1], True), ([1, 1, 2], False), ([(1, 10), (1, 20), (1, 30)], False)])
def test_only_deaths_of_one_kind_without_progress_are_a_dead_end(ends, over):
    core = running("Pong", restart=RestartSettings(window_deaths=2, slow_retry_s=100.0))
    for end in ends:
        code, step = end if isinstance(end, tuple) else (end, None)
        if core.program("Pong").attempt is None:
            core.to_wake()
            core.spawned("Pong")
        core.ended("Pong", code=code, steps=step)
    assert core.program("Pong").retry.slow
    assert core.program("Pong").deaths.is_dead_end is over


def test_new_work_over_the_budget_has_the_whole_wait():
    core = done(running(cost=replace(PRICE, budget_usd=0.1)))
    assert [each.cause for each in core.told(facts.WhenDoneStep)] == [DONE]
    core.later(599.0).ask("start", "Pong")
    assert [each.cause for each in core.told(facts.WhenDoneStep)][-1] == BUDGET
    assert core.wake_at_s == core.now_s + 600.0


# --- what is saved ---------------------------------------------------------------------------------------------------------


def over_budget(**more):
    core = running(rules=replace(RULES, after_s=0.0), cost=replace(PRICE, budget_usd=0.1), **more)
    core.look(Pong={"steps": 900, "ckpt_step": 500, "ckpt_at_s": core.now_s}, Qbert={"steps": 7})
    core.later(300.0).look(Pong={"steps": 1000}, Qbert={"steps": 9})
    assert steps(core) == ["begin", "leave"]
    return core


def test_the_end_of_a_budget_waits_an_hour_for_a_save_and_says_what_is_saved():
    core = over_budget()
    (left,) = [each for each in core.told(facts.WhenDoneStep) if each.step == "leave"]
    assert left.why.endswith("; a save may take 1h, which costs at most $1.20")
    core.later(40.0).ended("Pong", code=75, steps=1000, ckpt_step=1000, ckpt_at_s=core.now_s)
    assert of(core.later(3500.0).woke(), commands.KillTree) == []
    core.ended("Qbert", code=75, steps=9, ckpt_step=9, ckpt_at_s=core.now_s)
    assert steps(core)[-1] == "run"
    (report,) = [each for each in core.told(facts.WhenDoneStep) if each.step == "report"]
    assert "; saved on this box only: Pong (step 1,000, 58m 20s old), Qbert (step 9, 0s old); " in report.why


def test_what_is_killed_before_it_has_saved_keeps_the_box_until_the_operator_says_so():
    core = over_budget()
    core.ended("Pong", code=75, steps=1000, ckpt_step=1000, ckpt_at_s=core.now_s)
    assert [each.program for each in of(core.later(3600.0).woke(), commands.KillTree)] == ["Qbert"]
    refused = core.ended("Qbert", signal=9, steps=9)
    (fact,) = of(refused, facts.WhenDoneStep)
    assert fact.why.startswith(
        "this box is NOT stopped, as Qbert is not saved: killed 1h after the request to save and exit; "
    )
    assert "Qbert NOT saved (killed" in saves(core.state, core.settings, core.now_s)
    assert stops(core.later(7200.0).woke()) == []
    ask(core, "now")
    assert stops(core.last) == [("stop-me", "1")]


def test_a_save_during_which_the_daemon_is_killed_still_has_to_succeed():
    core = over_budget()
    core.later(2.0).begin(*(core.survivor(name, Survival.ALIVE) for name in ("Pong", "Qbert")))
    core.ended("Qbert", code=75)
    core.later(3600.0).woke()
    core.ended("Pong", signal=9)
    assert steps(core) == ["begin", "leave"] * 2 + ["refuse"]


@pytest.mark.parametrize("service", [True, False])
def test_a_process_that_sigkill_does_not_end_holds_up_a_training_only_until_the_operator_says_so(service):
    core = running(spec("hung", progress=Progress.NONE, service=service), "Pong", cost=replace(PRICE, budget_usd=0.1))
    core.later(300.0).woke()
    core.later(600.0).woke()
    core.ended("Pong", code=75)
    while not core.told(facts.NotEnded):
        core.to_wake()
    assert (stops(core.last) == [("stop-me", "1")]) is service
    if not service:
        assert "NOT STOPPED, as hung is not saved: it is alive after 2 SIGKILLs" in line(core)
        ask(core, "now")
        assert stops(core.last) == [("stop-me", "1")]


def test_a_worker_whose_last_save_failed_is_not_saved_and_a_script_that_ends_at_sigterm_never_saves_more():
    core = over_budget()
    core.ended("Pong", code=75, steps=1000, ckpt_step=1000, ckpt_at_s=core.now_s)
    core.ended("Qbert", code=1, steps=9)
    assert core.told(facts.WhenDoneStep)[-1].error == "Qbert is not saved: it exited with code 1"
    core = over_budget()
    core.ended("Pong", signal=15, steps=1000)
    core.later(3600.0).ended("Qbert", signal=9, steps=9, ckpt_step=9)
    assert steps(core)[-1] == "run", "nothing is newer than its checkpoint"


def test_a_spent_budget_lets_all_programs_save_and_exit_and_none_starts_until_it_is_raised():
    cost = replace(PRICE, budget_usd=2.0)
    core = running(rules=replace(RULES, after_s=60.0), cost=cost)
    core.later(2.0 / 1.2 * 3600.0 - 61.0).woke()
    assert steps(core) == []
    core.later(60.0).woke()
    assert steps(core) == ["begin"]
    assert core.last.facts[0].why.startswith("$2.00 of the budget of $2.00 are spent: this box is stopped in 1m")
    left = core.later(60.0).woke()
    assert {each.program for each in of(left, commands.AskToLeave)} == {"Pong", "Qbert"}
    core.ended("Pong", code=75)
    assert (core.phase("Pong"), core.program("Pong").why) == (Phase.QUEUED, "this box is about to be stopped")
    assert of(core.ask("start", "Pong"), commands.Reply)[0].results == (
        ("Pong", 30, "cannot start: this box is about to be stopped; `extralifectl when-done cancel` keeps it"),
    )
    core.ended("Qbert", signal=15)
    assert stops(core.last) == [("stop-me", "1")]
    ran(core, "it ended with status 1")
    loaded = core.load(replace(core.settings, cost=replace(cost, budget_usd=50.0)))
    assert {each.spec.name for each in of(loaded, commands.Spawn)} == {"Pong", "Qbert"}


def test_until_is_a_limit_once_the_clock_is_set():
    limit = CostSettings(until="2027-01-15T09:00:00+01:00")  # the wall clock of these tests begins at 08:00:00Z
    core = Core(settings("Pong", when_done=RULES, cost=limit), wall_offset_s=0.0)
    core.begin()
    assert steps(core) == []
    core = running(cost=limit)
    assert of(core.last, facts.WhenDoneStep) == []
    assert core.told(facts.WhenDoneStep)[0].why.startswith("the time of [cost] until, 2027-01-15T09:00:00+01:00, has passed")


# --- copies --------------------------------------------------------------------------------------------------------------


def past_the_wait(core):
    done(core)
    core.later(600.0).woke()
    return core


def test_without_a_verified_copy_the_command_does_not_run_until_the_operator_says_so():
    core = past_the_wait(running(offsite=OFFSITE))
    failed = copied(core, error="connection refused")
    (fact,) = of(failed, facts.WhenDoneStep)
    assert fact.step == "refuse"
    assert fact.why == (
        "this box is NOT stopped, as no copy off the box is verified: connection refused; it is tried again; "
        "`extralifectl when-done now` stops the box all the same"
    )
    assert ("meter", "critical") in [(c.notice.kind, c.notice.severity) for c in of(failed, WriteAlert)]
    assert "NOT STOPPED, as no copy off the box is verified: connection refused" in line(core)
    again = core.later(60.0).woke()
    assert [each.cause for each in of(again, OffsiteCopy)] == [DONE], "tried again as other copies are"
    assert of(copied(core, error="no route"), facts.WhenDoneStep) == [], "one alert is enough"
    assert ask(core, "now") == (80, "this box is stopped without further waiting")
    assert stops(core.last) == [("stop-me", "1")]
    (report,) = [each.why for each in of(core.last, facts.WhenDoneStep) if each.step == "report"]
    assert "saved on this box only" in report


def test_a_copy_without_a_program_is_no_verified_copy_and_the_next_whole_one_is():
    core = past_the_wait(running(offsite=OFFSITE))
    missed = copied(core, missed={"Pong": "it vanished"})
    assert stops(missed) == []
    assert "not copied: Pong: it vanished" in of(missed, facts.WhenDoneStep)[0].error
    core.later(60.0).woke()
    assert stops(copied(core)) == [("stop-me", "1")]


def test_now_skips_the_wait_but_the_copy_only_after_it_has_failed():
    core = done(running(offsite=OFFSITE))
    assert ask(core, "now")[0] == 80
    assert stops(core.last) == []
    assert [each.cause for each in of(core.last, OffsiteCopy)] == [DONE]
    assert stops(copied(core)) == [("stop-me", "1")]


def test_a_copy_that_somebody_asked_for_comes_first_and_a_check_is_interrupted():
    core = running(offsite=OFFSITE)
    core.give(Asked(core.now_s, Verb.OFFSITE, 90, (), "", "alice", 1000, "check"))
    past_the_wait(core)
    assert [each.urgent for each in of(core.last, OffsiteCopy)] == [True]
    core = running(offsite=OFFSITE)
    core.give(Asked(core.now_s, Verb.OFFSITE, 90, (), "", "alice", 1000, "now"))
    past_the_wait(core)
    assert core.state.offsite.asked == "operator"
    core.give(OffsiteDone(core.now_s, "copy", "operator", snapshot="abb", as_of_s=core.now_s))
    assert core.state.offsite.asked == DONE


def test_the_first_copy_does_not_wait_because_an_earlier_one_had_failed():
    core = running(offsite=replace(OFFSITE, every_s=900.0))
    core.later(900.0).woke()
    core.give(OffsiteDone(core.now_s, "copy", "period", "no route"))
    done(core.later(1.0))
    ask(core, "now")
    assert [each.cause for each in of(core.last, OffsiteCopy)] == [DONE]
    assert steps(core) == ["begin", "now", "leave"]


def test_a_box_that_another_one_has_replaced_is_stuck_and_copies_nothing():
    core = running(offsite=OFFSITE)
    core.give(LeaseFound(core.now_s, Claim.LOST, Lease("b", 2, "bob")))
    for name in ("Pong", "Qbert"):
        core.ended(name, code=75)
    assert steps(core) == ["begin"]
    core.later(600.0).woke()
    assert "box bob has taken over" in of(core.last, facts.WhenDoneStep)[-1].error
    assert stops(core.last) == []
    ask(core, "now")
    assert stops(core.last) == [("stop-me", "1")]


# --- failures ------------------------------------------------------------------------------------------------------------


def test_a_command_that_fails_is_an_alert_and_runs_again_ever_more_rarely():
    core = running(rules=replace(RULES, after_s=0.0))
    done(core)
    for wait_s, alerts in ((60.0, [("meter", "critical")]), (120.0, [])):
        failed = ran(core, "it ended with status 1: no such instance", "no such instance")
        (fact,) = of(failed, facts.WhenDoneStep)
        assert fact.why == "stop-me failed: it ended with status 1: no such instance"
        assert [(c.notice.kind, c.notice.severity) for c in of(failed, WriteAlert)] == alerts
        assert core.wake_at_s == core.now_s + wait_s
        assert "stop-me failed (it ended with status 1: no such instance); this box is stopped in" in line(core)
        assert stops(core.to_wake()) == [("stop-me", "1")]


def test_a_command_that_succeeds_while_the_box_lives_on_has_failed():
    core = running(rules=replace(RULES, after_s=0.0))
    done(core)
    ran(core)
    assert core.wake_at_s == core.now_s + 300.0
    lived = core.to_wake()
    (fact,) = of(lived, facts.WhenDoneStep)
    assert fact.why == "stop-me did not stop this box: this box is still there 5m after its success"
    assert core.wake_at_s == core.now_s + 60.0
    assert stops(core.to_wake()) == [("stop-me", "1")]


def test_new_work_during_the_command_waits_for_its_end():
    core = running(rules=replace(RULES, after_s=0.0))
    done(core)
    assert of(core.ask("start", "Pong"), commands.Spawn) == []
    core.load(replace(core.settings, when_done=replace(RULES, timeout_s=100.0)))
    assert ask(core, "cancel") == (30, "the command runs already")
    begun = ran(core, "it ended with status 1")
    assert [each.spec.name for each in of(begun, commands.Spawn)] == ["Pong"]
    assert steps(core)[-2:] == ["ended", "call off"]
    assert core.state.when_done.failures == 0
    assert of(ran(core), StopBox) == [], "an end of a command that nobody knows changes nothing"
    assert core.state.when_done.succeeded_s is None


# --- restarts ------------------------------------------------------------------------------------------------------------


def test_after_a_restart_of_the_box_the_wait_begins_anew_and_the_command_comes_more_rarely():
    core = running(rules=replace(RULES, after_s=5.0), cost=PRICE)
    done(core)
    core.to_wake()
    ran(core)
    began = core.later(3600.0).reboot("boot-2", down_s=3500.0)
    (fact,) = of(began, facts.WhenDoneStep)
    assert "; stop-me has run, and this box was started again: this box is stopped in 1m" in fact.why
    assert ("done", "warning") in [(c.notice.kind, c.notice.severity) for c in of(began, WriteAlert)]
    assert core.state.when_done.off_s == 3500.0, "nobody paid for the time after the command"
    assert stops(core.later(5.0).woke()) == []
    core.reboot("boot-3", down_s=100.0)
    assert core.state.when_done.off_s == 3600.0
    assert stops(core.to_wake()) == [("stop-me", "1")]


def test_a_daemon_that_is_killed_between_command_and_end_does_not_repeat_it_at_once():
    core = running(rules=replace(RULES, after_s=0.0))
    done(core)
    assert stops(core.later(1.0).begin()) == []
    assert core.wake_at_s == core.now_s + 60.0


def test_a_daemon_that_restarts_itself_every_few_minutes_does_not_keep_the_box():
    core = done(running(rules=replace(RULES, after_s=300.0), cost=PRICE))
    for _ in range(2):
        lost = Finding("lock", "/state/lock", Look.MISSING, restarts=True)
        core.give(FoundationsLooked(core.later(100.0).now_s, (lost,)))
        core.begin()
    assert stops(core.later(101.0).woke()) == [("stop-me", "1")]


def test_programs_that_run_again_after_the_restart_end_it():
    core = running(rules=replace(RULES, after_s=0.0))
    done(core)
    core.settings = settings(spec("Pong", digest="more"), "Qbert", when_done=RULES)
    core.later(60.0).reboot("boot-2")
    assert core.phase("Pong") is Phase.STARTING
    assert steps(core)[-1] == "call off"
    assert core.state.when_done.failures == 0


# --- the operator and new work -------------------------------------------------------------------------------------------


def test_cancel_holds_until_there_is_new_work():
    core = done(running())
    assert ask(core, "cancel") == (80, "this box is not stopped until there is new work")
    assert line(core).endswith("cancelled, so this box is not stopped")
    assert stops(core.later(7200.0).woke()) == []
    core.begin()
    assert stops(core.later(7200.0).woke()) == [], "also over a restart of the daemon"
    core.ask("start", "Pong")
    assert steps(core)[-1] == "call off"
    core.spawned("Pong")
    core.ended("Pong", code=0)
    assert stops(core.later(600.0).woke()) == [("stop-me", "1")]


def test_cancel_at_the_end_of_a_budget_lets_everything_go_on_until_the_work_is_over():
    board = spec("board", progress=Progress.NONE, service=True)
    core = running(board, "Pong", cost=replace(PRICE, budget_usd=0.000001))
    core.later(600.0).woke()
    core.ended("Pong", code=75)
    assert core.phase("Pong") is Phase.QUEUED
    assert ask(core, "cancel") == (80, "the limit in [cost] does not stop this box any more")
    core.later(60.0).begin(core.survivor("Pong", Survival.ALIVE))
    for _ in range(2):
        assert core.phase("Pong") is Phase.STARTING
        assert steps(core)[-1] == "call off"
        core.spawned("Pong")
        done(core, "Pong")
        assert core.told(facts.WhenDoneStep)[-1].cause == DONE
        core.ask("start", "Pong")
    core.load(replace(core.settings, alerts=AlertSettings()))
    assert core.told(facts.WhenDoneStep)[-1].cause == BUDGET, "with other settings it counts again"


def test_delay_counts_before_and_during_an_end_and_ends_with_now():
    core = running()
    assert ask(core, "delay", 7200.0) == (80, "this box is not stopped for 2h")
    done(core)
    assert core.wake_at_s == core.now_s + 7200.0
    assert "this box is stopped in 2h" in line(core)
    ask(core, "delay", 900.0)
    assert core.wake_at_s == core.now_s + 900.0
    ask(core, "now")
    assert stops(core.last) == [("stop-me", "1")]
    ran(core, "it ended with status 1")
    assert core.wake_at_s == core.now_s + 60.0, "the delay from before `now` has no effect"
    core.begin()
    assert core.wake_at_s == core.now_s + 600.0, "nor has it after a restart"


def test_delay_after_cancel_or_now_begins_the_steps_anew():
    core = done(running(offsite=OFFSITE))
    ask(core, "cancel")
    ask(core, "delay", 900.0)
    assert core.wake_at_s == core.now_s + 900.0, "it is not cancelled any more"
    ask(core, "now")
    copied(core, error="no route")
    ask(core, "delay", 900.0)
    assert not core.state.when_done.keeps_down
    core.later(900.0).woke()
    assert [each.cause for each in of(core.last, OffsiteCopy)] == [DONE], "a copy is needed again"


def test_after_the_success_of_the_command_cancel_is_honest_and_now_runs_it_again():
    core = done(running(rules=replace(RULES, after_s=0.0)))
    ran(core)
    assert ask(core, "now")[0] == 80
    assert stops(core.last) == [("stop-me", "1")]
    ran(core)
    assert ask(core, "cancel")[1].endswith("; but its command has succeeded already, so it may end all the same")
    assert stops(core.later(3600.0).woke()) == []


def test_another_configuration_begins_the_wait_anew():
    core = done(running())
    core.later(500.0).load(replace(core.settings, when_done=replace(RULES, after_s=700.0)))
    assert core.wake_at_s == core.now_s + 700.0
    core.load(replace(core.settings, when_done=WhenDoneSettings()))
    assert core.state.when_done.cause == ""
    assert when_done_view(core.state, core.settings, core.memory, now_s=0.0, wall_s=0.0) is None


def test_a_rollback_is_new_work():
    core = done(running())
    core.give(Asked(core.now_s, Verb.ROLLBACK, 7, ("Pong",), "", "alice", 1000, "b1"))
    assert steps(core)[-1] == "call off"


def test_requests_that_cannot_be_met_say_why():
    core = running(rules=WhenDoneSettings())
    assert ask(core, "now") == (30, "no command is configured: set [when_done] command (docs/accounts.md)")
    core = running(rules=replace(RULES, when=(DONE,)))
    assert ask(core, "cancel") == (30, "no end is near: it comes with done")
    core.terminate()
    assert ask(core, "cancel") == (6, "extralife is shutting down")


def test_a_command_that_cannot_be_started_is_named_long_before_the_end():
    core = running()
    core.give(Sampled(core.now_s, host=Host(cannot_stop="/no/such is not found, or not executable")))
    said = "[when_done] CANNOT STOP THIS BOX: /no/such is not found, or not executable; no end is near (stop-me waits for: "
    assert line(core).startswith(said)
    [shown] = costs_for_nothing(core.state, core.settings, core.memory, {"cause": "", "line": line(core)}, wall_s=core.now_s)
    assert shown.startswith(said)


def test_somebody_who_is_logged_in_holds_it_if_that_is_configured():
    for holds in (True, False):
        core = done(running(rules=replace(RULES, hold_while_logged_in=holds)))
        sessions(core.later(599.0), "ada on pts/0")
        assert stops(core.later(1.0).woke()) == ([] if holds else [("stop-me", "1")])
        if holds:
            assert line(core).endswith("this box is stopped once nobody is logged in (ada on pts/0)")
            assert stops(sessions(core.later(60.0))) == [("stop-me", "1")]


# --- the price of a box without work ---------------------------------------------------------------------------------------


def needs(core, cost, line=""):
    wall_s = core.wall_offset_s + core.now_s
    return costs_for_nothing(
        core.state, replace(core.settings, cost=cost), core.memory, {"cause": line, "line": line}, wall_s=wall_s
    )


def test_a_box_without_work_says_since_when_it_costs_money(monkeypatch):
    monkeypatch.setenv("TZ", "UTC-1")
    time.tzset()
    core = running(rules=WhenDoneSettings())
    assert needs(core, PRICE) == []
    done(core, "Pong")
    assert needs(core, PRICE) == []
    done(core, "Qbert")
    assert needs(core, PRICE) == ["all done since 09:00; the box costs $1.20 an hour"]
    assert needs(core, PRICE, "soon") == ["all done since 09:00; the box costs $1.20 an hour; soon"]
    assert needs(core, CostSettings()) == []
    assert needs(core, CostSettings(), "soon") == ["soon"]
    core.later(86_400.0)
    assert needs(core, PRICE) == ["all done since 2027-01-15 09:00; the box costs $1.20 an hour"]
    core = running(rules=WhenDoneSettings())
    core.ask("stop", "Pong", "Qbert")
    assert needs(done(core), PRICE) == ["every program is stopped since 09:00; the box costs $1.20 an hour"]
    waiting = running("Pong", rules=WhenDoneSettings(), restart=RestartSettings(window_deaths=1))
    waiting.ended("Pong", code=1)
    assert needs(waiting, PRICE) == [], "it trained just now"
    assert needs(waiting.later(300.0), PRICE) == ["nothing trains since 09:00; the box costs $1.20 an hour"]
    stuck = running(rules=WhenDoneSettings())
    stuck.ended("Pong", code=78)
    stuck.ended("Qbert", code=0)
    assert needs(stuck, PRICE) == ["nothing can go on since 09:00; the box costs $1.20 an hour"]
    monkeypatch.undo()
    time.tzset()
