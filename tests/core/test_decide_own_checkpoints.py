"""Checkpoints that a script writes itself: what a start begins with, what a restart cost, age, and what is set aside."""

import pytest
import removable
from core_kit import Core, commands, facts, of, settings, spec

from supervisor.model.inputs import CheckpointsFound, OwnCheckpoint
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.script.figures import Sources
from supervisor.reports.ledger import fold_accounts
from supervisor.reports.view import program_view

GLOB = {"progress": Progress.AUTO, "checkpoint_glob": "*.pt", "checkpoint_step": r"(\d+)"}


def script(**more):
    core = Core(settings(spec("Pong", **GLOB | more), **removable.alerts(urls=("json://me/a",))), checks=1000)
    core.begin()
    return core


def own(step, *, age_s=None, core=None, **more):
    """Without an age it was there before the first attempt."""
    saved_at_s = None if core is None else -10.0 if age_s is None else core.now_s - age_s
    return OwnCheckpoint(f"/w/{step}.pt", step, saved_at_s, 2_000_000, **more)


def starts(core, found, left=()):
    """The attempt finds this, and runs."""
    core.give(CheckpointsFound(core.now_s, "Pong", core.token("Pong"), found, left))
    core.spawned("Pong")


def trains(core, seconds=60.0, **more):
    """It says how far it is at each look. One that died before must live a bit longer than then to count as training."""
    seconds += (core.program("Pong").deaths.lived_s or 0.0) + 20.0
    core.watch(seconds, Pong={"phase": "training", "live_at_s": None, **more})


def dies(core, **ending):
    core.ended("Pong", **ending or {"signal": 9})
    while not of(core.last, commands.Spawn):
        core.to_wake()
    return of(core.last, commands.Spawn)[0]


def test_a_start_says_with_which_checkpoint_it_begins():
    core = script()
    starts(core, own(900, core=core, torn="/w/1000.pt", note="1000.pt is torn: its end is missing"))
    told = core.told(facts.StartsFrom)[0]
    assert told.why == "starts with checkpoint /w/900.pt (step 900, 2.0 MB); 1000.pt is torn: its end is missing"
    assert (told.path, told.step, told.saved_at_s, told.torn, told.sure) == ("/w/900.pt", 900, -10.0, "/w/1000.pt", True)
    program = core.program("Pong")
    assert (program.ckpt.path, program.ckpt.step, program.ckpt.size_bytes) == ("/w/900.pt", 900, 2_000_000)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (OwnCheckpoint(), "starts without a checkpoint"),
        (OwnCheckpoint(note="nothing matches"), "starts without a checkpoint: nothing matches"),
        (
            OwnCheckpoint(torn="/w/1.pt", note="1.pt is torn: it is empty"),
            "begins again from nothing, although there was /w/1.pt; starts without a checkpoint; 1.pt is torn: it is empty",
        ),
        (
            OwnCheckpoint(sure=False, note="a: no answer"),
            "begins again from nothing, although there was one that cannot be read; starts without a checkpoint: a: no answer",
        ),
        (OwnCheckpoint(error="no answer", sure=False), "its checkpoints could not be looked at: no answer"),
        (OwnCheckpoint("/w/a", size_bytes=1, sure=False, note="cut"), "starts with checkpoint /w/a (0.0 MB); cut"),
        (
            OwnCheckpoint("/w/a", size_bytes=1, put_back=True),
            "starts with checkpoint /w/a (0.0 MB), which was torn or gone and is put back from its copy",
        ),
    ],
)
def test_other_words_of_a_start(found, why):
    core = script()
    starts(core, found)
    assert core.told(facts.StartsFrom)[0].why == why
    late = CheckpointsFound(core.now_s, "Pong", "0" * 32, found)
    assert not core.give(late).facts, "of an attempt that is over"


def test_the_steps_that_a_death_cost_are_booked_exactly_where_its_beats_say_how_far_it_was():
    core = script()
    starts(core, OwnCheckpoint())
    trains(core, 100.0, steps=lambda now_s: int(now_s * 10), steps_per_s=10.0, source="beat", own=own(900, core=core))
    dies(core, signal=9, steps=1_013)
    starts(core, own(900, core=core, age_s=40.0))
    trains(core, 30.0, steps=lambda _: 905, source="beat")
    told = core.told(facts.Resumed)
    assert [(fact.step, fact.lost_steps, fact.at_least) for fact in told] == [(900, 113, False)]
    assert told[0].why.startswith("resumed at step 900 (last exit: killed), 113 steps lost")
    assert not core.told(facts.ResumeUnknown)
    ledger = fold_accounts(core.journal)
    assert ledger.timelines["Pong"].losses[-1].steps == 113


def test_a_script_that_counts_elsewhere_has_lost_at_least_what_was_seen():
    core = script()
    starts(core, OwnCheckpoint())
    trains(core, 100.0, steps=1_000, own=own(900, core=core))
    dies(core)
    starts(core, own(900, core=core))
    trains(core)
    assert [(fact.lost_steps, fact.at_least) for fact in core.told(facts.Resumed)] == [(100, True)]


def test_a_silent_script_loses_the_time_since_its_newest_checkpoint():
    core = script()
    starts(core, OwnCheckpoint())
    trains(core, 1000.0, own=None)
    trains(core, 100.0, own=own(900, core=core, age_s=0.0))
    saved_at_s = core.told(facts.CheckpointSeen)[0].saved_at_s
    dies(core)
    starts(core, own(900, core=core, age_s=core.now_s - saved_at_s))
    trains(core)
    assert [(fact.step, fact.lost_steps) for fact in core.told(facts.Resumed)] == [(900, None)], "unknown is not zero"
    ledger = fold_accounts(core.journal)
    assert ledger.timelines["Pong"].losses[-1].seconds == pytest.approx(120.0, abs=3.0)


@pytest.mark.parametrize(
    ("late_s", "asks", "ending", "lost"),
    [
        (1.0, "restart", {"code": 0}, (0, False)),  # it saved after it was asked to leave
        (1.0, "stop", {"code": 0}, (0, False)),  # another daemon starts it again
        (-5.0, "restart", {"code": 0}, (None, False)),  # five seconds before: it may have trained on without a word
        (1.0, "restart", {"signal": 9}, (None, False)),  # it had to be killed
        (1.0, "", {"code": 1}, (None, False)),  # nobody had asked it
    ],
)
def test_a_script_that_saves_as_it_is_asked_to_leave_has_lost_nothing(late_s, asks, ending, lost):
    core = script()
    starts(core, OwnCheckpoint())
    trains(core, 100.0, steps=900)
    asked_at_s = core.now_s
    if asks:
        core.ask(asks, "Pong")
    core.later(2.0)
    if asks == "stop":
        core.ended("Pong", **ending)
        core.later(600.0).begin()
        core.ask("start", "Pong")
    else:
        dies(core, **ending)
    starts(core, own(900, core=core, age_s=core.now_s - asked_at_s - late_s))
    trains(core)
    assert [(fact.lost_steps, fact.at_least) for fact in core.told(facts.Resumed)] == [lost]


TO_SET = "set steps_begin_anew = true if it goes on from its checkpoint, false if it begins from scratch"


@pytest.mark.parametrize(
    ("found", "sample", "why"),
    [
        ({"sure": False}, {}, "may have begun with a checkpoint that is newer than /w/900.pt"),
        ({"step": None}, {}, "the step of checkpoint /w/900.pt is not known: set checkpoint_step"),
        ({}, {"steps": 30}, f"counts its steps from 30, its newest checkpoint is of step 900 ({TO_SET})"),
        ({"path": "", "step": None}, {}, "did not report from which step"),
    ],
)
def test_where_it_goes_on_is_unknown(found, sample, why):
    core = script()
    starts(core, OwnCheckpoint())
    trains(core, steps=1_000)
    dies(core)
    starts(core, OwnCheckpoint(**{"path": "/w/900.pt", "step": 900, "size_bytes": 5} | found))
    trains(core, **sample)
    assert not core.told(facts.Resumed)
    told = core.told(facts.ResumeUnknown)[0].why
    assert told == f"trains again (last exit: killed), but {why}: how much work was lost is unknown"


def test_steps_show_that_it_trains_also_soon_after_an_early_death():
    one, two, speed = {"first_steps": (910,)}, {"first_steps": (910, 920)}, {"steps_per_s": 5.0}
    for sample, phase in (({}, Phase.STARTING), (one, Phase.STARTING), (two, Phase.RUNNING), (speed, Phase.RUNNING)):
        core = script()
        starts(core, OwnCheckpoint())
        trains(core, 60.0)
        dies(core)
        starts(core, own(900, core=core))
        core.watch(20.0, Pong={"phase": "training", "live_at_s": None, "source": "figures", "steps_per_s": None} | sample)
        assert core.phase("Pong") is phase


ANEW_WHY = "; it counts its steps anew, and they are added (if it has begun from scratch, set steps_begin_anew = false)"


def of_attempt(core, number, step, age_s=1.0):
    """A script that shows no steps has saved in a directory of this attempt: its names count from 0 at each start."""
    return OwnCheckpoint(f"/w/run_{number}/{step}.pt", step, core.now_s - age_s, 5)


def test_a_count_that_begins_anew_shows_in_the_names_of_the_checkpoints_alone():
    core = script(env=(("FROM", "$EXTRALIFE_RESUME"),))
    starts(core, OwnCheckpoint())
    trains(core, own=of_attempt(core, 1, 6000))
    dies(core)
    starts(core, of_attempt(core, 1, 6000))
    trains(core, own=of_attempt(core, 2, 3000, age_s=-1.0))
    told = core.told(facts.Resumed)[-1]
    assert (told.step, told.steps_before, told.why.endswith(ANEW_WHY)) == (6000, 6000, True)
    dies(core)
    assert core.program("Pong").ckpt.step == 9000
    starts(core, of_attempt(core, 2, 3000, age_s=30.0))
    assert core.told(facts.StartsFrom)[-1].step == 9000
    trains(core)
    told = core.told(facts.Resumed)[-1]
    assert (told.step, told.steps_before) == (9000, 9000), "it has begun anew before"


@pytest.mark.parametrize(
    ("env", "steps"), [((("FROM", "$EXTRALIFE_RESUME"),), [None, 6000, 9000, 12_000]), ((), [None, 6000, None, 3000])]
)
def test_a_count_that_began_anew_is_known_although_each_attempt_died_before_a_look(env, steps):
    core = script(env=env)
    starts(core, OwnCheckpoint())
    trains(core, own=of_attempt(core, 1, 6000))
    for number in (1, 2, 3):
        dies(core.later(20.0))
        starts(core, of_attempt(core, number, 6000 if number == 1 else 3000))
    assert [fact.step for fact in core.told(facts.StartsFrom)] == steps


def test_without_its_path_in_the_command_a_count_from_zero_in_names_is_unknown_or_a_loss():
    for anew, kind, lost in ((None, facts.ResumeUnknown, None), (False, facts.FirstStepShown, 3000)):
        core = script(figures=Sources(begin_anew=anew))
        starts(core, OwnCheckpoint())
        trains(core, steps=6000, own=of_attempt(core, 1, 6000))
        dies(core)
        starts(core, of_attempt(core, 1, 6000))
        trains(core, own=of_attempt(core, 2, 3000, age_s=-1.0))
        *_, told = [
            each for each in core.told(facts.AttemptFact) if isinstance(each, facts.Resumption | facts.ResumeUnknown)
        ]
        assert (type(told), getattr(told, "lost_steps", None)) == (kind, lost)


def test_the_first_attempt_resumes_from_what_lies_there_and_has_lost_nothing():
    core = script()
    starts(core, own(500, core=core))
    trains(core)
    assert [(fact.step, fact.lost_steps) for fact in core.told(facts.Resumed)] == [(500, None)]
    bare = script()
    starts(bare, OwnCheckpoint())
    trains(bare)
    assert not bare.told(facts.Resumed)
    assert not bare.told(facts.ResumeUnknown)


def test_what_the_disk_refuses_to_rename_is_set_aside_before_the_next_start():
    core = script()
    torn = {"torn": "/w/1000.pt", "note": "it is torn"}
    for _ in range(3):
        starts(core, own(900, core=core, **torn))
        dies(core, code=1)
    starts(core, own(900, core=core, **torn), left=("/w/1000.pt",))
    assert "; not set aside: /w/1000.pt" in core.told(facts.StartsFrom)[-1].why
    assert dies(core, code=1).aside == ("/w/1000.pt",)


def test_health_forgives_the_deaths_of_a_torn_one():
    well = script()
    for _ in range(2):
        starts(well, own(900, core=well, torn="/w/1000.pt"))
        dies(well, code=1)
    starts(well, own(900, core=well, torn="/w/1000.pt"))
    trains(well, 700.0)
    assert well.told(facts.Recovered)
    assert well.program("Pong").suspicion.deaths == 0
    dies(well, code=1)
    assert not well.told(facts.CheckpointQuarantined)


def test_another_torn_one_begins_its_own_count():
    core = script()
    for name in ("a", "a", "b", "b"):
        starts(core, own(900, core=core, torn=f"/w/{name}.pt"))
        dies(core, code=1)
    assert core.program("Pong").suspicion.deaths == 2
    assert not core.told(facts.CheckpointQuarantined)


def test_one_that_the_output_names_three_times_is_set_aside_by_its_path():
    core = script()
    for _ in range(3):
        starts(core, own(900, core=core, spare="/w/800.pt"))
        spawn = dies(core, **NAMED)
    assert spawn.aside == ("/w/900.pt",)
    assert [(fact.path, fact.step) for fact in core.told(facts.CheckpointQuarantined)] == [("/w/900.pt", 900)]
    starts(core, own(900, core=core), left=("/w/900.pt",))
    trains(core, 90.0)
    assert not of(core.last, commands.QuarantineCheckpoint)
    assert "is set aside now" in core.told(facts.Resumed)[-1].why
    assert dies(core).aside == ("/w/900.pt",)


def test_deaths_that_nothing_connects_with_the_checkpoint_leave_it_where_it_is_until_slow_retry():
    core = script()
    for _ in range(7):
        starts(core, own(900, core=core, spare="/w/800.pt"))
        spawn = dies(core, code=1, last_lines=("OSError: [Errno 98] Address already in use",))
    assert spawn.aside == ()
    for _ in range(2):
        starts(core, own(900, core=core, spare="/w/800.pt"))
        spawn = dies(core, code=1)
    assert spawn.aside == ("/w/900.pt",), "for half an hour nothing else has helped"


def test_deaths_after_a_step_leave_it_where_it_is():
    core = script(figures=Sources(log_regex=(r"step (?P<step>\d+)",)))
    for _ in range(9):
        starts(core, own(900, core=core, spare="/w/800.pt"))
        trains(core, 3.0, steps=901)
        trains(core, 3.0, steps=902)
        assert dies(core, **NAMED).aside == ()


def test_an_upload_that_fails_after_the_last_step_takes_no_checkpoint_away():
    core, end = script(), {"code": 1, "last_lines": ("ConnectionError: 503: m_900.pt",)}
    starts(core, own(800, core=core, spare="/w/700.pt"))
    trains(core, 30.0, own=own(900, core=core, age_s=0.0))
    dies(core, **end)
    for _ in range(12):
        starts(core, own(900, core=core, spare="/w/800.pt"))
        assert dies(core, **end).aside == ()


def test_one_with_which_a_start_died_that_did_not_know_it_is_not_innocent():
    """The directory did not answer before attempt 2, which died of the save of attempt 1."""
    core = script()
    starts(core, own(10, core=core))
    saved = own(20, core=core, age_s=-1.0, spare="/w/10.pt")
    dies(core.later(5.0))
    for found in (OwnCheckpoint(sure=False, error="no answer"), saved, saved, saved):
        starts(core, found)
        spawn = dies(core, **NAMED)
    assert spawn.aside == ("/w/20.pt",)


NAMED = {"code": 1, "last_lines": ('  File "/w/train.py", line 7, in load_checkpoint', "KeyError: 'weights'")}


def die_of(core, *steps, spare, deaths=3, **ending):
    """Starts from each of these checkpoints die, as often as it takes to set one aside."""
    for step in steps:
        for _ in range(deaths):
            starts(core, own(step, core=core, spare=spare if step == steps[-1] else "/w/older.pt"))
            dies(core, **ending or NAMED)
    return of(core.last, commands.Spawn)[0]


def alerts(core):
    removable.need("alerts")
    return [(alert.alert, alert.severity) for alert in core.told(facts.AlertRaised)]


def test_one_that_looks_whole_and_kills_at_once_is_set_aside_and_the_one_before_it_is_tried():
    core = script()
    spawn = die_of(core, 20, spare="/w/10.pt")
    assert spawn.aside == ("/w/20.pt",)
    (told,) = core.told(facts.CheckpointQuarantined)
    assert (told.path, told.step, told.on_trial) == ("/w/20.pt", 20, True)
    assert alerts(core) == [("quarantine", "warning")]
    starts(core, own(10, core=core))
    trains(core, 30.0, own=own(15, core=core, age_s=0.0))
    assert dies(core, code=1).back == ()
    assert core.program("Pong").suspicion.tried == (), "a new checkpoint confirms that the other one was the cause"


def test_attempts_that_save_and_are_killed_within_seconds_end_each_trial():
    """Each kill cuts the next file. A trial that had helped counted as one without effect: after two, a cut one stayed."""
    core = script()
    for step in (20, 30, 40):
        starts(core, own(step, core=core, spare=f"/w/{step - 10}.pt", sure=False))
        spawn = dies(core, code=1, last_lines=(f"ValueError: /w/{step}.pt is cut",))
        assert (spawn.aside, spawn.back) == ((f"/w/{step}.pt",), ())
        starts(core, own(step - 10, core=core))
        for at in (step - 9, step - 1):
            core.later(2.0).look(
                Pong={"live_at_s": None, "ready": False, "steps": at, "own": own(step, core=core, age_s=0.0)}
            )
        dies(core)
    assert not core.told(facts.CheckpointsPutBack)


def test_a_save_that_no_look_saw_is_known_at_the_next_start():
    core = script()
    starts(core, own(20, core=core, spare="/w/10.pt", sure=False))
    dies(core, code=1, last_lines=("ValueError: /w/20.pt is cut",))
    starts(core, own(10, core=core, age_s=20.0))
    dies(core.later(5.0))
    starts(core, own(30, core=core, age_s=1.0, spare="/w/20.pt", sure=False))
    assert (core.program("Pong").suspicion.tried, core.fruitless("aside")) == ((), 0)
    spawn = dies(core, code=1, last_lines=("ValueError: /w/30.pt is cut",))
    assert (spawn.aside, spawn.back) == (("/w/30.pt",), ())


def test_an_end_whose_save_no_look_saw_is_an_end_when_it_comes_again():
    """Both print that they have finished, and die of the same."""
    core = script()
    end = {"code": 1, "last_lines": ("finished", "ConnectionError: 503")}
    starts(core, own(None, core=core, age_s=5.0))
    dies(core.later(5.0), **end)
    starts(core, own(None, core=core, age_s=1.0))
    core.ended("Pong", **end)
    assert core.phase("Pong") is Phase.DONE


@pytest.mark.needs("alerts")
def test_the_only_one_that_kills_each_start_stays_and_a_person_is_told_at_the_third_death_although_each_takes_long():
    core = script()
    for _ in range(7):
        starts(core, own(20, core=core))
        dies(core.later(600.0), code=1)
    assert not core.told(facts.CheckpointQuarantined)
    assert [alert.why for alert in core.told(facts.AlertRaised)] == [
        "Pong: 3 deaths in a row with checkpoint /w/20.pt, without a step: no older one is whole, so it stays; see what it dies of"
    ]


def test_a_newer_one_that_may_be_whole_is_set_aside_on_trial():
    core = script()
    for step in (20, 20, 20, 10, 10, 10, None, None, None):
        starts(core, own(step, core=core, spare="/w/10.pt" if step == 20 else "", sure=False) if step else OwnCheckpoint())
        dies(core, code=1)
    paths = [(fact.path, fact.step) for fact in core.told(facts.CheckpointQuarantined)]
    assert paths == [("/w/20.pt", 20), ("/w/10.pt", 10)], (
        "also the last one, which only may be cut: it costs the whole night"
    )
    assert core.told(facts.CheckpointsPutBack)[0].paths == ("/w/20.pt", "/w/10.pt"), "it died without them too"


@pytest.mark.parametrize(("steps", "spare", "back"), [((20, 10), "", (20,)), ((40, 30, 20), "/w/10.pt", (40, 30))])
def test_if_it_dies_of_those_before_too_all_are_put_back_and_an_alert_says_so(steps, spare, back):
    core = script()
    spawn = die_of(core, *steps, spare=spare)
    paths = tuple(f"/w/{step}.pt" for step in back)
    assert (spawn.aside, spawn.back) == ((), paths)
    assert [fact.paths for fact in core.told(facts.CheckpointsPutBack)] == [paths]
    assert ("checkpoint", "critical") in alerts(core)
    die_of(core, steps[0], spare="/w/older.pt", deaths=4)
    assert len(core.told(facts.CheckpointQuarantined)) == len(back), "until it is healthy none is set aside again"
    assert core.program("Pong").suspicion.put_back == ()


def test_cuts_of_an_only_file_that_each_attempt_has_written_anew_are_judged_one_by_one():
    """No look came between a save and the kill within the next one, and there is no copy."""
    core = script()
    for _ in range(3):
        starts(core, OwnCheckpoint())
        dies(core)
        starts(core, own(900, core=core, age_s=1.0, sure=False))
        dies(core, code=1, last_lines=('  File "train.py", line 9, in load_model',))
    assert len(core.told(facts.CheckpointQuarantined)) == 3
    assert not core.told(facts.CheckpointsPutBack)


def test_a_request_of_a_person_ends_a_trial_without_a_result():
    core = script()
    die_of(core, 20, spare="/w/10.pt")
    core.ask("stop", "Pong")
    core.ended("Pong", signal=15)
    core.ask("start", "Pong")
    spawn = of(core.last, commands.Spawn)[0]
    assert (spawn.aside, spawn.back) == ((), ("/w/20.pt",))


@pytest.mark.parametrize("ending", [{"signal": 9}, {"signal": 9, "oom_line": "Killed process 1"}, {}])
def test_a_death_with_another_cause_is_not_held_against_a_checkpoint(ending):
    core = script()
    for _ in range(5):
        starts(core, own(20, core=core, spare="/w/10.pt"))
        core.ended("Pong", **ending or {"signal": 15})
        if not of(core.last, commands.Spawn):
            core.to_wake()
    assert not core.told(facts.CheckpointQuarantined)


@pytest.mark.needs("alerts")
def test_a_start_from_nothing_after_there_was_something_is_a_critical_alert_before_it_begins():
    core = script()
    starts(core, own(900, core=core))
    trains(core)
    dies(core)
    core.give(CheckpointsFound(core.now_s, "Pong", core.token("Pong"), OwnCheckpoint(note="nothing matches")))
    assert core.program("Pong").attempt.pid is None
    why = "there was /w/900.pt (step 900); starts without a checkpoint: nothing matches"
    assert core.told(facts.AlertRaised)[-1].why == f"Pong: begins again from nothing, although {why}"
    assert alerts(core) == [("checkpoint", "critical")]
    core.spawned("Pong")
    dies(core, code=1)
    starts(core, OwnCheckpoint(note="nothing matches"))
    assert len(alerts(core)) == 1, "there is nothing left to lose"


def test_an_odd_checkpoint_is_reported_at_a_start_and_once_while_it_runs():
    core, odd = script(), "m_9.pt is not of this training: 9,000"
    starts(core, own(10, core=core, odd=odd))
    assert core.told(facts.StartsFrom)[0].why.endswith(f"; {odd}")
    assert alerts(core) == [("checkpoint", "critical")]
    for number in ("9", "10", "11"):
        trains(core, 5.0, own=own(20, core=core, odd=odd.replace("9", number)))
    assert [fact.why for fact in core.told(facts.CheckpointsOdd)] == [odd]
    trains(core, 5.0, own=own(20, core=core, odd="another"))
    assert len(core.told(facts.CheckpointsOdd)) == 2


def test_checkpoints_of_an_older_experiment_that_displace_the_own_ones_are_set_aside_once():
    core, older = script(), ("/w/m_5000.pt",)
    starts(core, OwnCheckpoint())
    core.look(Pong={"own": OwnCheckpoint(displaced=older)})
    assert [each.paths for each in of(core.last, commands.SetAside)] == [older]
    core.look(Pong={"own": OwnCheckpoint(displaced=older), "steps": 1})
    assert not of(core.last, commands.SetAside)
    (told,) = core.told(facts.CheckpointsOdd)
    assert (
        told.why
        == "its own checkpoints are removed in favour of /w/m_5000.pt of an older experiment: these become .NAME.bad beside them"
    )


def test_an_attempt_has_saved_although_its_last_look_came_within_a_write():
    """It writes over one file all the time, finishes, and dies at its exit. The next one makes no step and dies of the same."""
    core = script()
    starts(core, own(None, core=core, age_s=5.0))
    for _ in range(2):
        trains(core, 60.0, own=own(None, core=core, age_s=-60.0), steps=int)
    core.later(1.0).look(Pong={"own": OwnCheckpoint(note="None.pt is torn", torn="/w/None.pt"), "live_at_s": None})
    end = {"code": 1, "last_lines": ("finished", "ConnectionError: 503")}
    dies(core, **end)
    assert core.told(facts.Exited)[-1].saved
    starts(core, own(None, core=core, age_s=0.0))
    core.ended("Pong", **end)
    assert core.phase("Pong") is Phase.DONE


def test_an_attempt_that_has_saved_restarts_at_once_and_closes_the_breaker():
    core = script(figures=Sources(log_regex=(r"step (?P<step>\d+)",)))
    for step in range(10, 130, 10):
        starts(core, own(step, core=core))
        core.watch(12.0, Pong={"phase": "training", "live_at_s": None, "steps": step + 1})
        core.look(
            Pong={"phase": "training", "live_at_s": None, "steps": step + 2, "own": own(step + 10, core=core, age_s=0.0)}
        )
        core.ended("Pong", signal=9)
        core.to_wake() if core.phase("Pong") is Phase.BACKOFF else None
        assert core.told(facts.BackedOff)[-1].why.endswith("restarts at once")
    assert (len(core.program("Pong").deaths.at_s), core.program("Pong").deaths.openings) == (1, 0)
    assert core.program("Pong").deaths.streak == 12, "an alert comes at every eighth death"


def test_a_first_attempt_that_ends_at_once_with_a_checkpoint_from_before_is_a_doubtful_finish():
    core = script()
    starts(core, own(5000, core=core, age_s=20 * 86_400.0))
    core.ended("Pong", code=0)
    assert core.told(facts.Finished)[-1].doubtful
    assert "nothing was trained: it began with /w/5000.pt" in core.told(facts.Finished)[-1].why


@pytest.mark.needs("alerts")
def test_a_file_that_still_names_one_that_was_set_aside_is_a_critical_alert():
    core = script()
    starts(core, own(10, core=core, stale="/w/latest still names 20.pt, which was set aside; write into it: 10.pt"))
    assert [(alert.alert, alert.severity, alert.why) for alert in core.told(facts.AlertRaised)] == [
        ("checkpoint", "critical", f"Pong: {core.told(facts.StartsFrom)[0].why}")
    ]
    assert core.told(facts.StartsFrom)[0].why.endswith(core.told(facts.StartsFrom)[0].stale)


def test_a_divergence_sets_aside_from_that_step_on_before_the_next_start():
    core = script(progress=Progress.BEAT)
    starts(core, own(900, core=core))
    trains(core, 30.0, steps=950, own=own(900, core=core))
    spawn = dies(core, code=65, steps=950)
    assert (spawn.from_step, spawn.aside) == (900, ())
    assert not [command for command in core.last.commands if isinstance(command, commands.RollBack)]
    starts(core, own(800, core=core))
    assert core.program("Pong").ckpt.roll_from is None


def doubted_from_s(core):
    wall_s = of(core.last, commands.Spawn)[0].doubt_from_wall_s
    return None if wall_s is None else pytest.approx(wall_s - core.wall_offset_s)


def test_what_may_be_cut_is_told_to_the_look_before_the_start():
    core = script()
    starts(core, OwnCheckpoint())
    trains(core)
    dies(core, signal=9, ended_at_s=core.now_s - 20.0)
    assert doubted_from_s(core) == core.now_s - 25.0
    starts(core, OwnCheckpoint())
    trains(core)
    core.reboot("boot-2", last_sign_wall_s=core.wall_offset_s + 7.0)
    assert doubted_from_s(core) == 7.0 - 60.0
    core.later(500.0).reboot("boot-3", last_sign_wall_s=core.wall_offset_s + 400.0)
    assert doubted_from_s(core) == 7.0 - 60.0, "no attempt began in between"


@pytest.mark.parametrize(("cause", "doubt_s"), [("orderly", None), ("unclean", 100.0 - 60.0)])
def test_the_first_reboot_after_an_end_decides_what_had_not_reached_the_disk(cause, doubt_s):
    core = script()
    starts(core, OwnCheckpoint())
    core.ask("stop", "Pong")
    core.ended("Pong", code=0)
    for boot, how, sign_s in (("boot-2", cause, 100.0), ("boot-3", "unclean", 600.0)):
        core.later(500.0).reboot(boot, cause=how, last_sign_wall_s=core.wall_offset_s + sign_s)
    core.ask("start", "Pong")
    assert doubted_from_s(core) == doubt_s


# --- age --------------------------------------------------------------------------------------------------------------


def view(core, **sample):
    seen = core.sample("Pong", **sample) if core.program("Pong").attempt else None
    return program_view(core.program("Pong"), seen, core.settings, core.state, now_s=core.now_s)


def test_status_shows_age_size_and_path_alive_and_ended():
    core = script()
    starts(core, OwnCheckpoint())
    trains(core, 60.0, own=own(900, core=core, age_s=0.0, note="a note"))
    shown = view(core, own=own(900, core=core, age_s=7.0, note="a note"))
    assert (shown["ckpt_step"], shown["ckpt_age_s"], shown["ckpt_bytes"]) == (900, 7.0, 2_000_000)
    assert (shown["ckpt_path"], shown["ckpt_note"]) == ("/w/900.pt", "a note")
    assert shown["why"] == "its checkpoints: a note"
    assert view(core, own=OwnCheckpoint(error="no answer"))["ckpt_note"] == "no answer"
    core.ask("stop", "Pong")
    core.ended("Pong", code=0)
    shown = view(core)
    assert (shown["ckpt_step"], shown["ckpt_path"], shown["ckpt_note"]) == (900, "/w/900.pt", "")
    assert shown["ckpt_age_s"] == pytest.approx(80.0, abs=1.0)


def test_a_program_that_stopped_saving_is_unsaved_until_the_next_one():
    core = script()
    starts(core, OwnCheckpoint())
    saved = own(900, core=core, age_s=0.0, interval_s=300.0)
    trains(core, 1000.0, own=saved)
    told = core.told(facts.CheckpointFailed)
    assert [fact.why for fact in told] == ["no checkpoint for 15m 1s (usually every 5m); it trains on"]
    assert view(core)["trouble"] == "unsaved"
    trains(core, 3.0, own=own(950, core=core, age_s=0.0, interval_s=300.0))
    assert core.attempt("Pong").save_error == ""
    assert view(core)["trouble"] is None


def test_a_program_that_writes_over_one_file_is_compared_with_its_earlier_attempts():
    core = script()
    starts(core, OwnCheckpoint())
    for _ in range(3):
        trains(core, 280.0, own=own(None, core=core, age_s=-300.0), steps=None)
    dies(core)
    starts(core, own(None, core=core, age_s=0.0))
    said = {"own": own(None, core=core, age_s=0.0), "steps": int, "first_steps": (1, 2, 3)}
    core.watch(890.0, Pong=said)
    assert not core.told(facts.CheckpointFailed)
    core.watch(30.0, Pong=said)
    assert [fact.error for fact in core.told(facts.CheckpointFailed)] == ["no checkpoint for 15m 1s (usually every 5m)"]


def test_a_late_save_ends_the_alert_and_shows_the_habit():
    core = script()
    starts(core, OwnCheckpoint())
    for _ in range(3):
        trains(core, 280.0, own=own(None, core=core, age_s=-300.0))
    trains(core, 2100.0, own=own(None, core=core, age_s=0.0))
    assert len(core.told(facts.CheckpointFailed)) == 1
    trains(core, 2100.0, own=own(None, core=core, age_s=0.0))
    assert core.attempt("Pong").save_error == ""
    assert len(core.told(facts.CheckpointFailed)) == 1


def test_without_steps_nothing_has_to_be_saved():
    core = script()
    starts(core, OwnCheckpoint())
    trains(core, 1000.0, own=own(None, core=core, age_s=0.0, interval_s=300.0), steps=7)
    assert not core.told(facts.CheckpointFailed), "it evaluates"


def test_a_pattern_that_matches_nothing_is_told():
    core = script()
    nothing = OwnCheckpoint(note="nothing matches checkpoint_glob /w/*.pt")
    starts(core, nothing)
    core.watch(7300.0, period_s=5.0, Pong={"own": nothing})
    assert [fact.error for fact in core.told(facts.CheckpointFailed)] == [
        "no checkpoint for 2h: nothing matches checkpoint_glob /w/*.pt"
    ]
    blind = script()
    starts(blind, nothing)
    blind.watch(7300.0, period_s=5.0, Pong={"own": OwnCheckpoint(error="no answer")})
    assert not blind.told(facts.CheckpointFailed), "nobody knows whether it saves"
