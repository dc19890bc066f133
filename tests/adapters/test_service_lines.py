"""What the service manager hears of a running daemon: each summary once, and for how long the end is to be waited for."""

from dataclasses import replace

from supervisor.model.lifecycle import Phase
from supervisor.model.state import Attempt, Checkpoint, Program, State, Stop
from supervisor.shell.service import Service, status_line


class RecordingLines:
    def __init__(self):
        self.lines = []

    def status(self, text):
        self.lines.append(text)

    def stopping(self, extend_s):
        self.lines.append(extend_s)


def running(name, stop=None):
    attempt = Attempt(1, name, intended_at_s=0.0, digest="", stop=stop)
    return Program(name, Phase.RUNNING, 0.0, 0.0, "", attempt=attempt)


def test_what_was_adopted_and_what_resumes_is_told_as_such():
    younger = Attempt(2, "d", intended_at_s=7.0, digest="")
    programs = {
        "a": running("a"),
        "b": Program("b", Phase.STARTING, 0.0, 0.0, "", attempt=younger, ckpt=Checkpoint(100)),
        "c": Program("c", Phase.STARTING, 0.0, 0.0, "", attempt=younger, ckpt=Checkpoint(100)),
        "d": Program("d", Phase.STARTING, 0.0, 0.0, "", attempt=younger),
    }
    line = status_line(State(programs=programs, level="light", daemon_since_s=7.0))
    assert line == "1 of 4 programs run at level light, 1 adopted, 2 resume from a checkpoint, 1 starts"


def test_an_end_takes_as_long_as_the_slowest_may_and_no_longer():
    told = RecordingLines()
    service = Service(told)
    programs = {"a": running("a", Stop("shutdown", 10.0, 20.0)), "b": running("b", Stop("shutdown", 10.0, 60.0))}
    state = State(programs=programs, level="light", stopping=True)
    service.after_turn(state, 10.0)
    service.after_turn(state, 40.0)
    service.after_turn(replace(state, programs={"a": programs["a"]}), 71.0)
    service.after_turn(replace(state, programs={}), 71.5)
    assert told.lines == [
        75.0, "2 of 2 programs are saving and leaving", "1 of 1 programs are saving and leaving",
        "0 of 0 programs are saving and leaving",
    ]  # fmt: skip


def test_systemd_is_not_told_of_an_end_that_it_has_still_to_ask_for():
    """It sends no SIGTERM to a service that says STOPPING=1 by itself, and the daemon would wait for that signal."""
    told, awaits = RecordingLines(), [True]
    service = Service(told, lambda: awaits[0])
    state = State(programs={"a": running("a", Stop("shutdown", 10.0, 20.0))}, level="light", stopping=True)
    service.after_turn(state, 10.0)
    service.ends(30.0)
    assert told.lines == ["1 of 1 programs are saving and leaving"]
    awaits[0] = False  # SIGTERM has come
    service.after_turn(state, 12.0)
    assert told.lines[1:] == [33.0], "10s asked at, 20s of grace, 15s to close, 12s now"
    service.ends(30.0)
    assert told.lines[2:] == [30.0]
