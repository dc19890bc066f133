"""A program whose GPU is lost waits, says why, is told once, takes no slot, and goes on by itself when the GPU is back."""

from dataclasses import replace

import pytest
import removable
from adding_up import account_errors
from core_kit import Core, commands, facts, gpu, gpus, kinds, of, settings, spec

from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Level, Rung
from supervisor.policy.box.gate import MB, GateSettings
from supervisor.policy.box.lost_gpu import RETRY_S
from supervisor.policy.box.readings import Gpus
from supervisor.policy.level.load import LoadSettings
from supervisor.policy.upkeep.accounting import Account
from supervisor.reports import accounts
from supervisor.reports.incidents import incidents
from supervisor.reports.ledger import fold_accounts

NO_LIBRARY = Gpus((), "this box has no NVIDIA driver", absent=True)
ERROR_9 = Gpus(None, "NVML: Driver Not Loaded")


def on_gpu(*programs, index=0, slots=2, **more):
    """Programs that have run on this GPU of a box with two."""
    core = Core(settings(*programs, slots=slots, **removable.alerts(command=("tell",)), **more))
    core.begin()
    core.see(gpus(gpu(free_mb=70_000), gpu(1, free_mb=70_000)))
    names = [name for name, program in core.state.programs.items() if program.attempt]
    core.running(*names)
    held = tuple((core.attempt(name).pid, 4_000 * MB) for name in names)
    lists = [held if place == index else () for place in range(2)]
    core.later(1.0).see(gpus(*(gpu(place, free_mb=66_000, processes=lists[place]) for place in range(2))))
    return core


def alerts(core):
    removable.need("alerts")
    return [(fact.alert, fact.severity, fact.why) for fact in core.told(facts.AlertRaised) if fact.alert == "gpu"]


@pytest.mark.parametrize("found", [NO_LIBRARY, ERROR_9, gpus(), Gpus(None, "nvmlInit has not answered for 6s", 6.0)])
def test_after_a_restart_without_its_gpu_it_waits_and_is_told_once(found):
    core = on_gpu("Pong", "Qbert")
    core.reboot("boot-2")
    assert not core.last.commands or not of(core.last, commands.Spawn), "nothing starts before the first look"
    core.later(1.0).see(found)
    assert (core.phase("Pong"), core.phase("Qbert")) == (Phase.GATED, Phase.GATED)
    assert core.program("Pong").why.startswith("it ran on a GPU before, but ")
    ((kind, severity, text),) = alerts(core)
    assert (kind, severity, text.startswith("Pong, Qbert: it ran on a GPU before")) == ("gpu", "critical", True)
    assert kinds(core.later(1.0).see(replace(found))) == []
    core.later(3600.0).see(gpus(gpu(free_mb=70_000), gpu(1)))
    assert (core.phase("Pong"), core.phase("Qbert")) == (Phase.STARTING, Phase.STARTING)
    assert core.told(facts.SpawnIntended, "Pong")[-1].why == "its GPU is back, after 1h"


def test_the_hours_are_lost_by_the_box_and_the_incident_says_why():
    core = on_gpu("Pong", slots=1)
    core.reboot("boot-2")
    core.later(1.0).see(NO_LIBRARY)
    core.later(3600.0).see(gpus(gpu(free_mb=70_000), gpu(1)))
    ledger = fold_accounts(core.journal).closed(core.now_s)
    found = accounts.summary(ledger)
    assert not account_errors(core.journal, core.now_s)
    assert found.slots.seconds[Account.DOWN] == pytest.approx(3600.0, abs=62.0)
    assert found.programs[0].seconds[Account.DOWN] == pytest.approx(3600.0, abs=62.0)
    assert "its GPU was missing" in [each.what for each in incidents(core.journal)]


def test_a_box_whose_work_waits_for_a_lost_gpu_is_stuck():
    from supervisor.features.when_done.rules import Outlook
    from supervisor.features.when_done.work import outlooks

    core = on_gpu("Pong")
    assert outlooks(core.state, core.memory) == {"Pong": Outlook.OPEN}
    core.reboot("boot-2")
    core.later(1.0).see(NO_LIBRARY)
    assert outlooks(core.state, core.memory) == {"Pong": Outlook.OVER}


def test_another_loss_is_told_and_another_word_for_the_same_one_is_not():
    core = on_gpu("Pong", spec("Qbert", gpu=1), slots=2)
    core.reboot("boot-2")
    core.later(1.0).see(gpus(gpu(free_mb=70_000)))
    for _ in range(2):
        core.spawned("Pong")
        core.ended("Pong", signal=9)
    core.later(60.0).see(NO_LIBRARY)
    assert [text.partition(":")[0] for _, _, text in alerts(core)] == ["Qbert", "Pong"]
    core.later(1.0).see(ERROR_9)
    assert len(alerts(core)) == 2


def test_without_a_reading_for_five_seconds_it_waits_too():
    core = on_gpu("Pong")
    core.reboot("boot-2")
    core.later(4.9).see()
    assert core.phase("Pong") is Phase.QUEUED
    core.later(0.2).see()
    assert "the GPUs cannot be read (no reading yet)" in core.program("Pong").why


def test_what_never_used_a_gpu_takes_the_slot_and_says_nothing_new():
    core = on_gpu("Pong", spec("Zaxxon", priority=9999), slots=1)
    core.reboot("boot-2")
    core.later(1.0).see(NO_LIBRARY)
    assert (core.phase("Pong"), core.phase("Zaxxon")) == (Phase.GATED, Phase.STARTING)
    core.later(60.0).see(gpus(gpu(), gpu(1)))
    assert core.phase("Pong") is Phase.QUEUED
    assert core.program("Pong").why == "its GPU is back, but no slot is free"


def test_of_fewer_gpus_only_what_used_the_missing_one_waits():
    core = on_gpu("Pong", index=1, slots=1)
    core.reboot("boot-2")
    core.later(1.0).see(gpus(gpu(free_mb=70_000)))
    assert "GPU 1 is gone (this box has 1 GPU)" in core.program("Pong").why
    other = on_gpu("Pong", slots=1)
    other.reboot("boot-2")
    other.later(1.0).see(gpus(gpu(free_mb=70_000)))
    assert other.phase("Pong") is Phase.STARTING
    assert alerts(other) == [("gpu", "warning", "this box has 1 GPU (A100); it had 2 before")]


def test_the_reason_is_the_present_one_and_a_wait_for_memory_begins_anew():
    core = on_gpu(spec("Pong", min_free_mb=12_000), gate=GateSettings(timeout_s=600.0), slots=1)
    core.reboot("boot-2")
    core.later(1.0).see(NO_LIBRARY)
    core.later(900.0).see(ERROR_9)
    assert "Driver Not Loaded" in core.program("Pong").why
    core.later(900.0).see(gpus(gpu(free_mb=3_000), gpu(1)))
    assert core.program("Pong").why.startswith("waits for 12,000 MiB")
    assert not core.program("Pong").gpu_lost
    core.later(599.0).see(gpus(gpu(free_mb=3_000), gpu(1)))
    assert core.phase("Pong") is Phase.GATED
    core.later(1.0).see(gpus(gpu(free_mb=13_000), gpu(1)))
    assert core.told(facts.SpawnIntended)[-1].why == "the GPU memory that it needs is free, after 10m"
    assert len(alerts(core)) == 1


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (spec("Pong", gpu=1), "gpu = 1"),
        (spec("Pong", min_free_mb=5), "min_free_mb = 5"),
        (spec("Pong", gpu=0, asks_gpu='device = "cuda"', min_free_mb=5), 'gpu = 0, device = "cuda", min_free_mb = 5'),
    ],
)
def test_what_asks_for_a_gpu_waits_on_a_box_that_never_had_one(program, words):
    core = Core(settings(program))
    core.begin()
    core.see(NO_LIBRARY)
    assert core.program("Pong").why.startswith(f"it asks for a GPU ({words}), but this box has no NVIDIA driver: ")


@pytest.mark.parametrize("own", [True, False])
def test_the_cpu_by_an_explicit_word(own):
    core = on_gpu(spec("Pong", when_no_gpu="cpu" if own else None), gate=GateSettings(when_no_gpu="wait" if own else "cpu"))
    core.reboot("boot-2")
    core.later(1.0).see(NO_LIBRARY)
    (spawn,) = of(core.last, commands.Spawn) or of(core.see(NO_LIBRARY), commands.Spawn) or [None]
    assert core.phase("Pong") is Phase.STARTING
    assert spawn is None or spawn.when_no_gpu == "cpu"


def test_the_word_ends_the_wait():
    core = on_gpu("Pong")
    core.reboot("boot-2")
    core.later(1.0).see(NO_LIBRARY)
    core.load(replace(core.settings, programs=(spec("Pong", when_no_gpu="cpu"),)))
    assert core.phase("Pong") is Phase.STARTING


def test_a_built_in_game_waits_where_another_one_ran_on_a_gpu():
    core = on_gpu("Pong", spec("Qbert", builtin=True, priority=9999), spec("Script", priority=9999), slots=1)
    core.reboot("boot-2")
    core.later(1.0).see(NO_LIBRARY)
    assert core.program("Qbert").why.startswith("programs of this box ran on a GPU before, but ")
    assert core.phase("Script") is Phase.STARTING


def test_every_gpu_hidden_from_the_daemon_is_a_lost_gpu():
    core = on_gpu("Pong")
    core.settings = replace(core.settings, programs=(spec("Pong", visible=""),))
    core.reboot("boot-2")
    core.later(1.0).see(gpus(gpu(free_mb=70_000)))
    assert "CUDA_VISIBLE_DEVICES = '' shows it no GPU" in core.program("Pong").why


# --- the record of what it used ------------------------------------------------------------------------------------------


def test_the_gpus_of_an_attempt_are_recorded_once_each_by_processes_or_by_its_own_report():
    core = Core(settings("Pong")).running("Pong")
    pid = core.attempt("Pong").pid
    two = gpus(gpu(processes=((pid, 5),)), gpu(1))
    assert [fact.gpus for fact in of(core.see(two), facts.GpuUsed)] == [(0,)]
    assert not of(core.later(1.0).see(replace(two)), facts.GpuUsed)
    both = gpus(gpu(), gpu(1, processes=((4321, None),)))
    core.look(Pong={"pids": (4321,)})
    (more,) = of(core.later(1.0).see(both), facts.GpuUsed)
    assert (more.gpus, more.why) == ((0, 1), "holds memory on GPUs 0, 1")
    hidden = Core(settings(spec("Pong", gpu=1)))
    hidden.begin()
    hidden.see(gpus(gpu(), gpu(1)))
    hidden.running("Pong")
    hidden.look(Pong={"uses_cuda": True})
    assert [fact.gpus for fact in of(hidden.see(gpus(gpu(), gpu(1))), facts.GpuUsed)] == [(1,)]


def test_without_nvml_its_own_report_lets_the_worker_itself_look_for_its_gpu():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"cuda_bytes": 7})
    assert [fact.gpus for fact in of(core.see(NO_LIBRARY), facts.GpuUsed)] == [()]
    core.reboot("boot-2")
    (spawn,) = of(core.later(1.0).see(NO_LIBRARY), commands.Spawn)
    assert spawn.when_no_gpu == "wait"


# --- a worker that finds none --------------------------------------------------------------------------------------------


def test_a_worker_that_finds_no_gpu_waits_two_minutes_and_is_told_once():
    core = on_gpu("Pong")
    (spawn,) = of(core.ended("Pong", signal=9), commands.Spawn)
    assert spawn.when_no_gpu == "wait"
    core.spawned("Pong")
    core.ended("Pong", code=69, last_lines=("workers: torch sees no GPU",))
    assert core.phase("Pong") is Phase.GATED
    assert "its worker found no GPU (exit code 69: workers: torch sees no GPU)" in core.program("Pong").why
    assert core.program("Pong").restarts == 1, "the death before, and not this end"
    seen = gpus(gpu(free_mb=70_000), gpu(1))
    core.later(RETRY_S - 1.0).see(seen)
    assert core.phase("Pong") is Phase.GATED
    core.later(1.0).see(replace(seen))
    assert core.phase("Pong") is Phase.STARTING
    core.spawned("Pong")
    core.ended("Pong", code=69)
    core.later(1.0).see(NO_LIBRARY)
    assert "this box has no NVIDIA driver" in core.program("Pong").why, "the box knows it now, too"
    core.later(1.0).see(replace(seen))
    assert core.phase("Pong") is Phase.STARTING, "and that it is back"
    assert len(alerts(core)) == 1


@pytest.mark.parametrize(("launcher", "word"), [({"gpus": 1}, "wait"), ({"gres": "gpu:a100:1"}, "wait"), ({}, "")])
def test_a_job_with_a_gpu_refuses_the_cpu_of_its_node(launcher, word):
    from supervisor.features.slurm.settings import LauncherSettings

    core = Core(settings("Pong", launcher=LauncherSettings(kind="slurm", **launcher)))
    (spawn,) = of(core.begin(), commands.Spawn)
    assert spawn.when_no_gpu == word
    core.spawned("Pong")
    core.ended("Pong", code=69)
    assert core.phase("Pong") is Phase.GATED
    core.later(RETRY_S).see(NO_LIBRARY)
    assert core.phase("Pong") is Phase.STARTING, "the GPUs of this host do not matter there"


# --- another GPU ---------------------------------------------------------------------------------------------------------


def test_another_model_is_told_and_begins_the_record_of_levels_anew():
    core = on_gpu("Pong")
    core.later(61.0).look(Pong={"rss_bytes": 9})
    assert core.program("Pong").by_level
    t4 = replace(gpu(), name="T4")
    core.reboot("boot-2")
    (found,) = of(core.later(1.0).see(gpus(t4)), facts.GpusFound)
    assert found.why == "this box has 1 GPU (T4) instead of A100: its levels and memory needs are measured anew"
    assert alerts(core) == [("gpu", "warning", found.why)]
    assert (core.state.levels, core.program("Pong").by_level, core.state.gpus.models) == ({}, {}, ("T4",))
    assert core.phase("Pong") is Phase.STARTING
    assert not of(core.later(1.0).see(gpus(t4, gpu(1))), facts.LevelChosen)
    assert core.told(facts.GpusFound)[-1].another, "the A100 is no part of the new record"
    assert not core.told(facts.GpusFound)[0].another


def test_a_climb_goes_back_to_its_first_level_with_another_gpu():
    light, heavy = Level("light", slots=1), Level("heavy", slots=2)
    rungs = tuple(Rung(level, (spec("Pong"), spec("Qbert"))) for level in (light, heavy))
    core = Core(replace(settings("Pong", "Qbert"), level=light, ladder=rungs, load=LoadSettings(mode="climb")))
    core.begin()
    core.see(gpus(gpu()))
    core.ask("pin", "heavy")
    core.ask("unpin")
    assert core.state.level == "heavy"
    core.later(1.0).see(gpus(replace(gpu(), name="T4")))
    assert core.state.level == "light"
    assert core.told(facts.LevelChosen)[-1].why == "another GPU: the record of levels begins anew"
