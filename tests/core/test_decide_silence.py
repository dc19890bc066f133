"""Programs that say nothing of themselves: quiet or silent, halted children, and from when on they count as RUNNING."""

import pytest
from core_kit import Core, commands, facts, gpu, gpus, of, settings, spec

from supervisor.model.inputs import Halted, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.box.readings import Spread
from supervisor.policy.script.figures import Fall, Sources
from supervisor.reports.cost_view import Games, RemainingWork, games_left
from supervisor.reports.view import program_view


def script(**more):
    return Core(settings(spec("Pong", progress=Progress.AUTO, **more)), checks=1000)


def mute(core, **more):
    """It printed a line now and says nothing from now on."""
    return {"progress_at_s": core.now_s, "live_at_s": None, **more}


def works(now_s):
    """It was last seen to work within the last five seconds."""
    return now_s - now_s % 5.0


def ends(core):
    """It dies, and its next start is due."""
    core.ended("Pong", signal=9)
    if core.phase("Pong") is Phase.BACKOFF:
        core.to_wake()


def test_the_next_kill_for_silence_takes_twice_as_long_until_it_is_healthy_again():
    core = script().running("Pong")
    for limit_s in (600.0, 1200.0):
        core.watch(limit_s + 20.0, Pong=mute(core))
        assert core.told(facts.Stalled)[-1].limit_s == limit_s
        ends(core)
        core.running("Pong")
    assert core.fruitless("silence") == 2
    same = mute(core)
    core.watch(2420.0, Pong=same)
    stalled = core.told(facts.Stalled)[-1]
    assert (stalled.limit_s, stalled.stall) == (2400.0, "left_alone")
    assert stalled.why.endswith("; two restarts did not help: set stall_timeout_s to have it restarted")
    core.watch(9000.0, period_s=5.0, Pong=same)
    assert core.attempt("Pong").stop is None, "a third restart would prove no more"
    core.watch(700, Pong={"progress_at_s": lambda now_s: now_s, "live_at_s": None})
    assert core.told(facts.Recovered)
    assert core.fruitless("silence") == 0


def test_work_without_a_word_ends_the_count_of_deaths_too():
    core = script().running("Pong")
    ends(core)
    core.running("Pong")
    assert core.program("Pong").deaths.streak == 1
    core.watch(700, Pong={"progress_at_s": None, "live_at_s": None, "witness_at_s": works, "witness": "cpu"})
    assert core.told(facts.Recovered)
    assert core.program("Pong").deaths.streak == 0


def test_one_that_was_to_be_ended_for_silence_and_works_again_is_left_alone():
    core = script().running("Pong")
    same = mute(core)
    core.watch(601, Pong=same)
    assert core.told(facts.Stalled)
    core.watch(2, Pong={**same, "witness_at_s": works, "witness": "cpu"})
    core.watch(6, Pong={**same, "witness_at_s": lambda now_s: now_s, "witness": "cpu"})
    assert core.told(facts.Revived)[0].why.startswith("works again by itself")
    assert core.attempt("Pong").stall is None
    assert core.attempt("Pong").stop is None


def test_the_gpu_that_only_its_tree_holds_is_a_witness():
    core = script().running("Pong")
    same = mute(core, pids=(4321,))
    for _ in range(24):
        core.see(gpus(gpu(processes=((4321, None),), utilisation=90.0)))
        core.watch(60, period_s=30.0, Pong=same)
    assert core.told(facts.Quiet)[0].witness == "gpu"
    assert not core.told(facts.Stalled)


def test_a_gpu_that_another_program_holds_too_shows_nothing():
    core = script().running("Pong")
    core.see(gpus(gpu(processes=((4321, None), (99, None)), utilisation_minute=Spread(0.0, 9.0, 90.0))))
    core.watch(602, period_s=2.0, Pong=mute(core, pids=(4321,)))
    assert core.told(facts.Stalled)[0].stall == "silent"


@pytest.mark.parametrize("progress", [Progress.AUTO, Progress.NONE, Progress.BEAT])
def test_a_stopped_child_is_named_once_and_continued_again_and_again(progress):
    core = Core(settings(spec("Pong", progress=progress)), checks=1000).running("Pong")
    child = Halted(77, 5, "python", "T", core.now_s)
    moving = {"progress_at_s": lambda now_s: now_s, "halted": (child,)}
    core.watch(4, Pong=moving)
    assert not core.told(facts.ChildHalted)
    sent = []
    for _ in range(12):
        core.watch(1, Pong=moving)
        sent += of(core.last, commands.ContinueChild)
    assert {(each.pid, each.start_ticks) for each in sent} == {(77, 5)}
    assert len(sent) == 3, "every five seconds"
    told = core.told(facts.ChildHalted)
    assert len(told) == 1
    assert told[0].why == "its process python(77) is stopped for 5s (state T): it is sent SIGCONT"
    core.watch(600, Pong=moving)
    assert len(core.told(facts.ChildHalted)) == 2


def test_a_stopped_child_of_another_user_is_named_and_not_said_to_be_continued():
    core = script().running("Pong")
    child = Halted(77, 5, "python", "T", core.now_s)
    core.watch(12, Pong=mute(core, halted=(child,), untouchable=("python(77) of root",)))
    assert "may not signal it (python(77) of root)" in core.told(facts.ChildHalted)[0].why
    assert not of(core.last, commands.ContinueChild)


# --- children -----------------------------------------------------------------------------------------------------------


def test_a_child_that_no_signal_reaches_is_named_and_its_tree_is_not_healed():
    core = script().running("Pong")
    child = Halted(77, 5, "python", "D", core.now_s - 30.0)
    core.watch(700, Pong=mute(core, halted=(child,)))
    assert [fact.proc_state for fact in core.told(facts.ChildHalted)] == ["D", "D"]
    assert core.told(facts.Stalled)[0].stall == "uninterruptible"
    assert core.attempt("Pong").stop is None


def test_no_child_of_a_program_that_leaves_is_continued_by_us():
    """Its shim does so when it asks the tree to leave."""
    core = script().running("Pong")
    core.ask(Verb.STOP, "Pong")
    core.watch(8, Pong=mute(core, halted=(Halted(77, 5, "python", "T", core.now_s),)))
    assert not core.told(facts.ChildHalted)


# --- RUNNING ------------------------------------------------------------------------------------------------------------


def starts(core, lives_s, **seen):
    """Spawned, then seen once a second for so long. Whether it counted as RUNNING."""
    core.spawned("Pong")
    core.watch(lives_s, Pong={"progress_at_s": core.now_s + 1.0, "live_at_s": None, **seen})
    return core.phase("Pong") is Phase.RUNNING


def test_an_import_warning_does_not_make_a_crash_looper_running():
    core = script()
    core.begin()
    ran = []
    for _ in range(5):
        ran.append(starts(core, 15))
        ends(core)
    assert ran == [True, False, False, False, False]
    assert starts(core, 17), "it has lived longer than before"


def test_a_silent_program_is_running_once_it_works():
    core = script()
    core.begin()
    assert not starts(core, 20, progress_at_s=None, phase=None, ready=False)
    core.watch(1, Pong={"progress_at_s": None, "phase": None, "ready": False, "witness_at_s": core.now_s, "witness": "cpu"})
    assert core.phase("Pong") is Phase.RUNNING


# --- resumes ------------------------------------------------------------------------------------------------------------


def resumes(core, **seen):
    """It dies, and trains again for twenty seconds."""
    core.watch(150, Pong={"progress_at_s": lambda now_s: now_s, "live_at_s": None, **seen})
    ends(core)
    core.running("Pong")
    core.watch(20, Pong={"progress_at_s": lambda now_s: now_s, "live_at_s": None, **seen})
    return [fact.why for fact in core.told(facts.ResumeUnknown)]


@pytest.mark.parametrize("progress", [Progress.AUTO, Progress.LOG, Progress.NOTIFY, Progress.NONE])
def test_a_restart_that_does_not_say_where_it_goes_on_is_put_on_record_once(progress):
    core = Core(settings(spec("Pong", progress=progress)), checks=1000).running("Pong")
    core.watch(30, Pong={"progress_at_s": lambda now_s: now_s, "live_at_s": None})
    assert not core.told(facts.ResumeUnknown), "nothing was trained before"
    assert resumes(core) == [
        "trains again (last exit: killed), but did not report from which step: how much work was lost is unknown"
    ]
    raised = [fact for fact in core.told(facts.AlertRaised) if fact.alert == "unproven"]
    assert [(fact.severity, fact.program) for fact in raised] in ([], [("info", "Pong")])


def test_who_beats_or_reports_says_it():
    core = script().running("Pong")
    core.watch(150, Pong={"progress_at_s": lambda now_s: now_s, "source": "beat"})
    ends(core)
    core.spawned("Pong")
    core.watch(40, Pong={"progress_at_s": lambda now_s: now_s, "source": "beat"})
    assert not core.told(facts.ResumeUnknown)
    core = Core(settings(spec("Pong", builtin=True)), checks=1000).running("Pong")
    assert not resumes(core)
    core = script().running("Pong")
    core.watch(150, Pong={"progress_at_s": lambda now_s: now_s, "live_at_s": None})
    ends(core)
    core.spawned("Pong")
    core.look(core.report("Pong", "resumed", step=70), Pong=None)
    core.watch(40, Pong={"progress_at_s": lambda now_s: now_s, "live_at_s": None})
    assert not core.told(facts.ResumeUnknown)


# --- steps that stand still -----------------------------------------------------------------------------------------------

READS = {"source": "figures", "live_at_s": None, "first_steps": (4,), "witness_at_s": works, "witness": "cpu"}
STEPS = {"steps": lambda now_s: int(5 * now_s), "progress_at_s": lambda now_s: now_s, "steps_per_s": 5.0, "target": 10**6}


def stands(core, step):
    """It uses a core and prints no step after this one, as a rank whose peer has died."""
    at_s = core.now_s
    return {**READS, "steps": step, "progress_at_s": at_s, "steps_per_s": 5.0, "target": 10**6, "target_kind": "env_steps"}


def printing(**more):
    figures = Sources(log_regex=("step=(?P<step>.*)",))
    core = Core(settings(spec("Pong", progress=Progress.AUTO, figures=figures, **more)), checks=1000).running("Pong")
    core.watch(30, Pong={**READS, **STEPS})
    return core


def shown(core):
    """Steps/s and time to the target of the page, and the program's metrics and curve."""
    from supervisor.features.recorder.rules.readings import readings

    watch = core.memory.watches["Pong"]
    view = program_view(core.program("Pong"), watch.sample, core.settings, core.state, now_s=core.now_s)
    row = readings(core.state, core.memory, now_s=core.now_s, wall_s=core.now_s)["programs"][0]
    return view["steps_per_s"], view["eta_s"], row.values["steps_per_s"]


def test_steps_that_stand_still_have_no_pace_and_the_worker_is_restarted_although_it_works():
    core = printing()
    same = stands(core, 5 * int(core.now_s))
    core.watch(29, Pong=same)
    assert shown(core) == (5.0, (10**6 - same["steps"]) / 5.0, 5.0)
    core.watch(3, Pong=same)
    assert shown(core) == (None, None, None)
    core.watch(65, Pong=same)
    (slowed,) = core.told(facts.Slowed)
    assert slowed.why == "no step beyond 255 for 1m 31s, usually 5 steps/s: it stands still"
    ((left,), _) = games_left(Games(core.settings, core.state, {"Pong": core.memory.watches["Pong"].sample}))
    assert left == RemainingWork("Pong", why="it makes no step beyond 255"), "nor is it known when all is done"
    core.watch(1790, Pong=same)
    assert not core.told(facts.StopIntended)
    core.watch(20, Pong=same)
    (asked,) = core.told(facts.StopIntended)
    assert (asked.reason, asked.why) == ("slow", "no step for 31m 31s: it is asked to save, and restarts")


def test_one_at_its_target_does_not_stand_still_however_long_it_evaluates_and_exports():
    for fall, reasons in ((None, []), (Fall(250, (1, 2, 3)), ["slow"])):  # it was there before: an epoch's target
        core = printing()
        core.watch(3600, period_s=5.0, Pong=stands(core, 250) | {"target": 250, "fall": fall})
        assert [asked.reason for asked in core.told(facts.StopIntended)][:1] == reasons


def again(core, first, step):
    """It is restarted, goes on from step `first`, and stands still at `step` for an hour."""
    core.ended("Pong", signal=15)
    core.spawned("Pong")
    began_s = core.now_s
    core.watch(30, Pong={**READS, **STEPS, "first_steps": (first + 1,), "steps": lambda now_s: first + int(5 * (now_s - began_s))})  # fmt: skip
    core.watch(2, Pong={**READS, **STEPS, "first_steps": (first + 1,), "steps": step})
    core.watch(3600, period_s=5.0, Pong={**stands(core, step), "first_steps": (first + 1,)})


def asked(core):
    return len(core.told(facts.StopIntended))


@pytest.mark.fault("long-evaluation")
def test_an_evaluation_that_comes_again_is_ended_twice_and_then_it_raises_the_limit():
    """It saves when it is asked to leave, and so begins behind its evaluation: the next one is 150 steps later."""
    core = printing()
    core.watch(3600, period_s=5.0, Pong=stands(core, 250))
    again(core, 250, 400)
    assert asked(core) == 2, "a later step proves nothing"
    again(core, 400, 550)
    assert asked(core) == 2
    slowed = core.told(facts.Slowed)
    assert [fact.why.endswith("two restarts did not help: set stall_timeout_s to have it restarted") for fact in slowed] == [
        False, False, True,
    ]  # fmt: skip
    core.watch(3, Pong={**READS, "steps": 551, "progress_at_s": lambda now_s: now_s, "steps_per_s": None})
    assert core.attempt("Pong").slow.step is not None, "its rate is not known yet"
    core.watch(3, Pong={**READS, "steps": 552, "progress_at_s": lambda now_s: now_s, "steps_per_s": 5.0})
    assert core.attempt("Pong").slow is None
    assert core.program("Pong").gap_s("training") > 3000.0, "such a time is usual from now on"
    assert core.fruitless("still") == 0


def test_a_hang_whose_phase_was_passed_is_restarted_each_time():
    core = printing()
    core.watch(3600, period_s=5.0, Pong=stands(core, 250))
    for number in (2, 3, 4):
        again(core, 200, 250 * 3**number)
        assert asked(core) == number
    assert [fact.why for fact in core.told(facts.Helped)][:1] == [
        "the restart has helped: its steps ended at step 250, and it has passed that"
    ]


@pytest.mark.parametrize(
    ("own", "unread"),
    [({"stall_timeout_s": 7200.0}, {}), ({}, {"unread": "its log is gone"})],
    ids=["its own limit", "unread"],
)
def test_steps_within_its_own_limit_or_that_cannot_be_read_do_not_stand_still(own, unread):
    core = printing(**own)
    core.watch(7000, period_s=5.0, Pong={**stands(core, 155), **unread})
    assert not core.told(facts.Slowed)
    assert shown(core) == (None, None, None)


def test_a_worker_that_trains_for_a_time_has_no_time_left_that_is_known():
    core = Core(settings("Pong"), checks=1000).running("Pong")
    left = {"target": 100, "target_kind": "seconds_left", "progress_at_s": lambda now_s: now_s}
    core.watch(10, Pong={**left, "steps": int})
    assert core.memory.watches["Pong"].sample.target == 100
    core.watch(40, Pong={**left, "steps": 10})
    assert core.memory.watches["Pong"].sample.target is None
