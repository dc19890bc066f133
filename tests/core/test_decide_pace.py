"""The usual rate of a program over its attempts, and what follows when a new attempt does not reach it."""

from dataclasses import replace

import pytest
import removable
from core_kit import Core, facts, gpu, gpus, settings, spec

from supervisor.model.inputs import Sampled
from supervisor.model.settings import Level, Progress
from supervisor.policy.box.gate import MB
from supervisor.policy.script.figures import Sources
from supervisor.policy.worker.health import OFF_GPU
from supervisor.reports.view import program_view

ALERTS = removable.alerts(command=("page",))
WARNING = "UserWarning: CUDA initialization: CUDA unknown error"


def config(level="light", own="own", **more):
    return replace(settings(spec("Pong", digest=f"{level} {own}", own_digest=own), **ALERTS, **more), level=Level(level))


def trained(rate=20.0, for_s=70, **more):
    core = Core(config(**more)).running("Pong")
    core.watch(for_s, Pong={"steps_per_s": rate})
    return core


def restarted(core):
    """It is killed, and trains again."""
    core.ended("Pong", signal=9)
    return core.running("Pong")


def ailing(core):
    return [each.why for each in core.told(facts.AlertRaised) if each.alert == "ailing"]


@pytest.mark.fault("slower-than-before")
@pytest.mark.needs("alerts")
def test_an_attempt_that_never_is_as_fast_as_earlier_ones_is_reported_with_its_last_warning():
    core = restarted(trained())
    core.watch(179, Pong={"steps_per_s": 0.5})
    assert not core.told(facts.Slowed)
    core.watch(5, Pong={"steps_per_s": 0.5})
    (slowed,) = core.told(facts.Slowed)
    assert (slowed.usual, slowed.anew) == (20.0, True)
    assert not ailing(core), "its evidence is read first"
    core.evidence("Pong", warning=WARNING)
    says = (
        "0.5 steps/s for 3m, usually 20 steps/s in earlier attempts; if that is usual now, use extralifectl restart"
        f"; its last warning: {WARNING}"
    )
    assert ailing(core) == [f"Pong: {says}"]
    view = program_view(core.program("Pong"), core.sample("Pong"), core.settings, core.state, now_s=core.now_s)
    assert (view["why"], view["trouble"]) == (says, "slow")
    core.watch(400, Pong={"steps_per_s": 0.5})
    assert core.program("Pong").at("light").rate == 20.0, "slowness does not become usual"
    core.watch(1, Pong={"steps_per_s": 19.0})
    assert core.attempt("Pong").slow is None


def test_one_that_becomes_slow_later_is_no_alert():
    core = trained(for_s=100)
    core.watch(70, Pong={"steps_per_s": 0.5})
    core.evidence("Pong", warning=WARNING)
    assert [fact.anew for fact in core.told(facts.Slowed)] == [False]
    assert not ailing(core)


def test_a_rate_that_fell_when_it_began_to_learn_is_usual_for_later_attempts():
    figures = Sources(log_regex=("step=(?P<step>.*)",))
    more = {"progress": Progress.AUTO, "figures": figures}
    core = Core(settings(spec("Pong", **more)), checks=1000).running("Pong")
    said = {"source": "figures", "live_at_s": None, "progress_at_s": float, "witness_at_s": float}
    core.watch(100, Pong={**said, "steps_per_s": 2000.0})
    core.watch(1900, Pong={**said, "steps_per_s": 150.0})
    assert core.attempt("Pong").slow is not None
    assert [fact.rate for fact in core.told(facts.PaceLearned)] == [2000.0, 150.0]
    restarted(core).watch(300, Pong={**said, "steps_per_s": 150.0})
    assert len(core.told(facts.Slowed)) == 1


def test_caches_may_fill_and_graphs_compile_first():
    core = restarted(trained())
    core.watch(150, Pong={"steps_per_s": 0.5})
    core.watch(100, Pong={"steps_per_s": 18.0})
    assert not core.told(facts.Slowed)


def on_gpu(core, *, holds, seconds=200, **more):
    """It trains, and holds memory on the GPU or not."""
    for _ in range(seconds // 10):
        pid = core.attempt("Pong").pid if holds else 99
        cards = gpus(gpu(**{"processes": ((pid, 512 * MB),)} | more))
        core.later(10.0).give(Sampled(core.now_s, {"Pong": core.sample("Pong")}, (), None, cards))
    return core


@pytest.mark.needs("alerts")
def test_an_attempt_that_uses_no_gpu_although_earlier_ones_did_is_reported_until_it_does():
    core = restarted(on_gpu(trained(), holds=True))
    on_gpu(core, holds=False, seconds=170)
    assert not core.told(facts.Sickened)
    on_gpu(core, holds=False)
    says = "holds no GPU memory; earlier attempts held 512 MiB, and the GPU answers: it trains on"
    assert [(fact.illness, fact.why) for fact in core.told(facts.Sickened)] == [(OFF_GPU, says)]
    assert ailing(core) == [f"Pong: {says}"]
    on_gpu(core, holds=True, seconds=10)
    assert core.attempt("Pong").illnesses == ()


@pytest.mark.parametrize(
    ("more", "level"), [({"processes": None}, "light"), ({"lost": "it has fallen off the bus"}, "light"), ({}, "heavy")]
)
def test_what_is_not_known_of_the_gpu_is_no_alert(more, level):
    """The driver lists no users, the GPU does not answer, or the program has other settings now."""
    core = on_gpu(trained(), holds=True)
    core.load(config(level))
    restarted(core)
    assert not on_gpu(core, holds=False, seconds=400, **more).told(facts.Sickened)


@pytest.mark.parametrize(
    ("change", "known"), [("attempt", 20.0), ("level", None), ("back", 20.0), ("config", None), ("operator", None)]
)
def test_a_usual_rate_belongs_to_a_configuration_and_a_level_until_an_operator_restarts_it(change, known):
    core = trained()
    if change in {"level", "back"}:
        core.load(config("heavy"))
        core.ended("Pong", code=75)
    if change == "back":
        core.load(config())
    if change == "config":
        core.load(config(own="other"))
    if change == "operator":
        core.ask("restart", "Pong")
    if change == "attempt":
        restarted(core)
    assert core.program("Pong").at(core.settings.level.name).rate == known


def test_a_rate_that_moves_little_is_not_recorded_again():
    core = trained()
    core.watch(900, Pong={"steps_per_s": 22.0})
    assert [fact.rate for fact in core.told(facts.PaceLearned)] == [20.0]
    core.watch(900, Pong={"steps_per_s": 30.0})
    assert len(core.told(facts.PaceLearned)) == 2


def test_the_first_minute_after_a_silence_says_nothing_of_the_rate():
    """An evaluation at the begin of an attempt: its first rates span that time."""
    core = restarted(trained())
    core.watch(20, Pong={"steps_per_s": 1.0, "steps": int})
    core.watch(300, Pong={"steps_per_s": None, "steps": 50})
    core.watch(100, Pong={"steps_per_s": 1.0, "steps": int})
    assert not [fact for fact in core.told(facts.Slowed) if fact.step is None]
