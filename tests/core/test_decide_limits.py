"""Limits of time: a moment before its limit nothing follows, and at the limit it does."""

import pytest
from core_kit import Core, commands, facts, gpu, gpus, of, settings, spec

from supervisor.model.inputs import Asked, Halted, OwnCheckpoint, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.box.readings import Xid
from supervisor.policy.level.load import LoadSettings
from supervisor.policy.script.figures import Sources
from supervisor.policy.worker.divergence import DivergenceSettings, Losses
from supervisor.policy.worker.restart import RestartSettings
from supervisor.policy.worker.stall import StallSettings


def a_slot_is_handed_on():
    core = Core(settings("Pong", "Qbert", slots=1, load=LoadSettings(rotation_h=1.0))).running("Pong")
    return core, 3600.0, lambda: of(core.woke(), facts.StopIntended)


def a_restart_is_due():
    core = Core(settings("Pong")).running("Pong")
    core.ended("Pong", signal=9)
    core.spawned("Pong")
    core.ended("Pong", signal=9)
    return core, core.program("Pong").retry.at_s, lambda: of(core.woke(), commands.Spawn)


def one_that_does_not_leave_is_killed():
    core = Core(settings(spec("Pong", stop_grace_s=8.0))).running("Pong")
    core.ask("stop", "Pong")
    return core, core.now_s + 8.0, lambda: of(core.woke(), commands.KillTree)


def a_newer_checkpoint_is_put_on_record():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"ckpt_step": 10, "ckpt_count": 1, "ckpt_at_s": core.now_s})
    later = {"ckpt_step": 20, "ckpt_count": 2, "ckpt_at_s": core.now_s + 1.0}
    return core, core.now_s + 600.0, lambda: of(core.look(Pong=later), facts.Checkpointed)


def a_newer_checkpoint_of_its_own_is_put_on_record():
    core = Core(settings(spec("Pong", progress=Progress.LOG, checkpoint_glob="/w/*.pt"))).running("Pong")
    core.look(Pong={"own": OwnCheckpoint("/w/1.pt", 1, core.now_s, 5)})
    later = OwnCheckpoint("/w/2.pt", 2, core.now_s + 9.0, 5)
    return core, core.now_s + 600.0, lambda: of(core.look(Pong={"own": later}), facts.CheckpointSeen)


def a_file_of_another_time_is_another_checkpoint():
    """One second more, because the time of a file is converted anew at each look."""
    core = Core(settings(spec("Pong", progress=Progress.LOG, checkpoint_glob="/w/*.pt"))).running("Pong")
    core.look(Pong={"own": OwnCheckpoint("/w/1.pt", 1, core.now_s, 5)})
    first_s, later_s = core.now_s, core.now_s + 700.0

    def look():
        own = OwnCheckpoint("/w/1.pt", 1, first_s + 1.125 - (later_s - core.now_s), 5)
        return of(core.look(Pong={"own": own}), facts.CheckpointSeen)

    return core, later_s, look


def evidence_is_not_waited_for():
    core = Core(settings("Pong")).running("Pong")
    still = {"live_at_s": core.now_s, "progress_at_s": core.now_s}
    assert of(core.later(700.0).look(Pong=still), commands.TakeEvidence)
    return core, core.now_s + 10.0, lambda: of(core.look(Pong=still), facts.Examined)


def halted(core):
    core.running("Pong")
    since_s = core.now_s
    return since_s, lambda: core.look(Pong={"halted": (Halted(7, 70, "sleep", "T", since_s),)})


def a_stopped_child_is_continued():
    core = Core(settings("Pong"))
    since_s, look = halted(core)
    return core, since_s + 5.0, lambda: of(look(), commands.ContinueChild)


def a_stopped_child_is_continued_again():
    core = Core(settings("Pong"))
    since_s, look = halted(core)
    core.now_s = since_s + 6.0
    assert look().facts
    return core, core.now_s + 5.0, lambda: of(look(), commands.ContinueChild)


def a_stopped_child_is_told_again():
    core = Core(settings("Pong"))
    since_s, look = halted(core)
    core.now_s = since_s + 6.0
    assert look().facts
    return core, core.now_s + 600.0, lambda: of(look(), facts.ChildHalted)


def the_same_error_of_a_gpu_is_told_again():
    core = Core(settings("Pong")).running("Pong")
    core.see(gpus(gpu(), xids=(Xid(1, 0, 79),)))
    return core, core.now_s + 600.0, lambda: of(core.see(gpus(gpu(), xids=(Xid(2, 0, 79),))), facts.XidReported)


def memory_is_learned():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"rss_bytes": 10**9})
    ready_at_s = core.attempt("Pong").ready_at_s
    return core, ready_at_s + 60.0, lambda: of(core.see(gpus(gpu())), facts.NeedLearned)


def more_memory_is_learned():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"rss_bytes": 10**9})
    core.later(100.0).see(gpus(gpu()))
    core.look(Pong={"rss_bytes": 2 * 10**9})
    return core, core.now_s + 600.0, lambda: of(core.see(gpus(gpu())), facts.NeedLearned)


def deaths_are_forgiven():
    core = Core(settings("Pong", restart=RestartSettings(healthy_s=300.0))).running("Pong")
    core.ended("Pong", signal=9)
    core.running("Pong")
    return core, core.attempt("Pong").ready_at_s + 300.0, lambda: of(core.look(Pong={}), facts.Recovered)


def slowness_is_told():
    core = Core(settings("Pong", stall=StallSettings(slow_for_s=60.0))).running("Pong")
    core.watch(70, Pong={"steps_per_s": 1000.0})
    core.later(1.0).look(Pong={"steps_per_s": 100.0})
    return core, core.now_s + 60.0, lambda: of(core.look(Pong={"steps_per_s": 100.0}), facts.Slowed)


def losses_that_are_not_finite_end_it():
    core = Core(settings("Pong", divergence=DivergenceSettings(nan_for_s=60.0))).running("Pong")
    core.look(Pong={"losses": Losses(True)})
    bad = Losses(True, bad=2, since_s=core.now_s + 1.0)
    return core, core.now_s + 61.0, lambda: of(core.look(Pong={"losses": bad}), facts.Diverged)


def nobody_knows_where_it_resumed():
    core = Core(settings(spec("Pong", progress=Progress.LOG))).running("Pong")
    core.later(60.0).ask("restart", "Pong")
    core.ended("Pong", code=75)
    core.running("Pong")
    return core, core.attempt("Pong").ready_at_s + 10.0, lambda: of(core.look(Pong={}), facts.ResumeUnknown)


def no_first_step_has_come():
    core = Core(settings(spec("Pong", progress=Progress.LOG, figures=Sources(log_regex=r"step (?P<steps>\d+)")))).running(
        "Pong"
    )
    core.later(60.0).ask("restart", "Pong")
    core.ended("Pong", code=75)
    core.running("Pong")
    return core, core.attempt("Pong").ready_at_s + 600.0, lambda: of(core.look(Pong={}), facts.ResumeUnknown)


def a_pin_runs_out():
    core = Core(settings("Pong")).running("Pong")
    core.give(Asked(core.now_s, Verb.PIN, 1, ("light",), for_s=90.0))
    return core, core.now_s + 90.0, lambda: of(core.woke(), facts.LevelUnpinned)


def noticed(**more):
    from supervisor.features.notices.messages import EndNotice, EndNoticesRead
    from supervisor.features.notices.rules import END

    core = Core(settings("Pong", "Qbert", slots=1, **more)).running("Pong")
    core.give(EndNoticesRead(core.now_s, (EndNotice("aws 1", "aws", END, "spot terminate", core.now_s + 120.0),)))
    (fact,) = core.told(facts.EndAnnounced)
    return core, fact.leave_at_s


def programs_leave_before_the_box_ends():
    core, leave_at_s = noticed()
    return core, leave_at_s, lambda: of(core.woke(), commands.AskToLeave)


def no_program_starts_before_the_box_ends():
    core, leave_at_s = noticed()
    return core, leave_at_s, lambda: not of(core.ended("Pong", code=0), commands.Spawn)


def the_daemons_own_absence_is_over():
    core = Core(settings("Pong")).running("Pong")
    core.asleep(100.0).woke()
    until_s = core.memory.blind_until_s
    child = Halted(7, 70, "sleep", "T", core.now_s - 50.0)
    return core, until_s, lambda: of(core.look(Pong={"halted": (child,)}), commands.ContinueChild)


def an_interval_is_chosen_again():
    core = Core(settings(spec("Pong", progress=Progress.BEAT))).running("Pong")
    for _ in range(4):
        cheap = {"ckpt_step": 5, "ckpt_count": 1, "ckpt_at_s": core.now_s, "ckpt_stall_s": 0.001}
        core.later(40.0).look(Pong=cheap)
        if core.told(facts.IntervalChosen, "Pong"):
            break
    dear = {"ckpt_step": 5, "ckpt_count": 2, "ckpt_at_s": core.now_s, "ckpt_stall_s": 30.0}
    return core, core.told_at(facts.IntervalChosen) + 30.0, lambda: of(core.look(Pong=dear), facts.IntervalChosen)


LIMITS = [
    a_slot_is_handed_on, a_restart_is_due, one_that_does_not_leave_is_killed, a_newer_checkpoint_is_put_on_record,
    a_newer_checkpoint_of_its_own_is_put_on_record, a_file_of_another_time_is_another_checkpoint, evidence_is_not_waited_for,
    a_stopped_child_is_continued, a_stopped_child_is_continued_again, a_stopped_child_is_told_again,
    the_same_error_of_a_gpu_is_told_again, memory_is_learned, more_memory_is_learned, deaths_are_forgiven, slowness_is_told,
    losses_that_are_not_finite_end_it, nobody_knows_where_it_resumed, no_first_step_has_come, a_pin_runs_out,
    programs_leave_before_the_box_ends, no_program_starts_before_the_box_ends, the_daemons_own_absence_is_over,
    an_interval_is_chosen_again,
]  # fmt: skip


@pytest.mark.parametrize("early_s", [0.125, 0.0])
@pytest.mark.parametrize("limit", LIMITS)
def test_at_its_limit_and_not_before(limit, early_s):
    core, at_s, follows = limit()
    core.now_s = at_s - early_s
    assert bool(follows()) == (early_s == 0.0)


@pytest.mark.parametrize(("delay_s", "phase"), [(30.0, Phase.QUEUED), (30.125, Phase.STARTING)])
def test_a_slot_is_kept_for_a_wait_of_up_to_thirty_seconds(delay_s, phase):
    rules = RestartSettings(base_delay_s=delay_s)
    core = Core(settings("Pong", spec("Qbert", priority=200), slots=1, restart=rules)).running("Pong")
    core.ended("Pong", signal=9)
    core.spawned("Pong")
    core.later(1.0).ended("Pong", signal=9)
    assert core.told(facts.BackedOff, "Pong")[-1].delay_s == delay_s
    assert core.phase("Qbert") is phase
