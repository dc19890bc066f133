"""The deciding thread's own look: threads that fail, ends that nobody has reported, and the end of the daemon itself."""

from core_kit import Core, facts, of, settings

from supervisor.model import commands
from supervisor.model.inputs import FoundationsLooked, SupervisionLooked
from supervisor.policy.box.foundations import Finding, Look
from supervisor.policy.box.supervision import Failing
from supervisor.reports.status_view import troubles_view

SHORT = Failing("sampler", "no descriptor", 1.0, vital=True)


def looked(core, *failing, gone=()):
    return core.give(SupervisionLooked(core.now_s, failing, frozenset(gone)))


def begun():
    return Core(settings("Pong")).running("Pong")


def test_a_failing_thread_is_trouble_until_it_works_again():
    core = begun()
    core.give(FoundationsLooked(core.now_s, (Finding("lock", "/s/lock", Look.UNKNOWN),)))
    (lost,) = of(looked(core, SHORT), facts.FoundationLost)
    assert lost.why == (
        "the thread sampler fails (no descriptor) and is tried again; until then ends and readings of workers may be unknown"
    )
    assert (lost.look, lost.troubled) == ("failing", True)
    assert [each["name"] for each in troubles_view(core.memory)] == ["lock", "thread sampler"]
    (over,) = of(looked(core.later(3.0)), facts.FoundationRestored)
    assert over.why == "the thread sampler is at work again, after 3s"
    assert [each["name"] for each in troubles_view(core.memory)] == ["lock"], "a look at threads says nothing about files"


def test_an_end_that_nobody_reports_is_asked_for_at_the_second_look():
    core = begun()
    attempt = core.state.programs["Pong"].attempt
    assert not of(looked(core, gone=[attempt.token]), commands.ReportEnd), "it may be reported at this moment"
    assert of(looked(core, gone=[attempt.token]), commands.ReportEnd) == [
        commands.ReportEnd("Pong", attempt.number, attempt.token)
    ]
    looked(core)
    assert not of(looked(core, gone=[attempt.token]), commands.ReportEnd)


def test_without_a_vital_thread_the_daemon_ends_in_order_and_its_workers_run_on():
    core = begun()
    ended = looked(core, Failing("shim-watcher", "it has ended", None, vital=True))
    (stopping,) = of(ended, facts.DaemonStopping)
    assert (stopping.keep_workers, stopping.by) == (True, "extralife")
    assert of(ended, commands.EndDaemon) == [commands.EndDaemon(reexec=True)]
    assert core.memory.ended
