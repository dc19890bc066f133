"""Looks in which a worker shows nothing new: its limits, its evidence and its reports count at the next one."""

from dataclasses import replace

from core_kit import Core, commands, facts, kinds, of, settings, spec

from supervisor.model.settings import Progress

_ONCE = 10**9  # each turn is decided once, so that judgements can be counted


def quiet(core):
    """What is seen of a worker that shows nothing new from now on."""
    return {"progress_at_s": core.now_s, "live_at_s": None}


def test_a_stall_is_found_by_the_first_look_after_its_limit():
    core = Core(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=7.3))).running("Pong")
    began_s = core.now_s
    core.watch(8, period_s=0.5, Pong=quiet(core))
    assert core.told_at(facts.Stalled) - began_s == 7.5


def test_a_shorter_limit_counts_at_the_next_look():
    core = Core(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=60.0))).running("Pong")
    same = quiet(core)
    core.watch(20, Pong=same)
    core.load(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=10.0)))
    assert [type(fact).__name__ for fact in core.watch(1, Pong=same)] == ["Stalled"]


def test_evidence_that_has_come_is_acted_upon_at_the_next_look():
    core = Core(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=10.0))).running("Pong")
    same = quiet(core)
    core.watch(11, Pong=same)
    core.evidence("Pong")
    core.watch(1, Pong=same)
    assert of(core.last, commands.AskToLeave), "it is asked to leave"


def test_a_gap_reaches_to_the_last_look_that_saw_no_progress():
    core = Core(settings(spec("Pong", progress=Progress.LOG))).running("Pong")
    core.watch(10, Pong={})
    core.watch(23, Pong=quiet(core))
    core.watch(1, Pong={})
    assert [fact.gap_s for fact in core.told(facts.GapLearned)] == [23.0]


def test_a_report_is_heard_at_any_look():
    core = Core(settings(spec("Pong", progress=Progress.LOG))).running("Pong")
    same = quiet(core)
    core.watch(2, Pong=same)
    core.later(1.0)
    told = core.look(core.report("Pong", "resumed", step=5), Pong=same)
    assert kinds(told) == ["Resumed"]
    assert core.attempt("Pong") == replace(core.attempt("Pong"), resumed_step=5)
