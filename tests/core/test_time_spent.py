"""What the core tells of an attempt's time: sparse, and enough."""

from dataclasses import replace

import pytest
from adding_up import account_errors
from core_kit import Core, settings, spec

from supervisor.model import facts
from supervisor.model.inputs import Survival
from supervisor.model.settings import Progress
from supervisor.policy.script.figures import Figures
from supervisor.reports import accounts
from supervisor.reports.ledger import fold_accounts


def tallied(core, name=None):
    return core.told(facts.Tallied, name)


def training(core, since_s=0.0, **more):
    return {"phase_since_s": since_s, "steps_per_s": 100.0, "steps": int(core.now_s * 100), **more}


def trains(**spec_more):
    """Pong, ready at 1 s, at 100 steps a second."""
    core = Core(settings(spec("Pong", **spec_more)))
    core.begin()
    core.spawned("Pong")
    core.later(1.0).look(Pong=training(core, 1.0, steps=100))
    return core


def go_on(core, seconds, period_s=1.0, **more):
    for _ in range(round(seconds / period_s)):
        core.later(period_s)
        core.look(Pong=training(core, **more))
    return core


def test_a_start_is_told_by_its_phases():
    core = Core(settings("Pong"))
    core.begin()
    core.spawned("Pong")
    for at_s, phase, since_s in ((1, "importing", 0.5), (4, "building", 3.0), (9, "restoring", 6.0), (12, "training", 11.0)):
        core.now_s = at_s
        core.look(Pong={"phase": phase, "phase_since_s": since_s, "ready": phase == "training"})
    (told,) = tallied(core)
    assert (told.from_s, told.until_s) == (0.0, 12)
    assert told.seconds == {"starting": 0.5, "importing": 2.5, "building": 3.0, "restoring": 5.0, "training": 1.0}
    assert "restoring 5s" in told.why


def test_hours_of_plain_training_are_told_once_an_hour_and_only_if_there_is_something_to_tell():
    core = go_on(trains(), 2 * 3600.0, 5.0)
    assert tallied(core) == [], "the default says it all"
    core = trains()
    for number in range(1440):  # a save of 4 ms every five seconds: 0.08 %
        core.later(5.0).look(Pong=training(core, ckpt_count=number, ckpt_step=number, ckpt_stall_s=0.004))
    told = tallied(core)
    assert [fact.seconds for fact in told] == [{"training": 3600.0}, {"training": 3600.0}]
    assert [round(fact.ckpt_stall_s, 3) for fact in told] == [2.876, 2.88]
    assert told[0].rate == 100.0
    assert told[0].steps == (1 + 3600) * 100


def test_what_is_worth_it_is_told_every_ten_minutes():
    core = trains()
    for _ in range(30):
        go_on(core, 55.0, 5.0)
        core.later(5.0).look(Pong=training(core, core.now_s - 5.0, phase="evaluating"))
    told = tallied(core)
    assert len(told) == 3
    assert all(600.0 <= fact.until_s - fact.from_s < 610.0 for fact in told)
    assert all(40.0 <= fact.seconds["evaluating"] <= 60.0 for fact in told)
    assert sum(told[0].seconds.values()) == pytest.approx(told[0].until_s - told[0].from_s)


def test_what_follows_the_newest_sign_of_progress_waits_for_another():
    core = go_on(trains(), 30.0)
    stuck_s = core.now_s
    core.watch(
        40.0, Pong={"progress_at_s": stuck_s, "phase": "training", "steps": 3100, "ckpt_count": 1, "ckpt_stall_s": 0.5}
    )
    (told,) = tallied(core)
    assert core.told(facts.Stalled)[0].age_s == pytest.approx(31.0)
    assert (told.from_s, told.until_s, told.seconds) == (1.0, stuck_s, {"training": 30.0})
    core.ended("Pong", signal=9)
    assert len(tallied(core)) == 1, "what was being healed is not the worker's own time"


def test_one_that_is_asked_to_leave_tells_what_it_did_until_then():
    core = go_on(trains(), 10.0)
    core.later(1.0).look(Pong=training(core, core.now_s - 1.0, phase="saving"))
    core.ask("stop", "Pong")
    (told,) = tallied(core)
    assert told.seconds == {"training": 10.0, "saving": 1.0}
    go_on(core, 5.0)
    core.later(60.0)
    core.ended("Pong", code=75)
    assert len(tallied(core)) == 1, "its way out is not its own time"


# --- nobody looks --------------------------------------------------------------------------------------------------------


def adopted(core, away_s=60.0, sign_s=None, known=None, rate=100.0, **seen):
    """Another daemon, after so long; the worker lives. What the first look at it shows."""
    core.now_s += away_s
    before = {} if known is None else {"steps": {"Pong": known}}
    core.begin(core.survivor("Pong", Survival.ALIVE), last_sign_s=sign_s, salt="again", **before)
    core.later(1.0).look(Pong={"phase_since_s": 1.0, "steps_per_s": rate, **seen})
    return tallied(core)[-1]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"steps": 11_000}, {"training": 61.0}),
        ({"steps": 6_200}, {"training": 12.0, "blind": 49.0}),
        ({"steps": 5_000}, {"blind": 61.0}),
        ({"steps": 5_001, "rate": None}, {"training": 61.0}),
        ({"steps": 11_000, "phase": "evaluating", "phase_since_s": 71.0}, {"training": 20.0, "evaluating": 41.0}),
    ],
)
def test_over_a_daemons_death_steps_are_the_proof(seen, expected):
    core = go_on(trains(), 50.0)
    told = adopted(core, sign_s=51.0, known=5_000, **seen)
    assert (told.from_s, told.until_s) == (51.0, 112.0)
    assert told.seconds == pytest.approx(expected)
    assert core.told(facts.DaemonStarted)[-1].last_sign_s == 51.0


def test_without_steps_the_newest_sign_of_progress_is_the_proof():
    core = go_on(trains(), 50.0)
    told = adopted(core, sign_s=51.0, progress_at_s=91.0)
    assert told.seconds == {"training": 40.0, "blind": 21.0}


def test_of_one_that_is_never_judged_being_there_is_proof_enough():
    core = trains(progress=Progress.NONE)
    core.later(50.0)
    told = adopted(core, sign_s=21.0, progress_at_s=None)
    assert told.seconds == {"training": 91.0}


def test_one_that_was_still_starting():
    core = Core(settings("Pong"))
    core.begin()
    core.spawned("Pong")
    told = adopted(core, sign_s=2.0, phase="building", phase_since_s=40.0, ready=False)
    assert told.seconds == {"starting": 38.0, "building": 21.0}
    core = Core(settings("Pong"))
    core.begin()
    core.spawned("Pong")
    told = adopted(core, sign_s=2.0, phase_since_s=40.0)
    assert told.seconds == {"starting": 38.0, "training": 21.0}


def test_an_adopted_worker_that_says_nothing_yet_may_still_prove_itself():
    core = go_on(trains(), 50.0)
    core.now_s += 60.0
    core.begin(core.survivor("Pong", Survival.ALIVE), last_sign_s=51.0, salt="again", steps={"Pong": 5000})
    core.later(1.0).look(Pong={"phase": None, "ready": False, "progress_at_s": None})
    assert tallied(core) == []
    core.later(1.0).look(Pong=training(core))
    assert tallied(core)[0].seconds == {"training": 62.0}
    core.later(1.0).look(Pong={"phase": None, "ready": False, "progress_at_s": None})  # one reading that fails is none


def test_a_daemon_that_stood_still_tells_both_sides_of_it():
    core = go_on(trains(), 50.0)
    core.later(2.0).look(Pong=training(core, core.now_s - 2.0, phase="evaluating"))
    core.later(60.0)
    core.memory = replace(core.memory, overslept_s=60.0)
    core.look(Pong=training(core, steps=11_300))
    before, gap = tallied(core)
    assert (before.seconds, gap.seconds) == ({"training": 50.0, "evaluating": 2.0}, {"training": 60.0})
    assert (before.until_s, gap.until_s) == (gap.from_s, core.now_s)
    assert core.told(facts.DaemonSuspended)
    assert accounts_of(core)["TRAINING"] == 112.0


def accounts_of(core):
    assert account_errors(core.journal, core.now_s) == []
    (pong,) = accounts.summary(fold_accounts(core.journal).closed(core.now_s)).programs
    return {str(account): round(seconds, 6) for account, seconds in pong.seconds.items()}


# --- ends that nobody saw ------------------------------------------------------------------------------------------------


def buried(core, away_s=60.0, sign_s=51.0, known=None, **ending):
    core.now_s += away_s
    steps = {} if known is None else {"steps": {"Pong": known}}
    survivor = core.survivor("Pong", Survival.ENDED, **{"signal": 9, **ending})
    core.begin(survivor, last_sign_s=sign_s, salt="again", **steps)
    return [fact for fact in tallied(core) if fact.from_s >= sign_s]


def test_one_that_died_while_no_daemon_was_there():
    """Its last beat and its exit record say how far it came, and when."""
    core = go_on(trains(), 50.0)
    (told,) = buried(
        core, known=5_100, steps=8_100, ended_at_s=91.0, mean_return=22.0, shown=Figures(values={"mean_return": 3.0})
    )
    assert core.program("Pong").mean_return == 22.0
    assert (told.from_s, told.until_s, told.seconds) == (51.0, 91.0, {"training": 40.0})
    assert core.told(facts.Exited)[-1].ended_at_s == 91.0
    assert accounts_of(core) == {"RESTARTING": 1.0, "TRAINING": 90.0, "DOWN": 20.0}


def test_a_script_without_steps_has_trained_until_its_exit_record_says_so():
    core = go_on(trains(), 50.0)
    (told,) = buried(core, code=0, signal=None, steps=None, ended_at_s=91.0)
    assert (told.from_s, told.until_s, told.seconds) == (51.0, 91.0, {"training": 40.0})


def test_the_output_of_a_run_that_ended_meanwhile_gives_its_steps_and_its_return():
    core = go_on(trains(), 50.0)
    shown = Figures(steps=7_100, values={"mean_return": 21.5})
    (told,) = buried(core, known=5_100, steps=None, shown=shown, ended_at_s=111.0)
    assert (told.seconds, told.steps) == ({"training": 60.0}, 7_100)
    assert core.told(facts.Exited)[-1].mean_return == core.program("Pong").mean_return == 21.5


def test_one_whose_end_proves_nothing():
    core = go_on(trains(), 50.0)
    (told,) = buried(core, steps=None)
    assert told.seconds == {"blind": 60.0}
    assert accounts_of(core) == {"RESTARTING": 1.0, "TRAINING": 50.0, "DOWN": 60.0}


def test_an_end_that_was_heard_of_late():
    """The loop had not looked for a while: of that too only so much is the worker's as its steps prove."""
    core = go_on(trains(), 50.0)
    core.later(100.0)
    core.ended("Pong", signal=9, steps=8_100, ended_at_s=core.now_s - 10.0)
    assert [fact.seconds for fact in tallied(core)] == [{"training": 30.0, "blind": 60.0}]


def test_the_rate_is_remembered_for_what_the_next_reboot_costs():
    core = go_on(trains(), 30.0)
    core.look(core.report("Pong", "resumed", step=0), Pong=training(core))
    core.later(1.0).look(Pong=training(core, core.now_s - 1.0, phase="evaluating"))
    core.ask("restart", "Pong")
    assert core.program("Pong").rate == 100.0
    assert core.program("Pong").steps == 3200
    core.ended("Pong", code=75, steps=3200)
    core.spawned("Pong")
    core.later(5.0).reboot("boot-2", steps={"Pong": 4000}, ckpt_steps={"Pong": 3200})
    from core_kit import commands, of

    from supervisor.policy.worker.loss import ABOUT, Loss

    (alert,) = of(core.last, commands.AlertReboot)
    assert alert.losses == {"Pong": Loss(800, 8.0, 0.2, ABOUT)}
