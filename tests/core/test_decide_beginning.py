"""A daemon's first turn: adoption of what survived, reboots of the host, and the fold that carries it all over."""

import pytest
from core_kit import Core, commands, facts, kinds, of, settings, spec

from supervisor.model.facts import Stamped
from supervisor.model.fold import fold
from supervisor.model.inputs import Survival
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.script.figures import Figures
from supervisor.policy.worker.loss import ABOUT, AT_LEAST, UNKNOWN, Loss
from supervisor.reports.incidents import incidents
from supervisor.reports.status_view import box_view


def test_adopted_between_the_intent_and_the_news_of_its_pid():
    core = Core(settings("Pong"))
    core.begin()
    core.begin(core.survivor("Pong", Survival.ALIVE))
    spawned = core.told(facts.Spawned)[0]
    assert (spawned.pid, spawned.adopted, spawned.start_ticks) == (4242, True, 0)
    assert core.phase("Pong") is Phase.STARTING
    core.later(1.0).look(Pong={})
    assert core.phase("Pong") is Phase.RUNNING


@pytest.mark.parametrize(
    ("survival", "ending", "cause", "counted"),
    [
        (Survival.ENDED, {"signal": 11}, "crash", True),
        (Survival.ENDED, {"code": 0}, "done", False),
        (Survival.ENDED, {}, "lost", True),
        (Survival.VANISHED, {}, "lost", True),
        (Survival.NEVER, {}, "lost", True),  # the journal knows better: it had a pid
        (None, {}, "lost", True),
    ],
)
def test_the_end_of_those_that_died_meanwhile_is_known(survival, ending, cause, counted):
    core = Core(settings("Pong")).running("Pong")
    found = [] if survival is None else [core.survivor("Pong", survival, **ending)]
    core.begin(*found)
    exited = core.told(facts.Exited)[0]
    assert (exited.cause, exited.counted) == (cause, counted)
    assert core.phase("Pong") is (Phase.DONE if cause == "done" else Phase.STARTING)
    if survival in {Survival.VANISHED, None}:
        assert "it ended while no daemon ran" in exited.why


@pytest.mark.parametrize("survival", [Survival.NEVER, None])
def test_intended_but_never_started(survival):
    core = Core(settings("Pong"))
    core.begin()
    token = core.token("Pong")
    core.begin(*([] if survival is None else [core.survivor("Pong", survival)]), salt="other")
    assert core.told(facts.SpawnFailed)[0].why == "the previous daemon ended before it could start the process"
    assert core.phase("Pong") is Phase.STARTING
    assert core.token("Pong") != token
    assert core.program("Pong").deaths.streak == 0


def test_never_started_and_not_wanted_any_more():
    core = Core(settings("Pong"))
    core.begin()
    core.ask("stop", "Pong")
    core.begin(core.survivor("Pong", Survival.NEVER))
    assert core.phase("Pong") is Phase.STOPPED


def test_adopted_but_gone_from_the_config():
    core = Core(settings("Pong", "Qbert")).running("Pong", "Qbert")
    core.settings = settings()
    decision = core.begin(core.survivor("Pong", Survival.ALIVE), core.survivor("Qbert", Survival.ENDED, code=1))
    assert of(decision, commands.Adopt)[0].spec.argv == ()
    assert of(decision, commands.AskToLeave)
    assert core.phase("Pong") is Phase.STOPPING
    assert "Qbert" not in core.state.programs
    core.ended("Pong", code=75)
    assert core.state.programs == {}


def test_adopted_but_changed_in_the_config():
    core = Core(settings("Pong")).running("Pong")
    core.settings = settings(spec("Pong", digest="Pong-2"))
    core.begin(core.survivor("Pong", Survival.ALIVE))
    assert core.phase("Pong") is Phase.STOPPING
    core.ended("Pong", code=75)
    assert core.attempt("Pong").digest == "Pong-2"


# --- reboots --------------------------------------------------------------------------------------------------------------


def rebooted(boot="boot-2", **evidence):
    core = Core(settings(spec("Pong", builtin=True), "Qbert", spec("Enduro", builtin=True), slots=2))
    core.begin()
    core.running("Enduro", "Pong")
    core.look(Pong={"steps": 5000, "ckpt_step": 4000, "ckpt_count": 1})
    core.later(1000.0)
    decision = core.reboot(
        boot, steps={"Pong": 9000, "Enduro": 70}, down_s=95.0, up_s=1010.0,
        last_sign_wall_s=core.wall_offset_s + core.now_s - 100.0, last_sign_s=core.now_s - 100.0, **evidence,
    )  # fmt: skip
    return core, decision


def test_a_reboot_is_nobodys_fault_and_everything_that_ran_resumes():
    core, decision = rebooted()
    assert kinds(decision)[:2] == ["HostRebooted", "DaemonStarted"]
    assert [fact.cause for fact in of(decision, facts.Exited)] == ["reboot", "reboot"]
    assert not any(fact.counted for fact in of(decision, facts.Exited))
    assert sorted(core.state.live) == ["Enduro", "Pong"]
    for name in ("Enduro", "Pong"):
        program = core.program(name)
        assert (program.restarts, program.deaths.streak) == (0, 0)
    assert core.program("Pong").steps == 9000
    assert core.program("Pong").exposure_s == pytest.approx(900.0), "it ran until the last sign of life"
    assert core.state.boots == 2
    assert core.told(facts.DaemonStarted)[-1].why == "started after a host reboot"
    assert core.told(facts.DaemonStarted)[-1].adopted == 0


@pytest.mark.parametrize(
    ("keys", "ending", "evidence", "done"),
    [
        ({}, {"code": 0}, {"kind": "power"}, True),
        ({}, {"code": 0}, {"kind": "container", "cause": "orderly"}, False),  # its shutdown may have asked it to leave
        ({}, {"code": 0}, {}, False),
        ({}, {"code": 0, "shown": Figures(steps=99, target=100)}, {}, True),
        ({}, {"code": 0, "shown": Figures(steps=60, target=100)}, {"kind": "power"}, False),
        ({"progress": Progress.BEAT}, {"code": 0}, {}, True),
        ({"progress": Progress.BEAT}, {"code": 75}, {"kind": "power"}, False),
    ],
)  # fmt: skip
def test_what_finished_before_a_reboot_is_not_started_again(keys, ending, evidence, done):
    core = Core(settings(spec("t", **{"progress": Progress.AUTO, **keys}))).running("t")
    found = core.survivor("t", Survival.ENDED, **ending)
    core.later(60.0)
    decision = core.begin(found, boot="boot-2", rebooted=True, steps={"t": 9}, last_sign_s=core.now_s - 30.0, **evidence)
    assert core.phase("t") is (Phase.DONE if done else Phase.STARTING)
    exited = core.told(facts.Exited)[-1]
    assert (exited.cause, exited.counted, exited.ended_at_s) == ("done" if done else "reboot", False, core.now_s - 30.0)
    (alert,) = of(decision, commands.AlertReboot)
    assert list(alert.losses) == ([] if done else ["t"])


def test_a_container_that_was_started_again_is_told_as_that():
    core, decision = rebooted(boot="boot-1", kind="container")
    assert of(decision, facts.HostRebooted)[0].why == "the container was started again, unclean, down 1m 35s (test)"
    assert {fact.why for fact in of(decision, facts.Exited)} == {"ended by the container's restart"}
    assert core.told(facts.DaemonStarted)[-1].why == "started after the container's restart"
    assert incidents(core.journal)[-1].what == "restart of the container, unclean"


def test_an_end_after_sigterm_is_never_unclean_however_the_time_ran_out():
    core = Core(settings("Pong")).running("Pong")
    core.terminate()
    assert core.state.clean
    assert core.told(facts.DaemonStopping), "it is on record before anything else is done"
    core.later(60.0).begin(core.survivor("Pong", Survival.ENDED, code=None, signal=9))
    assert core.told(facts.DaemonStarted)[-1].clean
    assert not core.told(facts.Exited)[-1].counted


def test_the_alert_tells_what_was_lost_and_what_resumes():
    _, decision = rebooted()
    alert = of(decision, commands.AlertReboot)[0]
    assert alert.number == 1
    assert alert.losses == {"Pong": Loss(5000, bound=ABOUT), "Enduro": UNKNOWN}, (
        "no checkpoint read: there may be a newer one"
    )
    assert alert.resuming == ("Enduro", "Pong")
    assert alert.reboot.why == "the host rebooted, unclean, down 1m 35s (test)"
    _, decision = rebooted(ckpt_steps={"Pong": 8500, "Enduro": 70})
    losses = of(decision, commands.AlertReboot)[0].losses
    assert losses == {"Pong": Loss(500, bound=AT_LEAST), "Enduro": UNKNOWN}, "a sign of life no newer than it: not 0"


def test_the_record_is_the_furthest_that_any_witness_has_seen():
    """The sign of life of a daemon that has just started shows less than the journal."""
    core = Core(settings(spec("Pong", builtin=True))).running("Pong")
    core.look(Pong={"steps": 9_000, "ckpt_step": 8_000, "ckpt_count": 1})
    decision = core.later(5.0).reboot("boot-2", steps={"Pong": 7_000}, ckpt_steps={"Pong": 6_000})
    assert of(decision, commands.AlertReboot)[0].losses == {"Pong": Loss(2_000, bound=AT_LEAST)}
    assert core.program("Pong").steps == 8_000


def test_what_others_have_saved_is_only_known_as_of_the_sign_of_life():
    core = Core(settings("Mine")).running("Mine")
    decision = core.later(5.0).reboot("boot-2", steps={"Mine": 900}, ckpt_steps={"Mine": 700})
    assert of(decision, commands.AlertReboot)[0].losses == {"Mine": Loss(200, bound=ABOUT)}


def test_steps_that_are_on_record_as_lost_are_not_lost_again():
    """The box goes down after a worker has resumed from an older checkpoint, and before the next sign of life."""
    core = Core(settings("Pong")).running("Pong")
    core.ended("Pong", signal=9, steps=9_000, ckpt_step=8_000)
    core.running("Pong")
    mark_at_s = core.now_s
    core.later(1.0).look(core.report("Pong", "resumed", step=8_000), Pong={})
    decision = core.later(1.0).reboot("boot-2", steps={"Pong": 9_000}, ckpt_steps={"Pong": 8_000}, mark_at_s=mark_at_s)
    assert of(decision, commands.AlertReboot)[0].losses == {"Pong": UNKNOWN}
    core.running("Pong")
    core.look(core.report("Pong", "resumed", step=8_000), Pong={})
    assert [fact.lost_steps for fact in core.told(facts.Resumed)] == [1_000, None]
    again = core.later(9.0).reboot("boot-3", steps={"Pong": 8_300}, ckpt_steps={"Pong": 8_000}, mark_at_s=core.now_s)
    assert of(again, commands.AlertReboot)[0].losses["Pong"].steps == 300


def test_lost_work_is_told_again_by_the_worker_that_resumes():
    core, _ = rebooted()
    core.running("Pong")
    core.look(core.report("Pong", "resumed", step=8500), Pong={})
    assert core.told(facts.Resumed)[0].why == "resumed at step 8,500 (last exit: reboot), at least 500 steps lost"


def test_a_reboot_with_nothing_known():
    core = Core(settings("Pong")).running("Pong")
    core.later(100.0)
    ended_s = core.now_s
    core.reboot("boot-2", down_s=None, up_s=None)
    assert core.told(facts.HostRebooted)[0].why.endswith("down unknown (test)")
    assert core.told(facts.Exited)[0].ended_at_s == ended_s
    record = core.state.levels["light"]
    assert (record.reboots, record.uptimes_s, record.up_s) == (1, (), 0.0)


def test_frequent_reboots_are_named_as_a_pattern():
    core = Core(settings("Pong")).running("Pong")
    for number, minutes in enumerate((15, 18, 20, 16), 2):
        decision = core.later(minutes * 60.0).reboot(f"boot-{number}", up_s=minutes * 60.0, cause="unclean")
        core.spawned("Pong")
    (alert,) = of(decision, commands.AlertReboot)
    assert alert.pattern == "4 in 54m, each 15m to 20m after light began"
    shown = box_view(core.state, now_s=core.now_s, boot_at_s=None)
    assert shown["reboot_pattern"] == alert.pattern
    (alert,) = of(core.later(60.0).reboot("boot-6", cause="orderly"), commands.AlertReboot)
    assert alert.pattern.startswith("4 in 54m"), "one that was asked for is no part of it"


def test_an_orderly_reboot_is_not_held_against_the_level():
    core = Core(settings("Pong")).running("Pong")
    core.terminate()
    core.ended("Pong", code=75)
    decision = core.later(60.0).reboot("boot-2", cause="orderly", up_s=500.0)
    record = core.state.levels["light"]
    assert (record.reboots, record.uptimes_s, record.up_s) == (0, (), 500.0)
    assert of(decision, commands.AlertReboot)[0].resuming == ("Pong",)
    assert core.state.reboots[-1].cause == "orderly"


def test_why_the_box_went_down_is_on_record():
    core = Core(settings("Pong")).running("Pong")
    words = ("Kernel panic - not syncing: Fatal exception",)
    core.later(60.0).reboot("boot-2", cause="unclean", kind="panic", last_words=words)
    fact = core.told(facts.HostRebooted)[0]
    assert (fact.end, fact.last_words) == ("panic", words)
    assert fact.why.endswith("unclean: the kernel panicked, down 1m (test)")


# --- fold ----------------------------------------------------------------------------------------------------------------


def test_facts_of_what_is_not_there_change_no_program():
    core = Core(settings("Pong")).running("Pong")
    for fact in (
        facts.Finished("x", "Gone"),
        facts.BecameReady("x", "Gone", "token", 1.0),
        facts.Checkpointed("x", "Pong", "another token", 5, None, None),
        facts.DaemonSuspended("x", 5.0, 9.0),
    ):
        assert fold(core.state, Stamped(1, core.now_s, 1.0, core.boot_id, fact)).programs == core.state.programs


def test_a_checkpoint_of_unknown_step_that_was_set_aside():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"ckpt_step": 5, "ckpt_count": 1})
    fact = facts.CheckpointQuarantined("x", "Pong", "ckpt-?", None)
    program = fold(core.state, Stamped(1, core.now_s, 1.0, core.boot_id, fact)).programs["Pong"]
    assert (program.ckpt.step, program.ckpt.quarantined) == (5, True)
