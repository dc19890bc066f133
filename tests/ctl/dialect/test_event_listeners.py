"""`listen`: Supervisor's event listener protocol, fed from the journal."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from fake_backend import program
from running import CTL, ctl, environment
from serving import until
from tools import PATIENCE

from supervisor.features.dialect.verbs_listen import state_of
from supervisor.formats import span
from supervisor.model import facts
from supervisor.model.facts import Stamped

LISTENER = """
import json, sys
out, answers = open(sys.argv[1], "a"), sys.argv[2].split(",")
while True:
    sys.stdout.write("READY\\n"); sys.stdout.flush()
    head = dict(pair.split(":") for pair in sys.stdin.readline().split())
    if not head:
        break
    body = sys.stdin.read(int(head["len"]))
    print(json.dumps([head["eventname"], body]), file=out, flush=True)
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if answer == "nothing":
        sys.stdin.readline()
    if answer == "rubbish":
        print("hello"); sys.stdout.flush()
    sys.stdout.write(f"RESULT {len(answer)}\\n{answer}"); sys.stdout.flush()
"""
SILENT_S = max(1, round(PATIENCE))  # in this time a listener also starts
BOOT = "b" * 32
RUN = [
    facts.ProgramConfigured("new", "Pong", "d"),
    facts.SpawnIntended("starting", "Pong", "t", 1, "d", "light"),
    facts.Spawned("runs", "Pong", "t", 77, 1, 78, 1),
    facts.BecameReady("trains", "Pong", "t", 1.0),
    facts.Exited("killed by SIGKILL", "Pong", "t", "killed", None, 9, 5, 4, counted=True),
    facts.BackedOff("again", "Pong", 9.0, 1.0, slow=False),
]
ANSWERED = 4  # the fact behind the second event of the story
STORY = [
    ["PROCESS_STATE_STARTING", "processname:Pong groupname:Pong from_state:UNKNOWN tries:0"],
    ["PROCESS_STATE_RUNNING", "processname:Pong groupname:Pong from_state:STARTING pid:77"],
    ["PROCESS_STATE_EXITED", "processname:Pong groupname:Pong from_state:RUNNING expected:0 pid:77"],
    ["PROCESS_STATE_BACKOFF", "processname:Pong groupname:Pong from_state:EXITED tries:1"],
]


def record(backend, *happened):
    begin = len(backend.journal)
    backend.journal = [
        *backend.journal, *(Stamped(n, float(n), 1e9 + n, BOOT, fact) for n, fact in enumerate(happened, begin + 1)),
    ]  # fmt: skip


class Listening:
    """`extralifectl listen` with that listener, and what the listener has heard."""

    def __init__(self, api, directory):
        self._api, self._directory, self._heard = api, directory, directory / "heard"
        (directory / "listener.py").write_text(LISTENER)
        self._process = None

    def start(self, answers="OK", events="PROCESS_STATE", *more):
        command = [sys.executable, str(self._directory / "listener.py"), str(self._heard), answers]
        self._process = subprocess.Popen(
            [*CTL, "-s", f"unix://{self._api}", "listen", events, *more, "--", *command], text=True, stderr=subprocess.PIPE,
            env=environment() | {"EXTRALIFE_RUN_DIR": str(self._directory), "EXTRALIFE_PROGRAM": "mail"}, cwd="/",
        )  # fmt: skip
        return self._process

    def begun(self):
        (self._directory / "listened").write_text("0\n")

    def noted(self):
        return int((self._directory / "listened").read_text())

    def heard(self):
        return [json.loads(line) for line in self._heard.read_text().splitlines()] if self._heard.exists() else []

    def end(self):
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        if self._process is not None and self._process.stderr is not None:
            self._process.stderr.close()


@pytest.fixture
def listening(api, backend, tmp_path):
    backend.add(program("Pong"))
    made = Listening(api, tmp_path)
    yield made
    made.end()


def test_every_fact_once_and_none_lost_over_a_restart(listening, backend):
    record(backend, *RUN[:4])
    listening.begun()
    listening.start(answers="OK,FAIL,OK")
    until(lambda: len(listening.heard()) >= 3, "the events")
    until(lambda: listening.noted() == ANSWERED, "the note of the last answer: ended before it, the event would come again")
    listening.end()
    assert listening.heard() == [STORY[0], STORY[1], STORY[1]], "what it has refused comes again"
    record(backend, *RUN[4:])
    listening.start()
    until(lambda: len(listening.heard()) >= 5, "the events")
    assert [event for event, _ in listening.heard()[3:]] == [event for event, _ in STORY[2:]], "it was away meanwhile"


def test_a_journal_that_has_lost_its_end_goes_on_with_events(listening, backend):
    """An older journal was put back, or a copy from another disk: its next facts have numbers that were answered before."""
    record(backend, *RUN[:3])
    listening.begun()
    (listening._directory / "listened").write_text("500\n")
    listening.start()
    until(lambda: listening.noted() == len(RUN[:3]), "the new position")
    record(backend, *RUN[3:])
    until(lambda: len(listening.heard()) >= 3, "the events")
    assert [event for event, _ in listening.heard()] == [event for event, _ in STORY[1:]]


def test_tries_count_the_failures_since_the_program_last_ran(listening, backend):
    intended, spawned, ready, exited, backed_off = RUN[1:]
    stopped = replace(exited, cause="stopped")
    failures = [intended, exited, backed_off] * 3
    record(backend, *failures, intended, spawned, ready, exited, backed_off, intended, stopped, intended)
    listening.begun()
    listening.start("OK", "PROCESS_STATE_STARTING,PROCESS_STATE_BACKOFF")
    until(lambda: len(listening.heard()) >= 10, "the events")
    tries = [(event.rpartition("_")[2], body.rpartition("tries:")[2]) for event, body in listening.heard()]
    assert tries == [
        ("STARTING", "0"), ("BACKOFF", "1"), ("STARTING", "1"), ("BACKOFF", "2"), ("STARTING", "2"), ("BACKOFF", "3"), ("STARTING", "3"),
        ("BACKOFF", "1"), ("STARTING", "1"), ("STARTING", "0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "timeout_s", "said"),
    [
        ("nothing", SILENT_S, f"listen: the listener has not answered for {span(SILENT_S)}\n"),
        ("rubbish", 60, "listen: the listener said b'hello' in place of RESULT\n"),
        ("WHAT", 60, "listen: the listener's result is b'WHAT', neither OK nor FAIL\n"),
    ],
)
def test_a_listener_that_breaks_the_protocol_ends_in_one_sentence(listening, backend, answers, timeout_s, said):
    record(backend, *RUN)
    listening.begun()
    process = listening.start(answers, "PROCESS_STATE", "--timeout", str(timeout_s))
    assert process.communicate(timeout=60)[1] == said
    assert process.returncode == 1
    assert listening.heard() == [STORY[0]]


def test_one_that_dies_at_once(api):
    # No event comes meanwhile: the listener would be found to have ended when that is sent.
    told = ctl("listen", "PROCESS_STATE", "--", "false", socket=api)
    assert (told.stderr, told.returncode) == ("listen: the listener has ended by itself\n", 1)
    told = ctl("listen", "PROCESS_STATE", "--", "/nonexistent/listener", socket=api)
    assert told.returncode == 127
    assert "cannot be started: No such file" in told.stdout


def test_states():
    assert state_of("Exited", {"cause": "stopped", "early": True}) == "STOPPED"
    assert [state_of("Exited", {"cause": "failed", "early": early}) for early in (True, False)] == ["BACKOFF", "EXITED"]
    assert state_of("BackedOff", {"slow": True}) == state_of("GaveUp", {}) == "FATAL"
    assert state_of("Checkpointed", {}) is None
