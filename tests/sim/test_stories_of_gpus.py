"""Faults of the GPU, told: memory that somebody else holds, a driver that hangs, a GPU that falls off the bus."""

from dataclasses import replace

import pytest
from test_stories_of_levels import box, level, told, until
from world import CALM, Phase, World

from supervisor.model import facts
from supervisor.policy.box.gate import MB, GateSettings
from supervisor.policy.box.readings import Gpu, Gpus, Xid

HANGS = Gpus(None, "nvmlDeviceGetMemoryInfo has not answered for 5s", 5.0)


def gpus(*found):
    return Gpus(found)


def gpu(index=0, *, free_mb=30_000, **more):
    return Gpu(
        index, f"GPU-{index}", total_bytes=80_000 * MB, free_bytes=free_mb * MB, free_by_second=(free_mb * MB,) * 60, **more
    )


def phases(world):
    return [program.phase for program in world.core.state.programs.values()]


@pytest.mark.fault("gpu-memory")
def test_the_gpus_memory_is_taken_until_it_is_free_or_the_time_is_over():
    rules = GateSettings(min_free_mb=12_000, timeout_s=900.0)
    world = World(1, programs=2, slots=1, odds=CALM, look_s=1.0, gate=rules)
    world.gpus = gpus(gpu(free_mb=3_000))
    world.begin()
    world.run(600.0)
    assert sorted(phases(world)) == [Phase.GATED, Phase.QUEUED]
    (gated,) = told(world, facts.Gated)
    assert (gated.need_bytes, gated.free_bytes) == (12_000 * MB, 3_000 * MB)
    world.gpus = gpus(gpu(free_mb=30_000))
    world.run(60.0)
    assert sorted(phases(world)) == [Phase.QUEUED, Phase.RUNNING]
    world.gpus = gpus(gpu(free_mb=3_000))
    world.reboot(down_s=60.0)
    world.run(600.0)
    assert Phase.GATED in phases(world), "after a reboot as well"
    world.run(600.0)
    assert Phase.RUNNING in phases(world)
    assert told(world, facts.SpawnIntended)[-1].why.endswith("starts anyway")


@pytest.mark.fault("gpu-hangs")
def test_the_driver_hangs_for_an_hour_and_nobody_acts_on_it():
    world = until(box(), "medium")
    world.gpus = gpus(gpu(free_mb=30_000))
    world.run(60.0)
    before = phases(world)
    world.gpus = HANGS
    world.run(3600.0)
    (unknown,) = told(world, facts.GpusUnknown)
    assert "has not answered" in unknown.why
    assert not told(world, facts.Vetoed)
    assert phases(world).count(Phase.RUNNING) >= before.count(Phase.RUNNING)
    assert level(world) == "heavy", "what nobody knows holds no climb up"
    world.gpus = gpus(gpu(free_mb=30_000))
    world.run(60.0)
    (known,) = told(world, facts.GpusKnown)
    assert known.after_s == pytest.approx(3600.0, abs=30.0)


@pytest.mark.fault("gpu-lost")
def test_a_gpu_that_falls_off_the_bus_stops_the_climb_until_half_an_hour_after_it_is_back():
    world = until(box(), "medium")
    well = gpus(gpu(0, free_mb=30_000), gpu(1, free_mb=30_000))
    world.gpus = well
    world.run(30.0)
    xid = Xid(1, 1, 79)
    world.gpus = replace(gpus(well.gpus[0], replace(well.gpus[1], lost="it has fallen off the bus")), xids=(xid,))
    world.run(2 * 3600.0)
    assert (told(world, facts.GpuLost)[0].gpu, told(world, facts.XidReported)[0].xid) == (1, 79)
    assert {fact.rule for fact in told(world, facts.Vetoed)} == {"gpu_lost", "gpu_xid"}
    assert level(world) == "medium"
    world.kill_daemon()
    world.gpus = well  # another daemon, another connection to the driver: its list of Xids is new
    world.run(1700.0)
    assert level(world) == "medium", "it may fall off again"
    until(world, "heavy", hours=2)
    assert len(told(world, facts.XidReported)) == 1, "told once"
    assert not any(isinstance(fact, facts.RebootJudged) for fact in told(world, facts.Fact))


def test_a_reading_that_is_missing_now_and_then_vetoes_nothing_and_lifts_nothing_early():
    """Temperatures: hot, then no reading for an hour, then cool. What is missing is neither hot nor cool."""
    world = until(box(), "medium")
    hot = gpus(gpu(temperature_c=89.0, slowdown_c=90.0))
    world.gpus = hot
    world.run(60.0)
    assert [fact.rule for fact in told(world, facts.Vetoed)] == ["gpu_temperature"]
    world.gpus = gpus(gpu(temperature_c=None, slowdown_c=90.0))
    world.run(600.0)
    assert level(world) == "medium"
    assert not told(world, facts.VetoLifted)
    world.gpus = gpus(gpu(temperature_c=60.0, slowdown_c=90.0))
    until(world, "heavy", hours=2)
    assert len(told(world, facts.VetoLifted)) == 1
