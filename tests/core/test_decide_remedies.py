"""What is changed before the next attempt: an older checkpoint and other chance, a smaller batch, a fresh start of a crawl."""

from dataclasses import replace

import pytest
from core_kit import Core, Phase, commands, facts, of, settings, signals, spec

from supervisor.model.inputs import OwnCheckpoint, Report, Survival
from supervisor.model.settings import Level, Progress
from supervisor.policy.worker.divergence import Losses


def trained(core, ckpt, steps):
    """It has a checkpoint, and is that far."""
    core.later(1.0).look(Pong={"ckpt_step": ckpt, "ckpt_count": 1, "steps": steps})
    return core


def diverge(core, resumed, steps, fine=None):
    """The present attempt begins at `resumed` and leaves with 65 at `steps`."""
    if core.attempt("Pong").pid is None:
        core.spawned("Pong")
    reports = () if resumed is None else (Report("resumed", {"at_ns": 1, "step": resumed}),)
    if fine is not None:
        reports += (Report("diverged", {"at_ns": 2, "step": fine, "error": "diverged"}),)
    return core.later(1.0).ended("Pong", code=65, steps=steps, reports=reports)


# --- divergence ------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("nan")
def test_a_divergence_goes_back_to_an_older_checkpoint_with_other_chance():
    core = trained(Core(settings("Pong")).running("Pong"), 100_000, 104_000)
    decision = diverge(core, None, 104_000)
    assert core.told(facts.Exited)[0].cause == "diverged"
    assert of(decision, commands.RollBack) == [commands.RollBack("Pong", 100_000)]
    assert core.told(facts.RolledBack)[0].why == (
        "diverged at step 104,000: rollback 1 of 3: checkpoints from step 100,000 on are set aside; restarts with another random seed"
    )
    spawn = of(decision, commands.Spawn)[0]
    assert spawn.rollbacks == 1, "the first death starts again at once"
    again = diverge(core, 90_000, 103_000)
    assert of(again, commands.RollBack) == [commands.RollBack("Pong", 90_000)]
    assert of(core.to_wake(), commands.Spawn)[0].rollbacks == 2


@pytest.mark.fault("nan")
def test_a_roll_back_that_a_dead_daemon_only_recorded_is_carried_out_before_the_next_start():
    """Otherwise it resumes from what it was to leave, and diverges or dies there again."""
    core = trained(Core(settings("Pong")).running("Pong"), 100_000, 104_000)
    diverge(core, None, 104_000)
    decision = core.begin()
    done = [each for each in decision.commands if isinstance(each, commands.RollBack | commands.Spawn)]
    assert done[0] == commands.RollBack("Pong", 100_000)
    assert [type(each) for each in done] == [commands.RollBack, commands.Spawn]
    core.spawned("Pong")
    assert core.program("Pong").ckpt.roll_from is None
    assert of(core.begin(core.survivor("Pong", Survival.ALIVE)), commands.RollBack) == [], "it may have saved since"
    core.later(1.0).ended("Pong", code=1)
    assert of(core.begin(), commands.RollBack) == [], "what was saved since is good"


@pytest.mark.fault("nan")
def test_what_was_saved_after_the_first_bad_update_is_set_aside_too():
    core = trained(Core(settings("Pong")).running("Pong"), 100_000, 104_000)
    decision = diverge(core, None, 104_000, fine=95_000)
    assert of(decision, commands.RollBack) == [commands.RollBack("Pong", 95_000)]
    assert core.told(facts.Diverged)[0].why == "diverged"
    assert core.told(facts.Reported) == []


@pytest.mark.fault("nan")
def test_after_three_roll_backs_it_is_given_up_and_a_word_of_the_operator_forgives():
    core = trained(Core(settings("Pong")).running("Pong"), 100_000, 104_000)
    for resumed in (None, 90_000, 80_000):
        diverge(core, resumed, 104_000)
        if core.phase("Pong") is Phase.BACKOFF:
            core.to_wake()
    diverge(core, 70_000, 101_000)
    assert core.phase("Pong") is Phase.FATAL
    assert core.program("Pong").why == (
        "its losses were no longer finite; diverged again after 3 rollbacks; "
        "it starts again after a change of its config or `extralifectl start`"
    )
    decision = core.ask("start", "Pong")
    assert of(decision, commands.Spawn)[0].rollbacks == 3, "chance that was drawn is not drawn again"
    diverge(core, 70_000, 101_000)
    assert core.told(facts.RolledBack)[-1].number == 1


@pytest.mark.fault("nan")
def test_a_checkpoint_beyond_the_divergence_forgives_and_one_before_it_does_not():
    core = trained(Core(settings("Pong")).running("Pong"), 100_000, 104_000)
    diverge(core, None, 104_000)
    core.spawned("Pong")
    core.later(1.0).look(core.report("Pong", "resumed", step=90_000), Pong={"steps": 90_000})
    trained(core, 102_000, 102_500)
    assert core.fruitless("rollback") == 1
    core.later(600.0)
    trained(core, 106_000, 106_500)
    assert core.fruitless("rollback") == 0


@pytest.mark.fault("nan")
def test_a_worker_that_beats_on_with_bad_losses_is_ended_and_one_bad_batch_is_forgiven():
    core = trained(Core(settings("Pong")).running("Pong"), 1000, 1500)
    bad = iter(range(10_000))
    core.watch(1, Pong={"nan_count": 0, "loss": 0.5})
    core.watch(59, Pong={"nan_count": lambda _: next(bad)})
    core.watch(1, Pong={"nan_count": 58, "steps": 700, "loss": 0.25})
    core.watch(30, Pong={"nan_count": lambda _: next(bad)})
    assert core.phase("Pong") is Phase.RUNNING, "one finite loss begins it anew"
    core.watch(5, Pong={"nan_count": 1_000, "progress_at_s": 1.0})
    core.watch(5, Pong={"nan_count": 1_000})
    assert core.phase("Pong") is Phase.RUNNING, "progress without a loss does not"
    core.watch(30, Pong={"nan_count": lambda _: 1_000 + next(bad), "steps": 1600})
    assert core.phase("Pong") is Phase.STOPPING
    asked = core.told(facts.StopIntended)[0]
    assert asked.reason == "diverged"
    assert asked.why == "none of its 1,051 losses of the last 1m was finite, and earlier ones were"
    core.watch(5, Pong={"nan_count": lambda _: next(bad)})
    decision = core.ended("Pong", code=75, steps=1600)
    assert core.told(facts.Exited)[0].cause == "diverged"
    assert core.told(facts.Diverged)[0].fine_step == 700
    assert of(decision, commands.RollBack) == [commands.RollBack("Pong", 700)], "what it saved since is not trusted"


@pytest.mark.fault("nan")
def test_a_checkpoint_of_a_script_beyond_the_divergence_forgives_while_its_loss_is_finite():
    core = Core(settings(spec("Pong", progress=Progress.AUTO, checkpoint_glob="*.pt")), checks=1000).running("Pong")
    core.look(Pong={"losses": Losses(True, 700, 2, core.now_s - 90.0), "steps": 800})
    core.later(1.0).look(Pong={"losses": Losses(True, 700, 9, core.now_s - 90.0), "steps": 800})
    core.ended("Pong", code=0)
    core.spawned("Pong")
    assert core.fruitless("rollback") == 1
    core.look(core.report("Pong", "resumed", step=0), Pong=None)
    core.watch(20, Pong={"source": "figures"})
    for step, losses, count in (
        (790, Losses(True, 790), 1),
        (900, Losses(True, 700, 1, 1.0), 1),
        (900, Losses(True, 900), 0),
    ):
        own = OwnCheckpoint(f"{step}.pt", step, core.now_s, 5)
        core.later(700.0).watch(2, Pong={"own": own, "losses": losses, "source": "figures"})
        assert (core.program("Pong").ckpt.step, core.fruitless("rollback")) == (step, count)


@pytest.mark.fault("nan-not-yet")
def test_losses_before_the_first_finite_one_are_reported_and_never_rolled_back():
    from supervisor.features.alerts.settings import AlertSettings

    core = trained(Core(settings("Pong", alerts=AlertSettings(command=("page",)))).running("Pong"), 1000, 1500)
    bad = Losses(bad=9, since_s=core.now_s)
    core.watch(299, Pong={"losses": bad})
    assert not core.told(facts.Sickened)
    core.watch(9, Pong={"losses": bad})
    (told,) = core.told(facts.Sickened)
    assert told.why == "none of its 9 losses was finite, for 5m: it may not learn yet, so it trains on"
    assert [(each.alert, each.why) for each in core.told(facts.AlertRaised)] == [("ailing", f"Pong: {told.why}")]
    assert core.phase("Pong") is Phase.RUNNING
    core.watch(2, Pong={"losses": Losses(True, 1500)})
    assert [fact.why for fact in core.told(facts.Healed)] == ["a loss is finite"]
    core.watch(100, Pong={"losses": Losses(True, 1500, 2, core.now_s)})
    assert core.told(facts.Diverged), "now it learns"


# --- memory ----------------------------------------------------------------------------------------------------------------


def light(**more):
    return settings(spec("Pong", batch_size=96, **more))


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param({"code": 71}, marks=pytest.mark.fault("memory-error")),
        pytest.param({"code": 1, "last_lines": ("torch.OutOfMemoryError: CUDA out of memory.",)}, marks=pytest.mark.fault("memory-error")),
        pytest.param({"signal": 9, "oom_line": "Killed process 7 (python)"}, marks=pytest.mark.fault("oom-kill")),
        pytest.param({"signal": 9, "oom_kills": (2, 3)}, marks=pytest.mark.fault("oom-kill")),
    ],
)  # fmt: skip
def test_out_of_memory_lowers_the_batch_of_this_level_until_somebody_changes_something(ending):
    core = Core(light()).running("Pong")
    decision = core.ended("Pong", **ending)
    lowered = core.told(facts.BatchLowered)[0]
    assert (lowered.level, lowered.batch_size, lowered.from_batch) == ("light", 48, 96)
    assert lowered.why == "ran out of memory with batch 96 at level light: 48 from now on"
    assert of(decision, commands.Spawn)[0].batch_size == 48
    core.spawned("Pong")
    core.ended("Pong", batch_size=48, **ending | ({"oom_kills": (3, 4)} if "oom_kills" in ending else {}))
    assert core.program("Pong").at("light").batch_size == 24
    core.ask("stop", "Pong")
    assert of(core.ask("start", "Pong"), commands.Spawn)[0].batch_size is None


def at_level(name, batch, **more):
    """What the config makes of it: the load is in the digest of the whole, not in the program's own."""
    made = spec("Pong", batch_size=batch, digest=f"{name} {batch}", **{"own_digest": "own", **more})
    return replace(settings(made), level=Level(name, batch_size=batch))


def test_each_level_remembers_its_batch_through_other_levels_and_other_daemons():
    core = Core(at_level("heavy", 2048)).running("Pong")
    core.ended("Pong", code=71)
    core.spawned("Pong")
    core.load(at_level("light", 512))
    assert core.told(facts.ProgramConfigured)[-1].why == "settings of another level (the configuration was updated)"
    assert of(core.ended("Pong", code=75), commands.Spawn)[0].batch_size is None
    core.later(60).begin()
    core.load(at_level("heavy", 2048))
    assert core.program("Pong").at("heavy").batch_size == 1024
    core.reboot("boot-2")
    assert of(core.last, commands.Spawn)[0].batch_size == 1024


@pytest.mark.parametrize(
    ("level", "own"), [("heavy", "own"), ("heavy", "other"), ("heavy", ""), ("light", "other"), ("light", "")],
)  # fmt: skip
def test_another_setting_of_the_program_or_of_its_level_forgets_them(level, own):
    core = Core(at_level("heavy", 2048)).running("Pong")
    core.ended("Pong", code=71)
    core.load(at_level(level, 1536, own_digest=own))
    assert core.program("Pong").at("light").batch_size is None
    assert core.program("Pong").own_digest == own


def test_what_has_no_batch_or_takes_no_other_only_waits():
    core = Core(settings("Pong")).running("Pong")
    core.ended("Pong", code=1, last_lines=("MemoryError",))
    assert core.told(facts.BatchLowered) == []
    assert core.told(facts.BackedOff)[0].why.startswith(
        "ran out of the host's memory, exit code 1: MemoryError; first death"
    )
    core.spawned("Pong")
    core.ended("Pong", code=71, batch_size=64)
    assert core.program("Pong").at("light").batch_size == 32
    core.to_wake()
    core.spawned("Pong")
    core.ended("Pong", code=71, batch_size=64)
    assert core.program("Pong").at("light").batch_size == 32, "it runs with more than it was given: no use in lowering"
    small = Core(settings(spec("Pong", batch_size=8))).running("Pong")
    small.ended("Pong", code=71)
    assert small.told(facts.BatchLowered) == []


@pytest.mark.fault("oom-kill")
def test_a_kill_in_a_cgroup_of_its_own_is_held_against_that_worker_whatever_was_counted_elsewhere():
    core = Core(settings(spec("Pong"), spec("Qbert"))).running("Pong", "Qbert")
    core.ended("Pong", signal=9, oom_kills=(0, 7))
    core.ended("Qbert", signal=9, oom_kills=(0, 1), oom_own=True, memory_max_bytes=2**30)
    first, second = core.told(facts.Exited)
    assert (second.cause, second.oom_kills) == ("oom_killed", first.oom_kills), "its count is nobody else's"
    assert "the worker's own cgroup (its limit is 1,024 MiB)" in second.why


# --- the disk is full --------------------------------------------------------------------------------------------------------


@pytest.mark.fault("disk-full-checkpoint")
def test_a_failed_save_is_told_and_over_with_the_next_one_that_works():
    core = trained(Core(settings("Pong")).running("Pong"), 1000, 1500)
    why = "checkpoint at step 2000 was not written: No space"
    told = core.report("Pong", "checkpoint_failed", error=why, step=2000, free_bytes=4096)
    core.later(1.0).look(told, Pong={"ckpt_step": 1900, "ckpt_count": 2})
    core.later(1.0).look(told, Pong={"ckpt_step": 1900, "ckpt_count": 2})
    assert [(fact.free_bytes, fact.why) for fact in core.told(facts.CheckpointFailed)] == [
        (4096, f"{why} (0.0 MB free); it trains on")
    ]
    assert core.attempt("Pong").save_error == why, "the one at 1900 was written before"
    core.later(700.0).look(Pong={"ckpt_step": 1950, "ckpt_count": 2})
    assert len(core.told(facts.Checkpointed)) == 2
    assert core.attempt("Pong").save_error == why
    core.later(1.0).look(Pong={"ckpt_step": 3000, "ckpt_count": 3})
    assert core.attempt("Pong").save_error == "", "although the last one was told a second ago"
    assert len(core.told(facts.Checkpointed)) == 3
    core.later(1.0).look(core.report("Pong", "checkpoint_failed", at_ns=2, error="x", free_bytes="much"), Pong=None)
    assert core.told(facts.CheckpointFailed)[1].why == "x; it trains on"
    core.later(1.0).look(Pong={"ckpt_step": 3001, "ckpt_count": 4})
    assert core.attempt("Pong").save_error == ""


# --- a crawl ---------------------------------------------------------------------------------------------------------------


def crawling(*names, **more):
    core = Core(settings(*names, **more)).running(*names)
    core.watch(100, **{name: {"steps_per_s": 1000.0} for name in names})
    core.watch(62, **{name: {"steps_per_s": 400.0} for name in names})
    return core


@pytest.mark.fault("slow")
def test_a_crawl_is_examined_when_it_is_told():
    core = crawling("Pong")
    assert len(core.told(facts.Slowed)) == 1
    core.evidence("Pong", load="9.1")
    core.evidence("Pong", load="9.1")
    assert [fact.why for fact in core.told(facts.Examined)] == ["evidence taken while slow: load"]
    told = core.watch(5, Pong={"steps_per_s": 990.0})
    assert [fact.why for fact in told] == ["990 steps/s again, after 2s of slowness"]
    core.evidence("Pong", load="1.0")
    assert len(core.told(facts.Examined)) == 1, "it is over"


@pytest.mark.fault("slow")
def test_a_crawl_that_lasts_is_started_again_once_in_a_while_and_holds_nothing_against_it():
    core = crawling("Pong")
    core.watch(1900, Pong={"steps_per_s": 400.0})
    asked = core.told(facts.StopIntended)[0]
    assert (asked.reason, asked.why) == ("slow", "slow for 30m while no other program is: saves and restarts")
    decision = core.ended("Pong", code=75)
    assert of(decision, commands.Spawn)
    assert (core.program("Pong").deaths.streak, core.program("Pong").restarts) == (0, 0)
    core.spawned("Pong")
    core.watch(100, Pong={"steps_per_s": 1000.0})
    core.watch(3000, Pong={"steps_per_s": 400.0})
    assert len(core.told(facts.Slowed)) == 2
    assert [fact.why for fact in core.told(facts.Helped)] == ["the restart has helped: its rate is usual again"]
    assert len(core.told(facts.StopIntended)) == 1, "but not again within six hours"


@pytest.mark.fault("slow")
def test_a_crawl_of_all_is_the_boxs_and_no_restart_helps():
    core = crawling("Pong", "Qbert")
    core.watch(3000, Pong={"steps_per_s": 400.0}, Qbert={"steps_per_s": 400.0})
    assert core.told(facts.StopIntended) == []
    core.watch(5, Pong={"steps_per_s": 400.0}, Qbert={"steps_per_s": 1000.0})
    assert [fact.program for fact in core.told(facts.StopIntended)] == ["Pong"], "once the other is well again"
    assert signals(core.last) == []
