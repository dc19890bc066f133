"""Starting, dying, coming back: slots, spawns that fail, exits of each cause, backoff, the breaker, poison."""

from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, kinds, of, settings, spec

from supervisor.model.inputs import Ended, Ending, EvidenceTaken, Report, Sampled, SpawnBroke, SpawnSucceeded, Survival
from supervisor.model.lifecycle import Phase
from supervisor.policy.worker.checkpointing import CheckpointSettings
from supervisor.policy.worker.restart import RestartSettings


def test_the_first_start_of_an_empty_state_directory():
    core = Core(settings("Pong", "Qbert", "Breakout"))
    decision = core.begin()
    assert kinds(decision) == [
        "DaemonStarted", "LevelChosen", "ProgramConfigured", "ProgramConfigured", "ProgramConfigured",
        "SpawnIntended", "SpawnIntended",
    ]  # fmt: skip
    assert core.told(facts.DaemonStarted)[0].why == "first start with this state directory"
    assert core.told(facts.DaemonStarted)[0].clean, "there was none before that could have died"
    assert [command.spec.name for command in of(decision, commands.Spawn)] == ["Breakout", "Pong"]
    assert core.phase("Qbert") is Phase.QUEUED
    assert core.state.boots == 1
    assert core.wake_at_s is None, "nothing is due: the processes will tell"


def test_the_controls_are_staggered_and_written_before_the_worker_can_read_them():
    core = Core(settings("Breakout", "Pong", slots=2, checkpoint=CheckpointSettings(first_s=60.0)))
    decision = core.begin()
    controls = of(decision, commands.SetControl)
    assert [(c.program, c.interval_s, c.offset_s) for c in controls] == [("Breakout", 60.0, 0.0), ("Pong", 60.0, 30.0)]


def test_tokens_differ_by_program_attempt_boot_and_daemon():
    def first(**more):
        core = Core(settings("Breakout", "Pong"))
        core.begin(**more)
        return core

    core, tokens = first(), set()
    tokens |= {core.token("Pong"), core.token("Breakout"), first(salt="other").token("Pong"), first(boot="b").token("Pong")}
    core.running("Pong").ended("Pong", signal=9)
    tokens.add(core.token("Pong"))
    assert len(tokens) == 5
    assert all(len(token) == 32 and int(token, 16) >= 0 for token in tokens)


def test_a_fork_that_fails_is_tried_again_ever_more_slowly_and_nothing_is_held_against_the_program():
    core = Core(settings("Pong"))
    core.begin()
    delays = []
    for _ in range(12):
        delays.append(of(core.broke("Pong"), facts.BackedOff)[0].delay_s)
        assert core.phase("Pong") is Phase.BACKOFF
        assert "Resource temporarily unavailable" in core.program("Pong").why
        core.to_wake()
        assert core.phase("Pong") is Phase.STARTING
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert (core.program("Pong").deaths.streak, core.program("Pong").restarts) == (0, 0)
    core.running("Pong").ended("Pong", signal=9)
    core.broke("Pong")
    assert core.told(facts.BackedOff)[-1].delay_s == 1, "a start that worked ended that row"


# --- spawns that fail --------------------------------------------------------------------------------------------------


def test_a_spawn_that_can_never_work_is_given_up_until_something_changes():
    core = Core(settings("Pong"))
    core.begin()
    decision = core.broke("Pong", error="/no/such/python: no such file", permanent=True)
    assert kinds(decision) == ["SpawnFailed", "GaveUp"]
    assert of(decision, commands.Forget)
    assert core.phase("Pong") is Phase.FATAL
    assert "no such file" in core.program("Pong").why
    assert core.wake_at_s is None
    core.ask("start", "Pong")
    assert core.phase("Pong") is Phase.STARTING


def test_a_program_that_is_never_restarted_has_exited_when_it_fails_and_needs_its_operator():
    from supervisor.features.alerts.messages import WriteAlert

    core = Core(settings(spec("Pong", restart="never"))).running("Pong")
    decision = core.ended("Pong", code=7)
    assert kinds(decision)[:2] == ["Exited", "NotRestarted"]
    assert [each.notice.kind for each in of(decision, WriteAlert)] == ["fatal"]
    core.later(1e6).woke()
    assert core.phase("Pong") is Phase.EXITED
    core.load(settings(spec("Pong", restart="never", digest="corrected")))
    assert core.phase("Pong") is Phase.STARTING


def test_a_command_that_is_gone_although_it_has_run_is_tried_again():
    """Its disk is mounted late after a reboot, or its environment is being installed again."""
    from supervisor.features.alerts.messages import WriteAlert

    core = Core(settings("Pong")).running("Pong")
    core.later(60.0).reboot("boot-2")
    alerts = []
    for _ in range(8):
        alerts += of(core.broke("Pong", error="no such file: '/data/venv/bin/python'", permanent=True), WriteAlert)
        assert core.phase("Pong") is Phase.BACKOFF
        core.to_wake()
    assert [each.notice.kind for each in alerts] == ["breaker"], "once, and not for a mount that is only slow"
    assert alerts[0].notice.text.endswith("python'; it ran before, so it is tried again")
    core.running("Pong")
    assert core.phase("Pong") is Phase.RUNNING


def test_a_command_that_is_gone_is_given_up_where_another_one_has_run():
    from supervisor.features.alerts.messages import WriteAlert

    core = Core(settings("Pong")).running("Pong")
    core.load(settings(spec("Pong", digest="with a typo")))
    core.ended("Pong", code=0)
    decision = core.broke("Pong", error="no such file: '/data/venv/bin/pyhton'", permanent=True)
    assert core.phase("Pong") is Phase.FATAL
    assert [each.notice.kind for each in of(decision, WriteAlert)] == ["fatal"]


@pytest.mark.parametrize(("verb", "after"), [("stop", Phase.STOPPED), ("restart", Phase.STARTING)])
def test_a_spawn_that_breaks_after_it_was_asked_to_stop(verb, after):
    core = Core(settings("Pong"))
    core.begin()
    core.ask(verb, "Pong")
    decision = core.broke("Pong")
    assert core.phase("Pong") is after
    assert of(decision, commands.Reply)[0].results[0][:2] == ("Pong", 80)


def test_a_spawn_that_breaks_after_its_program_left_the_config():
    core = Core(settings("Pong"))
    core.begin()
    core.load(settings())
    core.broke("Pong")
    assert core.state.programs == {}


def test_asked_to_stop_while_it_was_being_started():
    core = Core(settings("Pong"))
    core.begin()
    core.ask("stop", "Pong")
    decision = core.spawned("Pong")
    assert of(decision, commands.AskToLeave)
    assert core.phase("Pong") is Phase.STOPPING


def test_what_comes_late_of_an_attempt_that_is_over_changes_nothing():
    core = Core(settings("Pong")).running("Pong")
    old = core.token("Pong")
    core.ended("Pong", signal=9)
    before = core.state
    for item in (
        Ended(core.now_s, "Pong", old, Ending(code=0)),
        SpawnSucceeded(core.now_s, "Pong", old, 1, 1, 1, 1),
        SpawnBroke(core.now_s, "Pong", old, "late"),
        EvidenceTaken(core.now_s, "Pong", old, {}),
        Sampled(core.now_s, {"Pong": replace(core.sample("Pong"), token=old)}, (("Pong", old, Report("resumed", {"step": 9})),)),
        Ended(core.now_s, "Nobody", old, Ending(code=0)),
    ):  # fmt: skip
        decision = core.give(item)
        assert decision.facts == ()
        assert decision.state == before


# --- exits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "cause", "phase"),
    [
        ({"code": 0}, "done", Phase.DONE),
        ({"code": 1, "last_lines": ("RuntimeError: x",)}, "crash", Phase.STARTING),
        ({"signal": 9}, "killed", Phase.STARTING),
        ({"signal": 11}, "crash", Phase.STARTING),
        ({"code": 75}, "left", Phase.STARTING),
        ({"code": 77}, "fenced", Phase.STARTING),
        ({"code": 78, "last_lines": ("no game 'Pung'",)}, "config", Phase.FATAL),
        ({"fate": "its shim vanished"}, "lost", Phase.STARTING),
    ],
)
def test_exits(ending, cause, phase):
    core = Core(settings("Pong")).running("Pong")
    decision = core.later(100.0).ended("Pong", **ending)
    exited = of(decision, facts.Exited)[0]
    assert exited.cause == cause
    assert core.phase("Pong") is phase
    assert core.program("Pong").restarts == (phase is Phase.STARTING)
    assert of(decision, commands.Forget)
    assert exited.last_lines == ending.get("last_lines", ())
    assert core.program("Pong").exposure_s == 100.0


def test_leftover_processes_and_files_are_told():
    core = Core(settings("Pong")).running("Pong")
    left = ("7 sleep", "8 sleep", "9 sh", "/dev/shm/nccl-1 (8192 bytes)")
    why = of(core.ended("Pong", code=1, leftovers=left), facts.Exited)[0].why
    assert why.endswith("; 3 leftover processes ended; 1 leftover file in /dev/shm removed")


def die(core, name="Pong", **ending):
    core.spawned(name)
    return core.ended(name, **(ending or {"code": 1}))


def test_the_breaker_opens_hands_the_slot_on_and_only_health_closes_it():
    core = Core(settings("Pong", spec("Qbert", priority=200), slots=1, restart=RestartSettings(max_delay_s=30.0)))
    core.begin()
    for _ in range(7):
        die(core)
        assert core.phase("Qbert") is Phase.QUEUED, "a slot is kept for half a minute"
        if core.phase("Pong") is not Phase.STARTING:
            core.to_wake()
    die(core)
    program = core.program("Pong")
    assert (program.phase, program.retry.slow, program.deaths.openings) == (Phase.BACKOFF, True, 1)
    assert program.retry.at_s == core.now_s + 1800.0
    assert core.phase("Qbert") is Phase.STARTING, "a slot is not kept for half an hour"
    core.running("Qbert")
    core.to_wake()
    assert core.phase("Pong") is Phase.QUEUED, "due, but the slot is taken now"
    assert core.program("Pong").deaths.openings == 1, "waiting in the queue is not health"
    core.ended("Qbert", code=0)
    die(core)
    assert core.told(facts.BackedOff)[-1].delay_s == 3600.0
    core.to_wake()
    core.running("Pong")
    told = core.watch(700, Pong={})
    assert [type(fact).__name__ for fact in told if isinstance(fact, facts.Recovered)] == ["Recovered"]
    program = core.program("Pong")
    assert (program.deaths.streak, program.deaths.openings, program.deaths.at_s, program.retry.slow) == (0, 0, (), False)
    core.ended("Pong", signal=9)
    assert core.phase("Pong") is Phase.STARTING, "at once, as if it had never died"


def test_forgiveness_is_for_progress_not_for_being_alive():
    core = Core(settings("Pong", "Qbert")).running("Pong", "Qbert")
    for name in ("Pong", "Qbert"):
        core.ended(name, signal=9)
    core.running("Pong", "Qbert")
    stuck_at_s = core.now_s + 500
    evaluating = {"phase": "evaluating", "progress_at_s": lambda now_s: min(now_s, stuck_at_s)}
    core.watch(700, Pong={}, Qbert=evaluating)
    assert core.program("Pong").deaths.streak == 0
    assert core.program("Qbert").deaths.streak == 1
    assert len(core.told(facts.Recovered)) == 1


# --- slots -------------------------------------------------------------------------------------------------------------


def test_slots_go_by_priority_then_by_waiting():
    core = Core(settings(spec("C", priority=1), "B", "A", slots=1))
    core.begin()
    order = []
    for _ in range(3):
        name = next(iter(core.state.live))
        order.append(name)
        core.running(name).ended(name, code=0)
    assert order == ["C", "A", "B"]


def test_fewer_slots_shed_the_least_important_and_more_bring_it_back():
    core = Core(settings("Pong", spec("Qbert", priority=200), spec("Seaquest", priority=50), slots=3))
    core.begin()
    core.running("Pong", "Qbert", "Seaquest")
    decision = core.load(replace(core.settings, level=replace(core.settings.level, slots=1)))
    assert sorted(fact.program for fact in of(decision, facts.StopIntended)) == ["Pong", "Qbert"]
    assert all(fact.reason == "slot" for fact in of(decision, facts.StopIntended))
    assert core.woke().facts == (), "asked once"
    for name in ("Qbert", "Pong"):
        core.ended(name, code=75)
        assert core.phase(name) is Phase.QUEUED
        assert core.program(name).restarts == 0
    assert core.phase("Seaquest") is Phase.RUNNING
    core.load(replace(core.settings, level=replace(core.settings.level, slots=2)))
    assert core.phase("Pong") is Phase.STARTING
    assert core.phase("Qbert") is Phase.QUEUED


def test_fewer_slots_shed_those_of_a_priority_that_can_resume_first():
    core = Core(settings("Pong", "Qbert", spec("script", follows_level=False), slots=2))
    core.begin()
    core.running("Pong", "Qbert").ended("Pong", code=0)
    core.running("script")
    core.load(replace(core.settings, level=replace(core.settings.level, slots=1)))
    assert [fact.program for fact in core.told(facts.StopIntended)] == ["Qbert"], "and not the script, which began later"


# --- checkpoints and reports --------------------------------------------------------------------------------------------


def resume(core, step, name="Pong"):
    return core.look(core.report(name, "resumed", at_ns=step, step=step), **{name: {}})


def test_resumed_tells_what_was_lost():
    core = Core(settings("Pong")).running("Pong")
    resume(core, 0)
    assert core.told(facts.Resumed)[0].why == "begins at step 0"
    assert core.told(facts.Resumed)[0].lost_steps is None, "nothing was known before: not 0"
    core.later(1.0).look(Pong={"steps": 90_000, "steps_per_s": 500.0})
    core.ended("Pong", signal=9, steps=90_000, ckpt_step=80_000)
    core.running("Pong")
    resume(core, 80_000)
    resumed = core.told(facts.Resumed)[1]
    assert (resumed.lost_steps, resumed.lost_s, resumed.cause) == (10_000, 20.0, "killed")
    assert resumed.why == "resumed at step 80,000 (last exit: killed), 10,000 steps lost (20s, 11.1 % of the attempt)"
    resume(core, 80_000)
    assert len(core.told(facts.Resumed)) == 2, "each report counts once"


def test_without_a_last_beat_it_was_where_it_was_last_seen():
    """Its beat was on a tmpfs that is gone: not 0, and not exact either."""
    core = Core(settings("Pong")).running("Pong")
    resume(core, 0)
    core.later(1.0).look(Pong={"steps": 9_000})
    core.ended("Pong", signal=9, ckpt_step=8_000)
    exited = core.told(facts.Exited)[0]
    assert (exited.steps, exited.at_least) == (9_000, True)
    core.running("Pong")
    core.ended("Pong", signal=9)  # before it had restored anything: what is known of the one before stays
    core.to_wake()
    core.running("Pong")
    resume(core, 8_000)
    assert core.told(facts.Resumed)[-1].why.endswith(
        " (last exit: killed), at least 1,000 steps lost (11.1 % of the attempt)"
    )
    assert core.told(facts.Resumed)[-1].lost_share == pytest.approx(1_000 / 9_000)
    core.ended("Pong", signal=9)
    core.to_wake()
    core.running("Pong")
    resume(core, 8_000)
    assert core.told(facts.Resumed)[-1].lost_steps is None, "nobody saw it train"


@pytest.mark.parametrize("step", ["nonsense", -1, None, 2**64, True])
def test_a_resume_at_no_step_claims_nothing(step):
    core = Core(settings("Pong")).running("Pong")
    core.look(core.report("Pong", "resumed", step=step), Pong={"steps": 500})
    assert not core.told(facts.Resumed), "step 0 would be the loss of everything"
    assert core.told(facts.Reported)[0].kind == "resumed"


def test_a_start_from_scratch_is_reported_never_silent():
    core = Core(settings("Pong")).running("Pong")
    core.look(core.report("Pong", "from_scratch", reason="every checkpoint is damaged", step="nonsense"), Pong={})
    assert core.told(facts.Resumed)[0].step == 0
    assert core.told(facts.Reported)[0].text == "reason: every checkpoint is damaged, step: nonsense"


def test_reports_count_once_over_looks_ends_and_daemons():
    core = Core(settings("Pong")).running("Pong")
    line = core.report("Pong", "save_failed", at_ns=5, error="ENOSPC")
    bad = core.report("Pong", "checkpoint_bad", at_ns=6, path="ckpt-5.ab.bad", error="digest")
    core.look(line, bad, line, Pong={})
    core.look(line, Pong={})
    core.begin(core.survivor("Pong", Survival.ALIVE))
    core.look(line, bad, Pong={})
    core.ended("Pong", signal=9, reports=(line[2], bad[2], Report("save_failed", {"at_ns": 9, "error": "ENOSPC"})))
    assert [fact.text for fact in core.told(facts.Reported)] == ["error: ENOSPC"] * 2
    assert len(core.told(facts.CheckpointBad)) == 1
    assert core.program("Pong").ckpt.bad == ("ckpt-5.ab.bad",)


def test_a_client_that_resumes_again_within_its_attempt_has_lost_the_steps_between():
    core = Core(settings("Pong")).running("Pong")
    first, again = (core.report("Pong", "resumed", at_ns=at_ns, step=4000) for at_ns in (1, 2))
    core.look(first, Pong={"steps": 4000})
    core.later(10.0).look(Pong={"steps": 5003, "steps_per_s": 100.0})
    core.later(1.0).look(again, Pong={})  # the new process has not shown a step yet
    lost = core.told(facts.Resumed)[-1]
    assert lost.why == (
        "restarted within the attempt: from step 5,003 to 4,000, at least 1,003 steps lost (10s, 100.0 % of the attempt)"
    )
    assert (core.program("Pong").steps, core.program("Pong").counts.lost_steps) == (4000, 1003)
    core.later(5.0).look(Pong={"steps": 4200})
    core.begin(core.survivor("Pong", Survival.ALIVE))
    core.look(first, again, Pong={"steps": 4201})
    core.ended("Pong", signal=9, steps=4201, reports=(first[2], again[2]))
    assert len(core.told(facts.Resumed)) == 2, "each report counts once"


def test_each_attempt_of_a_program_that_only_notifies_has_saved_although_facts_are_seldom():
    core = Core(settings("Pong"))
    for first in (100, 200):
        core.running("Pong").look(Pong={"steps": first})
        core.later(5.0).look(Pong={"steps": first + 50, "ckpt_step": first + 50, "ckpt_count": 1})
        core.ended("Pong", code=1)
        assert core.told(facts.Exited)[-1].saved


def test_a_second_report_without_a_step_between_is_no_loss():
    core = Core(settings("Pong")).running("Pong")
    for at_ns in (1, 2):  # a script that restores twice
        core.look(core.report("Pong", "resumed", at_ns=at_ns, step=4000), Pong={"steps": 4000})
    assert len(core.told(facts.Resumed)) == 1


def test_ranks_that_restarted_while_no_daemon_looked_have_lost_what_is_known():
    core = Core(settings("Pong")).running("Pong")
    first, again = core.report("Pong", "resumed", at_ns=1, step=4000), core.report("Pong", "from_scratch", at_ns=2)
    core.look(first, Pong={"steps": 4000})
    core.later(700.0).look(Pong={"steps": 5000, "ckpt_step": 5000, "ckpt_count": 1})
    core.begin(core.survivor("Pong", Survival.ALIVE))
    core.look(first, again, Pong={})
    assert [(fact.step, fact.lost_steps, fact.at_least) for fact in core.told(facts.Resumed)[1:]] == [(0, 5000, True)]


def test_a_worker_that_reports_in_a_loop_does_not_fill_the_journal():
    core = Core(settings("Pong")).running("Pong")
    for at_ns in range(500):
        core.look(core.report("Pong", "noise", at_ns=at_ns), Pong={})
    assert len(core.told(facts.Reported)) == 50


def test_checkpoint_facts_are_limited_and_never_go_back():
    core = Core(settings("Pong")).running("Pong")
    core.watch(3000, period_s=5.0, Pong={"ckpt_step": int, "ckpt_count": 1, "ckpt_stall_s": 0.004})
    steps = [fact.step for fact in core.told(facts.Checkpointed)]
    assert len(steps) == 5
    assert steps == sorted(set(steps))
    newest = core.program("Pong").ckpt.step
    core.later(100.0).look(Pong={"ckpt_step": 7, "ckpt_count": 1})
    core.later(100.0).look(Pong={"ckpt_step": 10**9, "ckpt_count": 0})
    core.ended("Pong", signal=9, ckpt_step=7)
    assert core.program("Pong").ckpt.step == newest


def test_the_age_of_a_checkpoint_goes_with_its_step():
    """The step was taken from the exit, the time from the checkpoint before it."""
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"ckpt_step": 100, "ckpt_count": 1})
    core.later(500.0)
    core.ended("Pong", signal=9, ckpt_step=190, ckpt_at_s=core.now_s - 20.0, steps=200)
    program = core.program("Pong")
    assert (program.ckpt.step, program.ckpt.at_s, program.steps) == (190, core.now_s - 20.0, 200)
    core.running("Pong").ended("Pong", signal=9, ckpt_step=190, ckpt_at_s=core.now_s - 30.0)
    assert core.program("Pong").ckpt.at_s == core.now_s - 30.0, "the same one, and now its time is known better"
    core.to_wake()
    core.running("Pong").ended("Pong", signal=9, ckpt_step=260)
    assert (core.program("Pong").ckpt.step, core.program("Pong").ckpt.at_s) == (260, None), "unknown: not the older one's"
    core.to_wake()
    core.running("Pong").ended("Pong", signal=9, ckpt_step=260)
    assert core.program("Pong").ckpt.at_s is None


def test_an_exit_that_is_dated_in_the_future_ended_now():
    """A shim's clock is ours; a record that was damaged or copied from another boot must not end an attempt tomorrow."""
    core = Core(settings("Pong")).running("Pong")
    core.later(100.0)
    core.ended("Pong", signal=9, ended_at_s=core.now_s + 5_000.0)
    assert core.told(facts.Exited)[0].ended_at_s == core.now_s
    assert core.program("Pong").exposure_s == 100.0
    core.running("Pong")
    began_s = core.attempt("Pong").intended_at_s
    core.later(9.0).ended("Pong", signal=9, ended_at_s=began_s - 5_000.0)
    assert core.told(facts.Exited)[1].ended_at_s == began_s, "nor before it began"


def test_a_damaged_newest_checkpoint_does_not_hide_the_newer_ones_after_it():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"ckpt_step": 80_000, "ckpt_count": 1})
    core.ended("Pong", signal=9)
    core.running("Pong")
    resume(core, 60_000)
    assert core.program("Pong").ckpt.step == 60_000, "the worker takes the newest that is whole"
    assert core.program("Pong").ckpt.at_s is None
    core.later(1.0).look(Pong={"ckpt_step": 61_000, "ckpt_count": 1})
    assert core.told(facts.Checkpointed)[-1].step == 61_000


def poisoned(core, step=80_000):
    for _ in range(3):
        if core.phase("Pong") is Phase.BACKOFF:
            core.to_wake()
        core.running("Pong")
        resume(core, step)
        decision = core.ended("Pong", code=1)
    return decision


def test_a_checkpoint_that_kills_three_times_is_set_aside_and_the_one_before_is_tried():
    core = Core(settings("Pong"))
    core.begin()
    decision = poisoned(core)
    assert [fact.step for fact in of(decision, facts.CheckpointQuarantined)] == [80_000]
    assert [command.step for command in of(decision, commands.QuarantineCheckpoint)] == [80_000]
    assert core.program("Pong").ckpt.step is None
    decision = poisoned(core, 60_000)
    assert not of(decision, facts.CheckpointQuarantined), "one is enough until there is a newer one: not all may burn"
    core.to_wake()
    core.running("Pong")
    resume(core, 60_000)
    core.later(1.0).look(Pong={"ckpt_step": 61_000, "ckpt_count": 1})
    assert core.told(facts.Checkpointed)[-1].step == 61_000, "told at once: the doubt is over"
    assert not core.program("Pong").ckpt.quarantined


def test_a_checkpoint_that_was_never_set_aside_is_so_when_somebody_resumes_from_it():
    """The daemon was killed between the fact and the rename: without this the poison would stay the newest for ever."""
    core = Core(settings("Pong"))
    core.begin()
    poisoned(core)
    core.to_wake()
    core.running("Pong")
    decision = resume(core, 80_000)
    assert [command.step for command in of(decision, commands.QuarantineCheckpoint)] == [80_000]
    assert "should have been set aside before; it is set aside now" in core.told(facts.Resumed)[-1].why
    assert core.program("Pong").ckpt.step is None
    core.ended("Pong", code=1)
    core.to_wake()
    core.running("Pong")
    assert not of(resume(core, 60_000), commands.QuarantineCheckpoint)
    assert core.program("Pong").ckpt.step == 60_000
