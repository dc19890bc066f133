"""Programs whose own output is read: their first step, their losses of steps, and what is not read of them."""

import dataclasses

import pytest
from core_kit import Core, commands, facts, of, settings, spec

from supervisor.model.inputs import CheckpointsFound, OwnCheckpoint, Survival
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.script.figures import Fall, Figures, Sources
from supervisor.policy.script.placeholders import Template
from supervisor.policy.worker.divergence import Losses
from supervisor.reports.view import program_view

READ = Sources(log_regex=("step=(?P<step>.*)",))


def script(**more):
    return Core(settings(spec("Pong", progress=Progress.AUTO, figures=READ), **more), checks=1000)


def shows(core, step, *firsts, **more):
    """What its log says now, and the first steps that it has said; after one of them came another every 100 steps."""
    first_steps = (*firsts, firsts[0] + 100, firsts[0] + 200) if len(firsts) == 1 else firsts
    said = {"steps": step, "first_steps": first_steps, "source": "figures", "live_at_s": None, "progress_at_s": core.now_s}
    said |= more
    core.look(Pong=said)


def resumed(core):
    return core.told(facts.Resumption)[-1]


def again(core):
    """It dies, and is started again."""
    core.ended("Pong", signal=9)
    if core.phase("Pong") is Phase.BACKOFF:
        core.to_wake()
    core.spawned("Pong")
    core.later(20)
    return core


def at_step(step=50_000):
    """It has shown this step, and dies."""
    core = script().running("Pong")
    shows(core, 4, 4)
    core.later(60)
    shows(core, step, 4, steps_per_s=100.0)
    return again(core)


def test_the_first_step_of_the_first_attempt():
    core = script().running("Pong")
    shows(core, 4, 4)
    found = resumed(core)
    assert (type(found), found.step, found.lost_steps, found.at_least) == (facts.FirstStepShown, 4, None, True)
    assert found.why == "shows step 4 first"
    assert core.attempt("Pong").resumed_step == 4
    assert core.program("Pong").ckpt.step is None, "it says nothing of checkpoints"
    shows(core, 5, 4)
    assert len(core.told(facts.Resumption)) == 1


@pytest.mark.parametrize("first", [1, 50, 60])
def test_a_first_attempt_has_lost_nothing_whatever_its_checkpoints_say(first):
    """Its first save is seen before its first step is read."""
    core = script().running("Pong")
    core.look(Pong={"own": OwnCheckpoint("/w/50.pt", 50, core.now_s, 5), "steps": None, "source": "figures"})
    assert core.program("Pong").steps == 50
    shows(core, 60, first)
    assert (resumed(core).step, resumed(core).lost_steps, resumed(core).why) == (first, None, f"shows step {first} first")


def test_an_attempt_that_shows_a_smaller_step_first_has_lost_at_least_the_steps_between():
    core = at_step()
    shows(core, 48_100, 48_100)
    found = resumed(core)
    assert (found.step, found.lost_steps, found.lost_s, found.at_least) == (48_100, 1900, 19.0, True)
    assert found.why.startswith(
        "shows step 48,100 first (last exit: killed): it has resumed there or before, at least 1,900 steps lost"
    )
    assert core.program("Pong").steps == 48_100
    core.later(700)
    shows(core, 49_000, 48_100)
    assert not core.told(facts.ResumeUnknown)


def test_one_that_goes_on_beyond_it_has_lost_nobody_knows_how_much():
    core = at_step()
    shows(core, 50_200, 50_200)
    assert (resumed(core).step, resumed(core).lost_steps) == (50_200, None)
    assert "lost steps unknown" in resumed(core).why


def test_a_step_that_it_says_to_have_resumed_from_is_as_good_as_a_report():
    core = at_step()
    shows(core, 48_100, 48_100, resumed_step=48_000)
    assert (type(resumed(core)), resumed(core).step, resumed(core).lost_steps) == (facts.Resumed, 48_000, 2000)
    assert core.program("Pong").ckpt.step == 48_000


@pytest.mark.parametrize("seen", [{"unread": "log_regex has matched none"}, {"steps": 48_100}])
def test_nobody_waits_for_a_first_step_that_will_not_come(seen):
    core = at_step()
    core.watch(180, Pong={"source": "log", "progress_at_s": lambda now_s: now_s, "steps": None, **seen})
    assert len(core.told(facts.ResumeUnknown)) == 1


def test_what_is_not_read_is_told_once_for_each_reason():
    core = script().running("Pong")
    for why in ("matches nothing", "matches nothing", "", "takes too long", "matches nothing", "takes too long"):
        shows(core, None, unread=why)
        core.later(10)
    assert [fact.why for fact in core.told(facts.FiguresUnread)] == ["matches nothing", "takes too long"]
    again(core)
    shows(core, None, unread="takes too long")
    assert len(core.told(facts.FiguresUnread)) == 2, "a program that is restarted all the time would fill the journal"
    for number in range(30):
        shows(core, None, unread=f"runs/{number} is damaged")
    assert len(core.told(facts.FiguresUnread)) == 16, "nor does one with many files"


def test_status_shows_figures_of_another_name_and_why_some_are_not_known():
    core = script().running("Pong")
    sample = core.sample("Pong", loss=0.5, lr=1e-4, share_act=0.5, unread="matches nothing")
    shown = program_view(core.program("Pong"), sample, core.settings, core.state, now_s=core.now_s)
    assert (shown["figures"], shown["loss"], shown["time_shares"]) == ({"lr": 1e-4}, 0.5, {"act": 0.5})
    assert shown["why"] == "its figures are not known: matches nothing"
    fine = dataclasses.replace(sample, figures={}, unread="")
    assert program_view(core.program("Pong"), fine, core.settings, core.state, now_s=core.now_s)["figures"] is None


# --- a script with checkpoints ------------------------------------------------------------------------------------------


def saver(*argv, **figures):
    """A script that has shown step 50,000, has saved at 48,000, and dies."""
    read = dataclasses.replace(READ, **figures)
    script = spec("Pong", progress=Progress.AUTO, figures=read, checkpoint_glob="run/*")
    script = dataclasses.replace(script, argv=("train", *argv), template=Template() if argv else None)
    core = Core(settings(script), checks=1000)
    core.begin()
    finds(core, OwnCheckpoint())
    core.running("Pong")
    shows(core, 4, 4)
    core.later(60)
    shows(core, 50_000, 4, steps_per_s=100.0)
    again(core)
    finds(core, saved(core, 48_000))
    return core


def saved(core, step, name=None, age_s=70.0):
    return OwnCheckpoint(f"run/{name or step}.ckpt", step, core.now_s - age_s, 5)


def finds(core, own):
    core.give(CheckpointsFound(core.now_s, "Pong", core.token("Pong"), own))


def test_a_bar_that_jumps_to_the_checkpoint_has_resumed_there():
    core = saver()
    shows(core, 0, 0, 0)
    core.later(700.0)
    shows(core, 48_001, 0, 48_001)
    assert len(core.told(facts.Resumption)) == 1, "not before a third step"
    core.later(1.0)
    shows(core, 48_002, 0, 48_001, 48_002)
    assert (type(resumed(core)), resumed(core).step, resumed(core).lost_steps) == (facts.Resumed, 48_000, 2000)
    assert not core.told(facts.ResumeUnknown)


@pytest.mark.parametrize(
    ("argv", "figures", "kind"),
    [
        ((), {}, facts.ResumeUnknown),
        ((), {"begin_anew": True}, facts.Resumed),
        ((), {"begin_anew": False}, facts.FirstStepShown),
        (("--from={resume}",), {}, facts.Resumed),
        (("--from={resume}",), {"begin_anew": False}, facts.FirstStepShown),
        (("$EXTRALIFE_RESUME",), {}, facts.Resumed),
    ],
)
def test_a_count_from_zero_is_new_or_the_work_is_lost_or_nobody_knows(argv, figures, kind):
    core = saver(*argv, **figures)
    shows(core, 2048, 2048, 4096)
    core.later(10.0)
    shows(core, 6144, 2048, 4096, 6144)
    told = [fact for fact in core.told(facts.AttemptFact) if isinstance(fact, facts.Resumption | facts.ResumeUnknown)][-1]
    assert type(told) is kind
    if kind is facts.Resumed:
        assert (told.step, told.lost_steps, told.steps_before) == (48_000, 2000, 48_000)
        assert told.why.endswith("(if it has begun from scratch, set steps_begin_anew = false)")
    elif kind is facts.FirstStepShown:
        assert (told.step, told.lost_steps) == (2048, 50_000 - 2048)
    else:
        assert told.why == (
            "trains again (last exit: killed), but counts its steps from 2,048, its newest checkpoint is of step 48,000 (set "
            "steps_begin_anew = true if it goes on from its checkpoint, false if it begins from scratch): "
            "how much work was lost is unknown"
        )


def page(core):
    sample = core.memory.watches["Pong"].sample
    return program_view(core.program("Pong"), sample, core.settings, core.state, now_s=core.now_s)


def test_a_count_that_begins_anew_goes_on_from_its_checkpoint_after_each_kill_and_under_the_next_daemon():
    core = saver("{resume}")
    for _ in range(2):  # and it counts as training
        core.later(100.0)
        shows(core, 6144, 2048, 4096, 6144)
    later = {"own": saved(core, 10_000, age_s=0.0), "target": 100_000, "target_kind": "env_steps", "steps_per_s": 100.0}
    shows(core, 12_000, 2048, 4096, 6144, **later)
    assert (page(core)["steps"], page(core)["ckpt_step"]) == (60_000, 58_000)
    assert page(core)["eta_s"] == pytest.approx(880.0), "its own target is one of its own count"
    core.begin(core.survivor("Pong", Survival.ALIVE))
    shows(core, 13_000, 2048, 4096, 6144, own=later["own"])
    assert page(core)["steps"] == 61_000
    core.ended("Pong", signal=9, shown=Figures(steps=13_500))
    assert core.told(facts.Exited)[-1].steps == 61_500
    assert core.told(facts.CheckpointSeen)[-1].step == 58_000
    if core.phase("Pong") is Phase.BACKOFF:
        core.to_wake()
    core.spawned("Pong")
    finds(core, saved(core, 10_000, age_s=1.0))
    assert core.told(facts.StartsFrom)[-1].step == 58_000
    core.later(20.0)
    shows(core, 6144, 2048, 4096, 6144)
    assert (resumed(core).step, resumed(core).lost_steps, resumed(core).steps_before) == (58_000, 3500, 58_000)
    core.later(1.0)
    shows(core, 7000, 2048, 4096, 6144, own=saved(core, 48_000, age_s=900.0))
    assert (page(core)["steps"], page(core)["ckpt_step"]) == (65_000, None), "the step of a file of an earlier count"


def test_what_diverged_of_a_count_that_begins_anew_is_set_aside_by_its_path():
    core = saver("{resume}")
    for _ in range(2):  # and it counts as training
        core.later(100.0)
        shows(core, 6144, 2048, 4096, 6144)
    own = saved(core, 10_000, age_s=0.0)
    for count in range(70):
        shows(core, 12_001 + count, 2048, 4096, 6144, losses=Losses(True, 12_000, count, core.now_s - count), own=own)
        core.later(1.0)
    core.ended("Pong", code=1)
    if core.phase("Pong") is Phase.BACKOFF:
        core.to_wake()
    (spawn,) = of(core.last, commands.Spawn)
    assert (spawn.aside, spawn.from_step) == (("run/10000.ckpt",), None)


def test_a_loss_is_no_more_than_what_was_computed():
    core = saver(begin_anew=False)
    shows(core, 48_001, 48_001)
    core.later(60.0)
    again(core)
    finds(core, OwnCheckpoint())
    shows(core, 1, 1)
    assert core.program("Pong").counts.lost_steps <= core.program("Pong").counts.computed_steps
    other = Core(settings(spec("Pong", progress=Progress.AUTO, figures=READ, checkpoint_glob="run/*")), checks=1000)
    other.begin()
    finds(other, saved(other, 48_000))
    other.running("Pong")
    shows(other, 48_001, 48_001)
    other.later(60.0)
    shows(other, 48_300, 48_001)
    again(other)
    finds(other, OwnCheckpoint())
    shows(other, 1, 1)
    assert resumed(other).lost_steps == 300, "the others were computed elsewhere"


def test_an_attempt_that_dies_before_its_first_steps_are_judged_leaves_the_position_as_it_was():
    core = saver()
    shows(core, 0, 0, 0)
    again(core)
    assert core.program("Pong").steps == 50_000


@pytest.mark.parametrize(("first", "kind", "step"), [(48_100, facts.Resumed, 48_000), (4, facts.ResumeUnknown, None)])
def test_a_checkpoint_that_it_starts_with_says_the_step_unless_its_own_first_step_is_below(first, kind, step):
    core = at_step()
    own = OwnCheckpoint("run/48000.ckpt", step=48_000, saved_at_s=core.now_s, size_bytes=5)
    core.give(CheckpointsFound(core.now_s, "Pong", core.token("Pong"), own))
    shows(core, first, first)
    told = core.told(kind)[-1]
    assert step is None or (told.step, told.lost_steps) == (step, 50_000 - step)


# --- a launcher restarts its ranks within an attempt -------------------------------------------------------------------------


def fallen(step, *firsts, ckpt=4900, **more):
    """It came to 5,003, and its output fell back to these first steps."""
    core = script().running("Pong")
    shows(core, 4, 4)
    own = None if ckpt is None else saved(core, ckpt, age_s=0.0)
    for at in (5000, 5003):
        core.later(10.0)
        shows(core, at, 4, own=own, steps_per_s=10.0)
    core.later(10.0)
    shows(core, step, 4, own=own, fall=Fall(5003, firsts), **more)
    return core


def test_ranks_that_go_on_from_a_checkpoint_have_lost_the_steps_since():
    core = fallen(4902, 0, 4901, 4902)
    again = core.told(facts.Resumed)[-1]
    assert (again.step, again.lost_steps, again.at_least) == (4900, 103, False)
    assert again.why == "restarted within the attempt: from step 5,003 to 4,900, 103 steps lost (10s, 2.1 % of the attempt)"
    assert (core.program("Pong").steps, core.program("Pong").counts.lost_steps) == (4900, 103)
    said = {"fall": Fall(5003, (0, 4901, 4902)), "own": saved(core, 4900, age_s=9.0)}
    core.later(1.0)
    shows(core, 4903, 4, **said)
    core.begin(core.survivor("Pong", Survival.ALIVE))
    shows(core, 4904, 4, **said)
    assert len(core.told(facts.Resumed)) == 1, "a daemon that reads its log again counts it once"
    core.later(10.0)
    shows(core, 4902, 4, **said | {"fall": Fall(5100, (4901, 4902, 4903))})
    assert core.program("Pong").counts.lost_steps == 303, "a second restart from the same checkpoint"


def test_without_a_known_checkpoint_they_have_lost_at_least_that():
    core = fallen(4502, 4500, 4501, 4502, ckpt=None)
    again = resumed(core)
    assert (type(again), again.step, again.lost_steps, again.at_least) == (facts.FirstStepShown, 4500, 503, True)


@pytest.mark.parametrize(
    ("firsts", "ckpt"),
    [
        ((8, 16, 24), 4900),  # an evaluation, or an epoch
        ((8, 16, 24), None),
        ((5001, 5002, 5003), None),  # lines of two ranks
        ((4901, 4902), 4900),  # not known yet
        ((4600, 4601, 4602), 4900),
    ],
)
def test_other_falls_are_no_loss(firsts, ckpt):
    core = fallen(firsts[-1], *firsts, ckpt=ckpt)
    assert len(core.told(facts.Resumption)) == 1
