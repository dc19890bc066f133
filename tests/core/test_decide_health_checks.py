"""Services with health checks: from a row of failures to the restart, and back."""

import pytest
import removable
from core_kit import Core, commands, facts, of, settings, spec

from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.policy.script.service_health import Checked, HealthCheck
from supervisor.reports.view import program_view

CHECK = HealthCheck(tcp="127.0.0.1:6006")


def served(**more):
    own = spec("Board", service=True, progress=Progress.NONE, health=CHECK, **more)
    return Core(settings(own, **removable.alerts(command=("tell",)))).running("Board")


def look(core, failures=0, *, ok_at_s=None, after_s=30.0, **more):
    core.later(after_s)
    error = {"error": "connection refused", "failing_since_s": core.now_s - 30.0 * failures} if failures else {}
    return core.look(Board={"proc_state": "S", "health": Checked(failures, ok_at_s=ok_at_s, **{**error, **more})})


def shown(core):
    sample = core.memory.watches["Board"].sample
    return program_view(core.program("Board"), sample, core.settings, core.state, now_s=core.now_s)


@pytest.mark.needs("alerts")
def test_a_row_of_failures_is_examined_told_and_healed_as_a_hang_is():
    core = served()
    look(core, ok_at_s=20.0)
    assert shown(core)["health"] == {"ok": True, "failures": 0, "error": "", "ok_age_s": core.now_s - 20.0}
    assert not look(core, 2, ok_at_s=20.0).facts
    assert shown(core)["why"] == "its health check failed, 2 times in a row: connection refused"
    decision = look(core, 3, ok_at_s=20.0)
    stalled = of(decision, facts.Stalled)[0]
    assert (stalled.stall, stalled.age_s, stalled.limit_s) == ("unhealthy", 90.0, 90.0)
    assert "3 health checks in a row failed (127.0.0.1:6006): connection refused" in stalled.why
    assert of(decision, commands.TakeEvidence)
    assert [fact.alert for fact in of(decision, facts.AlertRaised)] == ["unhealthy"]
    core.evidence("Board", stacks="Thread 1")
    look(core, 4, ok_at_s=20.0)
    assert core.phase("Board") is Phase.STOPPING
    core.later(0.1).ended("Board", signal=15)
    assert core.program("Board").exit.cause == "stalled"
    assert core.phase("Board") in {Phase.BACKOFF, Phase.STARTING}


def test_one_that_answers_again_before_it_is_stopped_is_left_alone():
    core = served()
    look(core, 3, ok_at_s=20.0)
    assert core.attempt("Board").stall == "unhealthy"
    look(core, after_s=0.5)  # the newest check could not be made: that says nothing
    assert core.attempt("Board").stall == "unhealthy"
    decision = look(core, ok_at_s=core.now_s + 0.5, after_s=0.5)
    assert of(decision, facts.Revived)[0].why.startswith("answers again by itself")
    assert core.phase("Board") is Phase.RUNNING


def test_what_is_not_known_is_not_unhealthy():
    core = served()
    core.later(1.0).look(Board={"proc_state": "S", "health": Checked()})
    assert shown(core)["health"] == {"ok": None, "failures": 0, "error": "", "ok_age_s": None}
    assert not look(core, after_s=3600.0, unknown="gaierror: Name or service not known").facts
    assert shown(core)["health"]["ok"] is None
    assert shown(core)["health"]["error"] == "gaierror: Name or service not known"
    assert not core.look(Board={"proc_state": "S", "health": None}).facts
    assert shown(core)["health"]["ok"] is None
    core.load(settings(spec("Board", service=True, progress=Progress.NONE)))
    look(core, 9)
    assert core.phase("Board") is Phase.RUNNING, "its check has left the configuration"
    assert shown(core)["health"] is None
