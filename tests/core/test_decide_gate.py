"""GATED: a program that has a slot waits for the memory of its GPU, and what ends the wait."""

from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, gpu, gpus, kinds, of, settings, spec

from supervisor.model.lifecycle import Phase
from supervisor.policy.box.gate import MB, GateSettings
from supervisor.policy.box.readings import Gpus


def core_of(*programs, slots=2, **gate):
    return Core(settings(*programs, slots=slots, gate=GateSettings(**{"min_free_mb": 12_000} | gate)))


def learned(core, name, gpu_mb):
    """As the record has it after an earlier life."""
    core.watch(61, **{name: {"cuda_bytes": gpu_mb * MB}})
    core.see(gpus(gpu(free_mb=70_000)))
    assert core.program(name).at("light").gpu_bytes == gpu_mb * MB


def test_it_waits_for_the_first_look_and_starts_where_there_is_room():
    core = core_of("Pong")
    core.begin()
    assert core.phase("Pong") is Phase.QUEUED, "nobody has looked at the GPU yet"
    core.see(gpus(gpu(free_mb=12_000)))
    assert core.phase("Pong") is Phase.STARTING
    assert not core.told(facts.Gated)


@pytest.mark.parametrize("found", [Gpus(None, "no answer", 9.0), Gpus((), "no driver", absent=True)])
def test_what_nobody_knows_is_asked_of_nobody_who_may_do_without(found):
    core = core_of("Pong", when_no_gpu="cpu")
    core.begin()
    assert core.phase("Pong") is Phase.QUEUED, "until the first look"
    core.see(found)
    assert core.phase("Pong") is Phase.STARTING


def test_it_is_gated_once_and_starts_when_the_memory_is_free():
    core = core_of("Pong", "Qbert", slots=1)
    core.begin()
    (gated,) = of(core.see(gpus(gpu(free_mb=3_000))), facts.Gated)
    assert (gated.gpu, gated.need_bytes, gated.free_bytes) == (0, 12_000 * MB, 3_000 * MB)
    assert "3,000 MiB are free" in core.program("Pong").why
    assert core.phase("Qbert") is Phase.QUEUED, "a gated program keeps its slot"
    for _ in range(5):
        assert kinds(core.later(1.0).see(gpus(gpu(free_mb=3_000)))) == []
    decision = core.later(1.0).see(gpus(gpu(free_mb=13_000)))
    assert kinds(decision) == ["SpawnIntended"]
    assert decision.facts[0].why == "the GPU memory that it needs is free, after 6s"


def test_bursts_of_another_training_do_not_look_like_room():
    core = core_of("Pong", poll_s=3.0)
    core.begin()
    low, high = 3_000 * MB, 20_000 * MB
    core.see(gpus(gpu(free_mb=20_000, free_by_second=(high, high, low, high))))
    assert core.phase("Pong") is Phase.GATED
    core.later(1.0).see(gpus(gpu(free_mb=20_000, free_by_second=(low, high, high, high))))
    assert core.phase("Pong") is Phase.STARTING


@pytest.mark.parametrize(
    ("free_mb", "held_mb", "phase"),
    [
        (20_000, 4_000, Phase.STARTING),  # 8,000 are still to come: exactly 12,000 are left
        (23_999, None, Phase.GATED),  # nobody knows what it holds: all of its 12,000 are still to come
        (24_000, None, Phase.STARTING),
        (12_000, 13_000, Phase.STARTING),  # it holds more than it was to need: it gives nothing back to others
        (11_999, 13_000, Phase.GATED),
    ],
)
def test_memory_that_a_starting_program_holds_already_is_not_counted_twice(free_mb, held_mb, phase):
    core = core_of("Pong", "Qbert")
    core.begin()
    core.see(gpus(gpu(free_mb=20_000)))
    core.spawned("Pong", pid=77)
    processes = () if held_mb is None else ((77, held_mb * MB),)
    core.later(1.0).see(gpus(gpu(free_mb=free_mb, processes=processes)))
    assert core.phase("Pong") is Phase.STARTING
    assert core.phase("Qbert") is phase


def test_a_small_one_does_not_slip_past_the_one_that_waits():
    core = core_of(spec("Pong", priority=1), spec("Qbert", min_free_mb=1_000))
    core.begin()
    core.see(gpus(gpu(free_mb=3_000)))
    assert core.phase("Qbert") is Phase.GATED
    assert core.program("Qbert").why.startswith("waits behind Pong")


@pytest.mark.parametrize(("free_mb", "pong"), [(3_000, Phase.GATED), (20_000, Phase.STARTING)])
def test_a_program_of_another_gpu_and_one_without_a_need_start_and_take_nothing_here(free_mb, pong):
    core = core_of(spec("Qbert", gpu=1, priority=1), "Pong", spec("Script", min_free_mb=0), slots=3)
    core.begin()
    core.see(gpus(gpu(free_mb=free_mb), gpu(1, free_mb=20_000)))
    assert [core.phase(name) for name in ("Qbert", "Pong", "Script")] == [Phase.STARTING, pong, Phase.STARTING]


@pytest.mark.parametrize(
    ("program", "gate", "batch"),
    [
        (spec("Pong", batch_size=512, fallback_batch=256), {}, 256),
        (spec("Pong", batch_size=512, fallback_batch=256), {"fallback_batch": 64}, 256),
        (spec("Pong", batch_size=512), {"fallback_batch": 64}, 64),
        (spec("Pong", batch_size=32), {"fallback_batch": 64}, None),
        (spec("Pong"), {"fallback_batch": 64}, 64),
        (spec("Pong"), {}, None),
    ],
)
def test_after_the_timeout_it_starts_with_its_fallback_batch_or_as_it_is(program, gate, batch):
    core = core_of(program, timeout_s=60.0, **gate)
    core.begin()
    core.see(gpus(gpu(free_mb=3_000)))
    core.later(59.0).see(gpus(gpu(free_mb=3_000)))
    assert core.phase("Pong") is Phase.GATED
    decision = core.later(1.0).see(gpus(gpu(free_mb=3_000)))
    (spawn,) = of(decision, commands.Spawn)
    assert spawn.batch_size == batch
    assert "waited 1m for 12,000 MiB" in decision.facts[0].why


def test_it_may_wait_for_ever_or_be_given_up():
    core = core_of("Pong", timeout_s=60.0, on_timeout="wait")
    core.begin()
    core.see(gpus(gpu(free_mb=3_000)))
    core.later(6000.0).see(gpus(gpu(free_mb=3_000)))
    assert core.phase("Pong") is Phase.GATED
    core.settings = replace(core.settings, gate=replace(core.settings.gate, on_timeout="give_up"))
    assert kinds(core.later(1.0).see(gpus(gpu(free_mb=3_000)))) == ["GaveUp"]
    assert core.phase("Pong") is Phase.FATAL
    core.ask("start", "Pong")
    assert core.phase("Pong") is Phase.GATED, "an operator's start begins anew"


def test_a_gpu_that_this_box_never_had_is_refused_and_gives_its_slot_to_the_next():
    core = core_of(spec("Pong", gpu=5, priority=1), "Qbert", slots=1, min_free_mb=0)
    core.begin()
    core.see(gpus(gpu(free_mb=70_000)))
    assert (core.phase("Pong"), core.phase("Qbert")) == (Phase.FATAL, Phase.STARTING)
    assert "gpu = 5, but this box has 1 GPU" in core.program("Pong").why


def test_what_it_held_before_is_what_its_next_start_waits_for():
    core = core_of("Pong", min_free_mb=0).running("Pong")
    learned(core, "Pong", 30_000)
    core.ended("Pong", signal=9)
    core.to_wake() if core.wake_at_s else None
    core.spawned("Pong")
    core.ended("Pong", signal=9)
    core.see(gpus(gpu(free_mb=20_000)))
    core.to_wake()
    assert core.phase("Pong") is Phase.GATED
    assert "as used before" in core.program("Pong").why
    assert core.program("Pong").retry.at_s is None


def test_a_restart_that_is_due_before_the_first_look_waits_in_the_queue():
    core = core_of("Pong", min_free_mb=0).running("Pong")
    learned(core, "Pong", 30_000)
    core.ended("Pong", signal=9)
    core.spawned("Pong")
    core.ended("Pong", signal=9)
    assert core.phase("Pong") is Phase.BACKOFF
    due_s = core.program("Pong").retry.at_s
    core.now_s = due_s - 1.0
    core.begin()
    core.now_s = due_s
    core.woke()
    assert core.phase("Pong") is Phase.QUEUED
    core.see(gpus(gpu(free_mb=70_000)))
    assert core.phase("Pong") is Phase.STARTING


# --- what CUDA lets it see -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("visible", "waits_for"), [("1,0", 1), ("GPU-1", 1), ("MIG-GPU-1/2/0", 1), ("0", None)])
def test_it_waits_for_the_gpu_that_it_sees(visible, waits_for):
    core = core_of(spec("Pong", visible=visible))
    core.begin()
    told = of(core.see(gpus(gpu(0, free_mb=70_000), gpu(1, free_mb=3_000))), facts.Gated)
    assert [fact.gpu for fact in told] == ([] if waits_for is None else [waits_for])
    assert core.phase("Pong") is (Phase.STARTING if waits_for is None else Phase.GATED)


def test_a_program_that_sees_no_gpu_holds_nobody_back_and_is_no_reason_for_a_veto():
    core = core_of(*(spec(name, visible="", when_no_gpu="cpu") for name in ("Pong", "Qbert")), slots=2)
    core.begin()
    core.see(gpus(gpu(0, free_mb=100)))
    assert (core.phase("Pong"), core.phase("Qbert")) == (Phase.STARTING, Phase.STARTING)
    core.spawned("Pong", pid=77)
    core.later(1.0).see(gpus(gpu(0, free_mb=100, processes=((77, 4_000 * MB),))))
    assert not core.told(facts.Gated)
