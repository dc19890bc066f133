"""From readings to healing: the ladder of a stall, the daemon's own absence, gaps, intervals, slowness."""

from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, kinds, of, settings, signals, spec

from supervisor.model.inputs import EvidenceTaken, Sampled, Survival, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.worker.checkpointing import CheckpointSettings


def stuck(core, **more):
    """Readings of a worker that makes no progress from now on, but whose side thread lives."""
    return {"progress_at_s": core.now_s, "live_at_s": lambda now_s: now_s, **more}


def names(told):
    return [type(fact).__name__ for fact in told]


def verdicts(told):
    """Without what is only counted."""
    return [name for name in names(told) if name != "Tallied"]


def test_evidence_comes_before_healing():
    core = Core(settings("Pong")).running("Pong")
    told = core.watch(31, Pong=stuck(core))
    assert names(told) == ["Stalled"]
    stalled = core.told(facts.Stalled)[0]
    assert (stalled.stall, stalled.limit_s) == ("hang", 30.0)
    assert [type(command) for command in core.last.commands] == [commands.TakeEvidence]
    assert core.phase("Pong") is Phase.RUNNING
    since = stuck(core, progress_at_s=core.now_s - 31)
    assert core.watch(3, Pong=since) == [], "the evidence is on its way"
    examined = core.evidence("Pong", stacks="File a.py", wchan="futex_wait")
    assert kinds(examined) == ["Examined"]
    assert examined.commands == ()
    assert "stacks, wchan" in core.told(facts.Examined)[0].why
    core.watch(1, Pong=since)
    assert of(core.last, commands.AskToLeave)
    assert of(core.last, facts.StopIntended)[0].grace_s == 3.0
    assert core.watch(2, Pong=since) == [], "nothing is judged any more: it is leaving"
    assert of(core.to_wake(), commands.KillTree)
    core.ended("Pong", signal=9)
    assert core.told(facts.Exited)[0].cause == "stalled"
    assert core.program("Pong").deaths.streak == 1
    assert core.phase("Pong") is Phase.STARTING
    assert core.told(facts.Exited)[0].why == "ended after a stall (hang), killed by SIGKILL"


def test_evidence_that_could_read_nothing():
    core = Core(settings("Pong")).running("Pong")
    core.watch(31, Pong=stuck(core))
    core.give(replace(evidence(core), evidence={}))
    assert core.told(facts.Examined)[0].why == "evidence taken before healing: nothing could be read"
    assert core.give(evidence(core)).facts == (), "and the late answer of another examination is not kept twice"


# --- the ladder -------------------------------------------------------------------------------------------------------


def evidence(core):
    return EvidenceTaken(core.now_s, "Pong", core.token("Pong"), {"stacks": "x"})


def test_a_worker_that_moves_again_while_it_is_examined_is_left_alone():
    core = Core(settings("Pong")).running("Pong")
    core.watch(33, Pong=stuck(core))
    core.evidence("Pong")
    told = core.watch(5, Pong={})
    assert names(told) == ["Revived"]
    assert core.told(facts.Revived)[0].why.startswith("makes progress again by itself")
    assert core.phase("Pong") is Phase.RUNNING
    assert core.attempt("Pong").stall is None
    told = core.watch(31, Pong=stuck(core))
    assert "Stalled" in names(told), "the next stall is judged afresh"
    assert of(core.last, commands.TakeEvidence)


def test_a_stopped_process_is_continued_first_and_revived():
    core = Core(settings("Pong")).running("Pong")
    told = core.watch(6, Pong=stuck(core, proc_state="T"))
    assert names(told)[-1] == "Stalled"
    assert signals(core.last) == ["SIGCONT"]
    assert not of(core.last, commands.TakeEvidence)
    assert core.watch(2, Pong={"progress_at_s": core.now_s - 6, "proc_state": "S"}) == []
    told = core.watch(1, Pong={})
    assert names(told) == ["Revived"]
    assert "after SIGCONT" in told[0].why
    assert core.told(facts.Exited) == []
    assert core.program("Pong").gaps_s == (), "a SIGSTOP must not widen the limit"


# --- stopped by someone -------------------------------------------------------------------------------------------------


def test_a_process_that_stays_stopped_is_examined_and_ended():
    core = Core(settings("Pong")).running("Pong")
    at_s = core.now_s
    core.watch(6, Pong=stuck(core, proc_state="T"))
    core.watch(5, Pong={"progress_at_s": at_s, "proc_state": "T"})
    assert not of(core.last, commands.TakeEvidence), "SIGCONT gets its time"
    core.watch(1, Pong={"progress_at_s": at_s, "proc_state": "T"})
    assert of(core.last, commands.TakeEvidence)
    core.evidence("Pong")
    core.watch(1, Pong={"progress_at_s": at_s, "proc_state": "T"})
    assert core.phase("Pong") is Phase.STOPPING


def test_flapping_between_d_and_s_is_no_flood_of_facts():
    core = Core(settings("Pong")).running("Pong")
    at_s, told = core.now_s, []
    core.watch(30, Pong={"progress_at_s": at_s})
    for second in range(60):
        told += core.watch(1, Pong={"progress_at_s": at_s, "proc_state": "DS"[second % 2]})
    assert len(told) <= 12


# --- inside the kernel --------------------------------------------------------------------------------------------------


# --- the daemon's own absence --------------------------------------------------------------------------------------------


def test_a_worker_that_hung_before_is_judged_once_all_that_gathered_was_heard():
    core = Core(settings("Pong")).running("Pong")
    hung = stuck(core)
    core.watch(29, Pong=hung)
    assert kinds(core.asleep(60.0).woke()) == ["DaemonSuspended"]
    assert verdicts(core.watch(4, Pong=hung)) == []
    assert verdicts(core.watch(1, Pong=hung)) == ["Stalled"]


def test_a_box_that_starves_judges_late_but_judges():
    core = Core(settings("Pong")).running("Pong")
    hung, told = stuck(core), []
    for _ in range(8):
        told += core.asleep(6.0).woke().facts
        told += core.watch(5, Pong=hung)
    assert verdicts(told)[:2] == ["DaemonSuspended", "Stalled"]
    assert 60.0 < core.told_at(facts.Stalled) - hung["progress_at_s"] < 90.0, "twice the time"


def test_nobody_is_killed_before_the_news_of_its_leaving_can_be_heard():
    core = Core(settings("Pong")).running("Pong")
    core.ask(Verb.STOP, "Pong")
    core.asleep(600.0)
    assert kinds(core.woke()) == ["DaemonSuspended"]
    assert core.wake_at_s == core.now_s + 5.0
    assert kinds(core.to_wake()) == ["KillIntended"]


def test_readings_are_judged_by_when_they_were_taken():
    """A look may take its time, and wait for its turn; no worker grows older by it."""
    core = Core(settings("Pong")).running("Pong")
    at_s = core.now_s
    seen = {"Pong": core.sample("Pong", progress_at_s=at_s)}
    for took_s in (20.0, 29.0):
        assert core.give(Sampled(at_s + took_s + 20.0, seen, began_s=at_s + took_s)).facts == ()
    assert "Stalled" in kinds(core.give(Sampled(at_s + 51.0, seen, began_s=at_s + 31.0)))


def test_evidence_that_was_outstanding_during_an_absence_heals_nobody_that_moved():
    core = Core(settings("Pong")).running("Pong")
    core.watch(31, Pong=stuck(core))
    core.asleep(3600.0).woke()
    core.evidence("Pong")
    assert core.phase("Pong") is Phase.RUNNING, "what was seen an hour ago says nothing"
    told = core.watch(5, Pong={})
    assert "Revived" in names(told)
    assert core.phase("Pong") is Phase.RUNNING


def test_a_reading_that_fails_does_not_undo_what_was_known():
    core = Core(settings("Pong")).running("Pong")
    core.watch(500, Pong={})
    blank = {"progress_at_s": None, "live_at_s": None, "phase": None, "proc_state": None, "ready": False}
    told = core.watch(20, Pong=blank)
    assert told == []
    told = core.watch(15, Pong=blank)
    assert [fact.stall for fact in told if isinstance(fact, facts.Stalled)] == ["silent"]


def test_an_adopted_worker_of_which_nothing_is_known_yet_is_not_judged_by_its_age():
    core = Core(settings(spec("Pong", progress=Progress.FILES))).running("Pong")
    core.later(86400.0).begin(core.survivor("Pong", Survival.ALIVE))
    told = core.watch(500, Pong={"progress_at_s": None, "live_at_s": None, "phase": None})
    assert not [fact for fact in told if isinstance(fact, facts.Stalled)]
    told = core.watch(120, Pong={"progress_at_s": None, "live_at_s": None, "phase": None})
    assert [fact for fact in told if isinstance(fact, facts.Stalled)]


def test_the_ladder_goes_on_over_a_daemons_death():
    core = Core(settings("Pong")).running("Pong")
    at_s = core.now_s
    core.watch(31, Pong=stuck(core))
    core.evidence("Pong")
    core.begin(core.survivor("Pong", Survival.ALIVE))
    core.watch(1, Pong={"progress_at_s": at_s})
    assert core.phase("Pong") is Phase.STOPPING, "it was examined already"
    core.ended("Pong", signal=9)
    assert core.told(facts.Exited)[0].cause == "stalled"


# --- gaps ---------------------------------------------------------------------------------------------------------------


def pause(core, seconds, **more):
    """No progress for so long, then it moves again."""
    at_s = core.now_s
    core.watch(seconds, Pong={"progress_at_s": at_s, **more})
    return core.watch(1, Pong={})


def test_gaps_are_learned_and_widen_the_limit():
    core = Core(settings("Pong")).running("Pong")
    core.watch(10, Pong={})
    told = pause(core, 20)
    assert [(fact.phase, fact.gap_s) for fact in told if isinstance(fact, facts.GapLearned)] == [("training", 20.0)]
    assert not [fact for fact in pause(core, 21) if isinstance(fact, facts.GapLearned)], "a fifth more, or no fact"
    pause(core, 90)
    assert not core.told(facts.Stalled), "5 x 20s are allowed now"
    assert core.program("Pong").gap_s("training") == 90.0
    assert core.program("Pong").gap_s("evaluating") is None


@pytest.mark.parametrize("why", ["first moves", "another phase", "stopped", "absent", "stalled", "tiny"])
def test_what_no_gap_is_learned_from(why):
    core = Core(settings("Pong")).running("Pong")
    if why == "first moves":
        core.watch(2, Pong={})
        pause(core, 20)
        assert core.told(facts.GapLearned) == []
    core.watch(10, Pong={})
    if why == "another phase":
        at_s = core.now_s
        core.watch(20, Pong={"progress_at_s": at_s, "phase": "evaluating"})
        core.watch(1, Pong={})
        core.watch(1, Pong={"phase": "saving"})
    elif why == "stopped":
        pause(core, 4, proc_state="T")
    elif why == "absent":
        core.later(25.0)
        core.watch(10, Pong={})
    elif why == "stalled":
        pause(core, 35)
        assert core.told(facts.Stalled)
    elif why == "tiny":
        core.watch(20, period_s=0.5, Pong={"progress_at_s": lambda now_s: float(int(now_s))})
    assert core.told(facts.GapLearned) == []


# --- intervals -----------------------------------------------------------------------------------------------------------


def test_the_interval_follows_what_saves_cost_and_is_written_for_the_worker():
    core = Core(settings("Pong", checkpoint=CheckpointSettings(first_s=60.0))).running("Pong")
    assert core.program("Pong").interval_s == 60.0
    told = core.watch(100, Pong={"ckpt_step": 5, "ckpt_count": 1, "ckpt_stall_s": 0.05})
    chosen = [fact for fact in told if isinstance(fact, facts.IntervalChosen)]
    assert len(chosen) == 1
    assert "a save costs 50ms" in chosen[0].why
    assert chosen[0].interval_s == core.program("Pong").interval_s < 60.0


def test_a_new_attempt_begins_with_the_interval_that_was_chosen():
    core = Core(settings("Pong", checkpoint=CheckpointSettings(first_s=60.0))).running("Pong")
    core.watch(100, Pong={"ckpt_step": 5, "ckpt_count": 1, "ckpt_stall_s": 0.05})
    decision = core.ended("Pong", signal=9)
    assert of(decision, commands.SetControl)[0].interval_s == core.program("Pong").interval_s < 60.0
    core.running("Pong")
    assert not of(core.last, facts.IntervalChosen), "what a save costs is remembered over attempts"


def test_slowness_is_reported_once_until_it_is_over():
    core = Core(settings("Pong")).running("Pong")
    core.watch(100, Pong={"steps_per_s": 1000.0})
    told = core.watch(200, Pong={"steps_per_s": 400.0})
    slowed = [fact for fact in told if isinstance(fact, facts.Slowed)]
    assert [(fact.rate, fact.usual) for fact in slowed] == [(400.0, 1000.0)]
    assert slowed[0].why == "400 steps/s for 1m, usually 1000 steps/s"
    assert core.phase("Pong") is Phase.RUNNING
    core.watch(5, Pong={"steps_per_s": None})
    core.watch(5, Pong={"steps_per_s": 1000.0})
    core.watch(59, Pong={"steps_per_s": 400.0})
    assert len(core.told(facts.Slowed)) == 1
    core.watch(5, Pong={"steps_per_s": 400.0})
    assert len(core.told(facts.Slowed)) == 2


# --- slowness --------------------------------------------------------------------------------------------------------------


def test_what_a_worker_says_cannot_move_the_cursor_of_who_reads_it():
    core = Core(settings("Pong")).running("Pong")
    core.ended("Pong", last_lines=("ValueError: \x1b[2Jgone",), code=1)
    (exited,) = core.told(facts.Exited)
    assert exited.why.isprintable()
    assert "ValueError" in exited.why
    assert exited.last_lines == ("ValueError: \x1b[2Jgone",)


# --- saving ----------------------------------------------------------------------------------------------------------------


def unsaved_reading(core, steps, **more):
    return {
        "progress_at_s": core.now_s, "live_at_s": core.now_s, "phase": "training", "phase_since_s": 0.0,
        "steps": steps, **more,
    }  # fmt: skip


def test_a_program_that_trains_on_without_saving_is_reported_once_until_it_saves():
    core = Core(settings("Pong")).running("Pong")
    saved = {"ckpt_step": 900, "ckpt_at_s": core.now_s, "ckpt_count": 1}
    core.look(Pong=unsaved_reading(core, 1000, **saved))
    core.now_s += 2000.0
    core.look(Pong=unsaved_reading(core, 50_000, **saved))
    (failed,) = core.told(facts.CheckpointFailed)
    assert failed.error.startswith("no checkpoint for 33m 20s since step 900")
    core.now_s += 10.0
    core.look(Pong=unsaved_reading(core, 50_500, **saved))
    assert len(core.told(facts.CheckpointFailed)) == 1
    core.now_s += 10.0
    core.look(Pong=unsaved_reading(core, 51_000, ckpt_step=50_900, ckpt_at_s=core.now_s, ckpt_count=2))
    assert core.state.programs["Pong"].attempt.save_error == ""


@pytest.mark.parametrize(
    "more",
    [
        {"phase": "evaluating"},
        {"phase_since_s": None},
        {"steps": 900},
        {"progress_at_s": 0.0},  # it hangs, and that is another rule's
        {"ckpt_count": 0, "ckpt_at_s": None, "ckpt_step": None},  # not ours: nobody knows whether it saves at all
    ],
)
def test_where_nothing_is_known_or_lost_nothing_is_reported(more):
    core = Core(settings("Pong")).running("Pong")
    saved = {"ckpt_step": 900, "ckpt_at_s": core.now_s, "ckpt_count": 1}
    core.now_s += 2000.0
    core.look(Pong={**unsaved_reading(core, 50_000, **saved), **more})
    assert not core.told(facts.CheckpointFailed)


def test_one_of_ours_that_has_never_saved_is_overdue_since_its_training_began():
    core = Core(settings(spec("Pong", builtin=True))).running("Pong")
    core.now_s += 2000.0
    core.look(Pong=unsaved_reading(core, 50_000))
    assert core.told(facts.CheckpointFailed)[0].error.startswith("no checkpoint for 33m 21s since training began")
