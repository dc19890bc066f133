"""Programs whose own output is read: their first step, their losses of steps, and what is not read of them."""

import dataclasses

import pytest
from core_kit import Core, facts, settings, spec

from supervisor.model.inputs import CheckpointsFound, OwnCheckpoint
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.worker.figures import Sources
from supervisor.policy.worker.stall import StallSettings
from supervisor.reports.view import program_view

READ = Sources(log_regex=("step=(?P<step>.*)",))


def script(**more):
    return Core(settings(spec("Pong", progress=Progress.AUTO, figures=READ), **more), checks=1000)


def shows(core, step, first=None, **more):
    """What its log says now."""
    said = {"steps": step, "first_step": first, "source": "figures", "live_at_s": None, "progress_at_s": core.now_s, **more}
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
    shows(core, 4, first=4)
    core.later(60)
    shows(core, step, first=4, steps_per_s=100.0)
    return again(core)


def test_the_first_step_of_the_first_attempt():
    core = script().running("Pong")
    shows(core, 4, first=4)
    found = resumed(core)
    assert (type(found), found.step, found.lost_steps, found.at_least) == (facts.FirstStepShown, 4, None, True)
    assert found.why == "shows step 4 first"
    assert core.attempt("Pong").resumed_step == 4
    assert core.program("Pong").ckpt_step is None, "it says nothing of checkpoints"
    shows(core, 5, first=4)
    assert len(core.told(facts.Resumption)) == 1


def test_an_attempt_that_shows_a_smaller_step_first_has_lost_at_least_the_steps_between():
    core = at_step()
    shows(core, 48_100, first=48_100)
    found = resumed(core)
    assert (found.step, found.lost_steps, found.lost_s, found.at_least) == (48_100, 1900, 19.0, True)
    assert found.why.startswith(
        "shows step 48,100 first (last exit: killed): it has resumed there or before, at least 1,900 steps lost"
    )
    assert core.program("Pong").steps == 48_100
    core.later(700)
    shows(core, 49_000, first=48_100)
    assert not core.told(facts.ResumeUnknown)


def test_one_that_goes_on_beyond_it_has_lost_nobody_knows_how_much():
    core = at_step()
    shows(core, 50_200, first=50_200)
    assert (resumed(core).step, resumed(core).lost_steps) == (50_200, None)
    assert "lost steps unknown" in resumed(core).why


def test_the_last_step_of_its_log_counts_where_no_look_has_seen_it():
    core = script().running("Pong")
    shows(core, 900, first=4)
    core.ended("Pong", signal=9, shown_steps=1000)
    ended = core.told(facts.Exited)[-1]
    assert (ended.steps, ended.at_least) == (1000, True)


def test_a_step_that_it_says_to_have_resumed_from_is_as_good_as_a_report():
    core = at_step()
    shows(core, 48_100, first=48_100, resumed_step=48_000)
    assert (type(resumed(core)), resumed(core).step, resumed(core).lost_steps) == (facts.Resumed, 48_000, 2000)
    assert core.program("Pong").ckpt_step == 48_000


def test_a_report_counts_before_what_its_log_shows():
    core = at_step()
    core.look(core.report("Pong", "resumed", step=47_000), Pong={"steps": 47_100, "first_step": 47_100, "source": "figures"})
    shows(core, 47_100, first=47_100)
    assert [each.step for each in core.told(facts.Resumption)][1:] == [47_000]


def test_the_first_step_may_take_ten_minutes():
    core = at_step()
    core.watch(590, period_s=5.0, Pong={"steps": None, "source": "log", "progress_at_s": lambda now_s: now_s})
    assert not core.told(facts.ResumeUnknown)
    core.watch(150, period_s=5.0, Pong={"steps": None, "source": "log", "progress_at_s": lambda now_s: now_s})
    assert len(core.told(facts.ResumeUnknown)) == 1
    shows(core, 9, first=9)
    assert len(core.told(facts.Resumption)) == 1, "it was said that nobody knows"


@pytest.mark.parametrize("seen", [{"unread": "log_regex has matched none"}, {"steps": 48_100}])
def test_nobody_waits_for_a_first_step_that_will_not_come(seen):
    core = at_step()
    core.watch(120, Pong={"source": "log", "progress_at_s": lambda now_s: now_s, "steps": None, **seen})
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


def test_a_beat_knows_better():
    core = script().running("Pong")
    core.look(Pong={"steps": 5, "first_step": 3, "source": "beat"})
    assert not core.told(facts.Resumption)


def test_steps_that_stand_still_end_nothing_while_it_works():
    core = script().running("Pong")
    shows(core, 500, first=4)
    same = {"steps": 500, "first_step": 4, "source": "figures", "live_at_s": None, "progress_at_s": core.now_s}
    core.watch(3600, period_s=5.0, Pong={**same, "witness_at_s": lambda now_s: now_s - now_s % 5.0, "witness": "cpu"})
    assert core.told(facts.Quiet)
    assert not core.told(facts.Stalled)
    core.watch(700, Pong={**same, "witness_at_s": core.now_s, "witness": "cpu"})
    assert core.told(facts.Stalled)[0].stall == "silent"


def test_a_slow_pace_of_printed_lines_is_told_and_restarts_nothing():
    core = script(stall=StallSettings(slow_restart_s=100.0)).running("Pong")
    moving = {"progress_at_s": lambda now_s: now_s, "live_at_s": None, "source": "figures", "first_step": 4, "steps": 500}
    core.watch(120, Pong={**moving, "steps_per_s": 100.0})
    core.watch(400, Pong={**moving, "steps_per_s": 10.0})
    assert core.told(facts.Slowed)
    assert not core.told(facts.StopIntended)


def test_a_printed_nan_is_a_divergence_after_a_minute():
    core = script().running("Pong")
    for count in range(70):
        shows(core, 100 + count, first=4, nan_count=max(0, count - 1))
        core.later(1)
    assert core.told(facts.Diverged)
    assert core.told(facts.StopIntended)[0].reason == "diverged"


def test_status_shows_figures_of_another_name_and_why_some_are_not_known():
    core = script().running("Pong")
    sample = core.sample("Pong", loss=0.5, lr=1e-4, share_act=0.5, unread="matches nothing")
    shown = program_view(core.program("Pong"), sample, core.settings, core.state, now_s=core.now_s)
    assert (shown["figures"], shown["loss"], shown["time_shares"]) == ({"lr": 1e-4}, 0.5, {"act": 0.5})
    assert shown["why"] == "its figures are not known: matches nothing"
    fine = dataclasses.replace(sample, figures={}, unread="")
    assert program_view(core.program("Pong"), fine, core.settings, core.state, now_s=core.now_s)["figures"] is None


@pytest.mark.parametrize(("first", "kind", "step"), [(48_100, facts.Resumed, 48_000), (4, facts.FirstStepShown, 4)])
def test_a_checkpoint_that_it_starts_with_says_the_step_unless_its_own_first_step_is_below(first, kind, step):
    core = at_step()
    own = OwnCheckpoint("run/48000.ckpt", step=48_000, saved_at_s=core.now_s, size_bytes=5)
    core.give(CheckpointsFound(core.now_s, "Pong", core.token("Pong"), own))
    shows(core, first, first=first)
    assert (type(resumed(core)), resumed(core).step) == (kind, step)
    assert resumed(core).lost_steps == 50_000 - step
