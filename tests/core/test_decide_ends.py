"""What follows from the end of a command, by all that is known about it (`policy/script/finish.py`)."""

import pytest
from core_kit import Core, commands, facts, of, settings, spec

from supervisor.model.inputs import CheckpointsFound, CommandLeft, EvidenceTaken, OwnCheckpoint, Survival
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.script.figures import Bar, Figures, Sources
from supervisor.policy.worker.no_room import Disk
from supervisor.reports.incidents import incidents
from supervisor.reports.view import program_view, program_views

TARGET = {"target": 100_000, "target_kind": "env_steps"}


def script(**more):
    return spec("t", **{"progress": Progress.AUTO, "stop_grace_s": 20.0, **more})


def running(**more):
    return Core(settings(script(**more)), checks=1000).running("t")


def left(core, **more):
    fields = {"at_s": core.now_s, "lived_s": 0.02, "processes": ("python3(7)",), "detached": True, **more}
    return CommandLeft(**fields)


def test_somebody_elses_sigterm_answered_with_0_far_below_the_target_is_a_death():
    core = running()
    core.later(5.0).look(t={"steps": 34, **TARGET})
    core.ended("t", code=0, shown=Figures(steps=34))
    assert core.phase("t") is Phase.STARTING
    assert core.told(facts.Exited)[-1].cause == "left"
    core.spawned("t")
    core.later(5.0).look(t={"steps": 100_000, **TARGET})
    core.ended("t", code=0)
    assert core.phase("t") is Phase.DONE


@pytest.mark.parametrize(("configured", "shown"), [(100, None), (None, 100), (None, None)])
def test_the_target_is_the_configured_one_or_that_of_its_output_when_no_sample_names_it(configured, shown):
    core = running(figures=Sources(target_steps=configured))
    core.ended("t", code=0, shown=Figures(steps=34, target=shown))
    assert core.phase("t") is (Phase.STARTING if configured or shown else Phase.DONE)


def test_with_beats_the_target_of_the_last_beat_counts_and_a_client_that_decided_to_leave_is_believed():
    core = running()
    core.look(t=TARGET)
    core.ended("t", code=0, steps=34, target=100_000)
    assert core.phase("t") is Phase.STARTING
    core.spawned("t")
    core.look(t=TARGET)
    core.ended("t", code=0, steps=34)
    assert core.phase("t") is Phase.DONE


def test_a_script_that_stops_early_is_done_at_its_third_end_without_getting_farther():
    core = running(figures=Sources(target_steps=100))
    for _ in range(2):
        core.ended("t", code=0, shown=Figures(steps=60))
        core.to_wake() if core.phase("t") is Phase.BACKOFF else None
        core.spawned("t")
        core.look(core.report("t", "resumed", step=60), t=None)
    assert core.program("t").suspicion.deaths == 0, "the checkpoint is not to blame"
    core.ended("t", code=0, shown=Figures(steps=60))
    assert core.phase("t") is Phase.DONE
    core.ask("start", "t")
    assert core.program("t").short_ends == ()


@pytest.mark.parametrize("saved", [False, True])
def test_one_that_shows_no_step_has_not_come_farther_than_those_before_it_or_its_checkpoint(saved):
    core = running(figures=Sources(target_steps=100))
    if saved:
        found = OwnCheckpoint("/w/34.pt", 34, core.now_s - 60.0)
        core.give(CheckpointsFound(core.now_s, "t", core.token("t"), found, ()))
    else:
        core.ended("t", code=1, shown=Figures(steps=34))
        core.spawned("t")
    core.ended("t", code=0)
    assert core.told(facts.Exited)[-1].cause == "left"
    assert core.told(facts.Exited)[-1].why.endswith("exit code 0 at step 34 of 100")


def test_a_checkpoint_that_was_saved_after_the_last_look_shows_that_it_has_finished():
    core = running(figures=Sources(target_steps=100))
    core.look(t={"own": OwnCheckpoint("/w/50.pt", 50, core.now_s)})
    core.ended("t", code=0, own=OwnCheckpoint("/w/100.pt", 100, core.now_s + 2.0))
    assert (core.phase("t"), core.program("t").ckpt.path) == (Phase.DONE, "/w/100.pt")


def test_the_steps_of_an_epoch_are_not_compared_with_a_target_of_all():
    core = running(figures=Sources(target_steps=240))
    core.ended("t", code=0, shown=Figures(steps=59, laps=3))
    assert core.told(facts.Finished)[-1].doubtful


def test_a_script_that_goes_on_after_its_training_was_killed_is_a_doubtful_finish():
    core = running()
    core.ended("t", code=0, last_lines=("run.sh: line 2:  7 Killed                  python3 train.py", "Done"))
    assert core.told(facts.Finished)[-1].doubtful


@pytest.mark.parametrize(("signal", "after_s", "phase"), [("SIGTERM", 5.0, Phase.STARTING), ("SIGTERM", 25.0, Phase.DONE), ("SIGUSR1", 5.0, Phase.DONE)])  # fmt: skip
def test_an_operators_signal_just_before_the_end_is_a_request_from_outside(signal, after_s, phase):
    core = running()
    core.ask("signal", "t", signal=signal)
    core.later(after_s).ended("t", code=0)
    assert core.phase("t") is phase


def test_the_bar_of_an_epoch_is_not_compared_with_the_steps_of_the_whole_training():
    core = running()
    found = OwnCheckpoint("/w/1500.pt", 1500, core.now_s - 60.0)
    core.give(CheckpointsFound(core.now_s, "t", core.token("t"), found, ()))
    core.look(core.report("t", "resumed", step=1500), t=None)
    shown = Figures(steps=25, target=50, bar=Bar(50, (), 25, core.now_s))
    core.ended("t", code=0, shown=shown)
    assert core.told(facts.Exited)[-1].why.endswith("exit code 0 at step 25 of 50")
    core.spawned("t")
    core.ended("t", code=1, shown=shown)
    for firsts, resumed, lines in (((1, 2, 3), 1500, ()), ((50,), 1500, ("Epoch 3/10",)), ((50,), None, ())):
        core.to_wake()
        core.spawned("t")
        core.look(*([core.report("t", "resumed", step=resumed)] if resumed else []), t=None)
        core.ended("t", code=1, shown=Figures(50, target=50, bar=Bar(50, firsts, 50, core.now_s)), last_lines=lines)
    assert [fact.cause for fact in core.told(facts.Exited)] == ["left", *["crash"] * 4]


def test_one_that_hangs_at_its_target_is_done_after_its_stall():
    core = running(stall_timeout_s=10.0)
    core.look(t={"steps": 99_999, **TARGET})
    hangs = {"steps": 99_999, **TARGET, "progress_at_s": core.now_s}
    core.watch(15, t=hangs)
    core.evidence("t")
    core.watch(1, t=hangs)
    assert core.phase("t") is Phase.STOPPING
    core.ended("t", signal=9, shown=Figures(steps=99_999))
    assert core.phase("t") is Phase.DONE
    assert "hung at its exit" in core.program("t").why


def test_one_without_a_target_whose_stack_is_in_the_interpreters_exit_is_done_after_its_stall():
    core = running(stall_timeout_s=10.0)
    core.look(t={"steps": 60})
    hangs = {"steps": 60, "progress_at_s": core.now_s}
    core.watch(15, t=hangs)
    stacks = {"stacks": "Current thread 0x7f (most recent call first):\n  line 9 in _shutdown"}
    core.give(EvidenceTaken(core.now_s, "t", core.token("t"), stacks))
    core.watch(1, t=hangs)
    core.ended("t", signal=9, shown=Figures(steps=60))
    assert core.phase("t") is Phase.DONE
    assert core.told(facts.Finished)[-1].doubtful


@pytest.mark.parametrize(("saved", "phase"), [(100, Phase.DONE), (50, Phase.STARTING), (None, Phase.STARTING)])
def test_a_crash_at_the_target_is_a_finish_if_the_newest_checkpoint_is_of_the_target(saved, phase):
    core = running(figures=Sources(target_steps=100), checkpoint_glob="*.pt")
    core.look(t={"steps": 99})
    path = "/w/last.pt" if saved else ""
    core.ended("t", signal=11, shown=Figures(steps=100), own=OwnCheckpoint(path, saved, core.now_s))
    assert core.phase("t") is phase


@pytest.mark.parametrize(("age_s", "phase"), [(2.0, Phase.DONE), (60.0, Phase.STARTING)])
def test_one_without_a_step_in_its_name_has_to_be_as_new_as_the_last_step(age_s, phase):
    core = running(figures=Sources(target_steps=100), checkpoint_glob="last.pt").later(100.0)
    core.look(t={"steps": 50})
    core.look(t={"steps": 100})
    core.ended("t", code=1, shown=Figures(steps=100), own=OwnCheckpoint("/w/last.pt", None, core.now_s - age_s))
    assert core.phase("t") is phase


def test_a_program_that_left_the_config_is_judged_by_its_exit_code():
    core = running()
    core.load(settings("other"))
    core.ended("t", code=0)
    assert "t" not in core.state.programs


def test_a_program_that_left_the_config_while_it_did_not_end_is_removed_at_its_end():
    core = running(stall_timeout_s=10.0)
    stalls = {"progress_at_s": core.now_s}
    core.watch(15, t=stalls)
    core.evidence("t")
    core.watch(60, t=stalls)
    assert core.told(facts.NotEnded)
    core.load(settings("other"))
    core.ended("t", signal=9)
    assert "t" not in core.state.programs


def test_a_job_that_runs_always_is_never_in_slow_retry_for_its_clean_ends():
    core = running(restart="always")
    for lived_s, wait_s in [(3600.0, 0.0), *[(0.5, 4.5)] * 20]:
        core.later(lived_s - (core.now_s - core.attempt("t").intended_at_s)).ended("t", code=0)
        backed_off = core.told(facts.BackedOff)[-1]
        assert (backed_off.slow, backed_off.delay_s) == (False, pytest.approx(wait_s))
        if core.phase("t") is Phase.BACKOFF:
            core.to_wake()
        core.spawned("t")
    assert (core.program("t").restarts, core.program("t").deaths.streak) == (0, 0)
    assert core.told(facts.Exited)[0].why == "ended, but `restart` is always: finished, exit code 0"
    assert not incidents(core.journal)


def test_work_in_the_background_runs_on_is_reported_with_the_remedy_and_is_not_done():
    core = running()
    gone = left(core)
    core.watch(19, t={"left": gone})
    assert not core.told(facts.CommandGone)
    core.watch(60, t={"left": gone})
    (fact,) = core.told(facts.CommandGone)
    assert fact.background
    assert not of(core.last, commands.AskToLeave)
    assert "exec" in fact.why
    (view,) = program_views(core.state, {"t": core.sample("t", left=gone)}, core.settings, now_s=core.now_s)
    assert (view["phase"], view["trouble"]) == ("RUNNING", "background")
    assert "in the background" in view["why"]
    assert [each.what for each in incidents(core.journal)] == ["work in the background"]
    assert [fact.alert for fact in core.told(facts.AlertRaised)] in ([], ["background"])
    core.ended("t", code=0, rest=(1, None))
    assert (core.phase("t"), core.told(facts.Exited)[-1].code) == (Phase.STARTING, 1)


def test_the_rest_of_the_work_is_ended_after_its_grace_and_named():
    core = running()
    core.look(t={"steps": 100})
    gone = left(core, lived_s=3600.0)
    told = core.watch(22, t={"steps": 100, "left": gone})
    assert [fact.background for fact in told if isinstance(fact, facts.CommandGone)] == [False]
    assert of(core.last, commands.AskToLeave), "asked again: a daemon may have died in between"
    core.ended("t", code=0, leftovers=("aws s3 sync(7)",))
    assert core.phase("t") is Phase.DONE
    assert core.program("t").why == "exit code 0; ended after 20s: aws s3 sync(7)"


def test_steps_after_the_command_had_left_show_that_they_are_the_work():
    core = running()
    gone = left(core, lived_s=3600.0, detached=False)
    core.look(t={"steps": 5, "left": gone})
    core.watch(25, t={"steps": 7, "left": gone})
    assert core.told(facts.CommandGone)[0].background


def test_an_upload_that_is_silent_for_hours_has_its_whole_grace():
    core = running(stop_grace_s=7200.0, stall_timeout_s=60.0)
    core.look(t={"steps": 100})
    gone = left(core, lived_s=3600.0)
    core.watch(1000, t={"steps": 100, "left": gone, "progress_at_s": core.now_s})
    assert (core.told(facts.Stalled), core.phase("t")) == ([], Phase.RUNNING)


def test_a_daemon_that_starts_in_the_grace_does_not_take_the_steps_that_it_reads_first_for_new_ones():
    core = running()
    gone = left(core, lived_s=3600.0)
    core.later(1.0).begin(core.survivor("t", Survival.ALIVE))
    core.look(t={"left": gone})
    core.watch(25, t={"steps": 100, "left": gone})
    assert [fact.background for fact in core.told(facts.CommandGone)] == [False]


def test_a_run_that_shows_epochs_0_to_4_of_5_has_finished_at_4():
    core = running(figures=Sources(target_steps=5))
    core.ended("t", code=0, shown=Figures(steps=4, first_steps=(0, 1, 2)))
    assert core.phase("t") is Phase.DONE


def test_the_cause_and_its_remedy_are_in_every_sentence_about_an_end():
    """History, the wait, `status` and the alert; "was full" alone tells nobody what to do."""
    from supervisor.features.alerts.settings import AlertSettings

    says, shm = "start the container with --shm-size", (Disk("/dev/shm", 64 << 20, 63 << 20),)
    core = Core(settings(spec("Pong"), spec("Qbert", restart="never"), alerts=AlertSettings(command=("x",))))
    core.running("Pong", "Qbert")
    for name in ("Pong", "Qbert"):
        core.ended(name, signal=7, disks=shm)
    told = [core.told(kind)[0].why for kind in (facts.Exited, facts.BackedOff, facts.NotRestarted)]
    told += [core.program(name).why for name in ("Pong", "Qbert")]
    told += [fact.why for fact in core.told(facts.AlertRaised) if fact.alert == "fatal"]
    assert [says in why for why in told] == [True] * 6


def test_a_save_without_room_says_what_to_do_in_status_history_and_the_alert():
    from supervisor.features.alerts.settings import AlertSettings

    core = Core(settings("Pong", alerts=AlertSettings(command=("x",)))).running("Pong")
    core.look(core.report("Pong", "checkpoint_failed", error="[Errno 28] No space left on device", free_bytes=0), Pong={})
    view = program_view(core.program("Pong"), None, core.settings, core.state, now_s=core.now_s)
    told = [core.told(facts.CheckpointFailed)[0].why, core.told(facts.AlertRaised)[0].why, view["why"]]
    assert ["make room (df -h, df -i)" in why for why in told] == [True] * 3
