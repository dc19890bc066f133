"""Services beside the trainings: no slot, no judgement by progress, restarted as they ask for."""

import pytest
from adding_up import account_errors
from core_kit import Core, GateSettings, commands, gpu, gpus, of, settings, spec

from supervisor.model.inputs import Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.level.load import LoadSettings
from supervisor.reports import accounts
from supervisor.reports.ledger import fold_accounts


def board(**more):
    return spec("board", progress=Progress.NONE, service=True, **{"min_free_mb": 0, **more})


def running(*programs, slots=1, **more):
    core = Core(settings(*programs, slots=slots, **more), checks=1000)
    core.begin()
    for name in sorted(core.state.live):
        core.spawned(name)
    core.later(1.0).look(**dict.fromkeys(core.state.live))
    return core


def test_a_service_takes_no_slot_from_a_training():
    core = running(board(), "Pong", "Qbert")
    assert {name: core.phase(name) for name in ("board", "Pong", "Qbert")} == {
        "board": Phase.RUNNING, "Pong": Phase.RUNNING, "Qbert": Phase.QUEUED,
    }  # fmt: skip
    assert core.program("board").service


def test_fewer_slots_and_rotation_leave_it_alone():
    core = running(board(), "Pong", "Qbert", slots=2, load=LoadSettings(rotation_h=1.0))
    core.load(settings(board(), "Pong", "Qbert", slots=1, load=LoadSettings(rotation_h=1.0)))
    assert core.phase("board") is Phase.RUNNING
    assert [core.phase(name) for name in ("Pong", "Qbert")].count(Phase.STOPPING) == 1
    left = next(name for name in ("Pong", "Qbert") if core.phase(name) is Phase.STOPPING)
    core.ended(left, code=75)
    core.later(2 * 3600.0).look(**dict.fromkeys(core.state.live))
    assert core.phase("board") is Phase.RUNNING


def test_it_comes_back_although_every_slot_is_taken():
    core = running(board(), "Pong")
    core.ended("board", signal=9)
    assert of(core.last, commands.Spawn)[0].spec.name == "board"
    core.spawned("board")
    core.ask(Verb.STOP, "board")
    core.ended("board", code=0)
    core.ask(Verb.START, "board")
    assert core.phase("board") is Phase.STARTING


@pytest.mark.parametrize(
    ("restart", "ending", "phase"),
    [
        ("failed", {"code": 0}, Phase.DONE),
        ("failed", {"code": 1}, Phase.STARTING),
        ("always", {"signal": 9}, Phase.STARTING),
        ("never", {"code": 0}, Phase.DONE),
        ("never", {"code": 1}, Phase.EXITED),
    ],
)
def test_after_which_ends_it_is_started_again(restart, ending, phase):
    core = running(board(restart=restart))
    core.ended("board", **ending)
    assert core.phase("board") is phase


def test_its_time_is_its_own_and_no_slots():
    core = running(board(), "Pong")
    core.later(100.0).look(**dict.fromkeys(core.state.live))
    found = accounts.summary(fold_accounts(core.journal).closed(core.now_s))
    assert found.slots.wall_s == pytest.approx(101.0)
    assert {sheet.name: round(sheet.wall_s) for sheet in found.programs} == {"board": 101, "Pong": 101}
    core.ended("board", signal=9)
    found = accounts.summary(fold_accounts(core.journal).closed(core.now_s))
    assert found.slots.failures == 0
    assert not account_errors(core.journal, core.now_s)
    again = Core(core.settings, checks=1000)
    again.journal, again.state = list(core.journal), core.state
    assert again.state.programs["board"].service


def test_a_training_waits_behind_a_service_that_waits_for_the_memory_of_the_same_gpu():
    gate = GateSettings(min_free_mb=1000)
    core = Core(settings(board(min_free_mb=9000, priority=1), "Pong", gate=gate), checks=1000)
    core.begin()
    core.see(gpus(gpu(free_mb=5000)))
    assert (core.phase("board"), core.phase("Pong")) == (Phase.GATED, Phase.GATED)
    assert core.program("Pong").why.startswith("waits behind board")


def test_one_that_dies_while_its_gpu_is_lost_gives_no_slot_to_a_second_training():
    core = Core(settings(board(gpu=0, priority=1), "Pong", "Qbert", slots=1), checks=1000)
    core.begin()
    core.see(gpus(gpu(free_mb=5000), gpu(1)))
    core.running("Pong", "board")
    core.see(gpus(gpu(lost="GPU is lost"), gpu(1)))
    core.ended("board", signal=9)
    assert {name: core.phase(name) for name in ("board", "Pong", "Qbert")} == {
        "board": Phase.GATED, "Pong": Phase.RUNNING, "Qbert": Phase.QUEUED,
    }  # fmt: skip
