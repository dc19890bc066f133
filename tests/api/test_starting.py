"""Whether a start succeeded: only the attempt that was asked for may be reported."""

import asyncio

import pytest
from fake_backend import FakeBackend, program

from supervisor.api import starting
from supervisor.model.codes import BAD_NAME, SUCCESS

LONG_S = 60.0  # seen in the same condition for so long: it must not make an old attempt a new one


def said(phase, *, attempt, before=4, same_for_s=LONG_S, **known):
    view = program("Pong", phase, **{"attempt": attempt, "pid": 7, "uptime_s": LONG_S, **known})
    found = starting.outcome("Pong", view, before, same_for_s)
    return None if found is None else found[1:]


@pytest.mark.parametrize("phase", ["RUNNING", "STARTING", "DONE", "BACKOFF", "FATAL", "STOPPING"])
def test_the_attempt_from_before_a_restart_is_no_answer(phase):
    assert said(phase, attempt=4) is None
    assert said(phase, attempt=3) is None
    assert said(phase, attempt=None) is None


@pytest.mark.parametrize(("same_for_s", "told"), [(0.49, None), (0.5, ("Pong", BAD_NAME, "no such process"))])
def test_one_that_is_removed_meanwhile(same_for_s, told):
    assert starting.outcome("Pong", None, 4, same_for_s) == told


def test_a_restart_is_reported_with_the_new_attempt():
    """The first snapshots still show the old attempt, trains as it does."""
    backend = FakeBackend()
    backend.add(program("Pong", "RUNNING", attempt=4, pid=7, uptime_s=LONG_S))
    before = starting.attempts(backend.snapshot())
    story = iter([
        ("RUNNING", 4, 7), ("RUNNING", 4, 7), ("STOPPING", 4, 7), ("STARTING", 5, None), ("RUNNING", 5, 8), ("RUNNING", 5, 8),
    ])  # fmt: skip
    shown = []

    def snapshot():
        phase, attempt, pid = next(story)
        backend.change("Pong", phase=phase, attempt=attempt, pid=pid)
        shown.append((phase, attempt))
        return backend.snapshot()

    (result,) = asyncio.run(starting.wait_for_starts(snapshot, before, [("Pong", SUCCESS, "accepted")]))
    assert result == ("Pong", SUCCESS, "started")
    assert shown[-1] == ("RUNNING", 5), "answered by the new one, and not before"
