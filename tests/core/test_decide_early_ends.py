"""Programs with `start_s` and `start_retries`: when they count as started, and when a start that fails is given up."""

import pytest
from core_kit import Core, facts, of, settings, spec

from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress

WEB = {"service": True, "progress": Progress.NONE, "start_s": 2.0, "start_retries": 2}


def begun(**more):
    core = Core(settings(spec("Web", **{**WEB, **more})))
    core.begin()
    return core


def starts_and_dies(core, after_s=0.5, **ending):
    core.spawned("Web")
    return core.later(after_s).ended("Web", **(ending or {"code": 1}))


def test_it_counts_as_started_once_it_has_lived_for_start_s():
    core = begun()
    core.spawned("Web")
    core.later(1.9).look(Web={"proc_state": "S"})
    assert core.phase("Web") is Phase.STARTING
    core.later(0.1).look(Web={"proc_state": "Z"})
    assert core.phase("Web") is Phase.STARTING, "a zombie has not stayed up"
    ready = of(core.look(Web={"proc_state": "S"}), facts.BecameReady)[0]
    assert (ready.after_s, ready.why) == (2.0, "counts as started, 2s after its start")


@pytest.mark.parametrize("ending", [{"code": 1}, {"code": 0}, {"signal": 9}])
@pytest.mark.parametrize("restart", ["failed", "always", "never"])
def test_failed_starts_are_tried_again_as_often_as_it_says_then_given_up(ending, restart):
    """As with Supervisor: neither the exit code nor autorestart matters before startsecs are over."""
    core, delays = begun(restart=restart), []
    for _ in range(2):
        delays.append(of(starts_and_dies(core, **ending), facts.BackedOff)[0].delay_s)
        assert core.phase("Web") is Phase.BACKOFF
        core.to_wake()
    assert delays == [1.0, 2.0]
    gave_up = of(starts_and_dies(core, **ending), facts.GaveUp)[0]
    assert "start 3 in a row failed, and start_retries = 2" in gave_up.why
    assert core.phase("Web") is Phase.FATAL
    core.ask("start", "Web")
    assert of(starts_and_dies(core), facts.BackedOff)[0].delay_s == 1.0, "the operator's word is a fresh start"


def test_one_that_had_started_begins_at_zero_again_and_is_restarted_as_any_other():
    core = begun()
    starts_and_dies(core)
    core.to_wake()
    backed_off = of(starts_and_dies(core, after_s=60.0), facts.BackedOff)[0]
    assert "failed start" not in backed_off.why
    assert core.program("Web").starts.early_ends == 0
    core.to_wake()
    assert of(starts_and_dies(core), facts.BackedOff)[0].delay_s == 1.0


def test_a_stop_and_a_configuration_that_cannot_work_are_no_failed_starts():
    core = begun()
    core.spawned("Web")
    core.ask("stop", "Web")
    core.later(0.1).ended("Web", code=0)
    assert (core.phase("Web"), core.program("Web").starts.early_ends) == (Phase.STOPPED, 0)
    core = begun(progress=Progress.BEAT)
    assert of(starts_and_dies(core, code=78), facts.GaveUp)
    assert core.program("Web").starts.early_ends == 0


def test_the_setting_may_have_gone_when_it_ends():
    core = begun(start_retries=0)
    core.spawned("Web")
    core.load(settings(spec("Web", **{**WEB, "start_retries": None})))
    assert of(core.later(0.5).ended("Web", code=1), facts.BackedOff)
