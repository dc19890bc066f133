"""What workers say through sd_notify: real sockets, the real systemd-notify, real senders that are not to be heard."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tools import PATIENCE, ROOT, needs

from supervisor.adapters.process import notify_sockets as module
from supervisor.adapters.process.notify_sockets import NotifySockets, NotifyState, parse, updated
from workers.contract import ENV_TOKEN, Client, WorkerPhase

TOKEN, OTHER = "a" * 32, "b" * 32
PATIENCE_S = 30.0 * PATIENCE
SENDER = """
import os, socket, struct, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
    sock.connect(sys.argv[1])
    me = struct.pack("3i", os.getpid(), int(sys.argv[3]), os.getgid())
    sock.sendmsg([sys.argv[2].encode()], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, me)])
    print("sent", flush=True)
    input()
"""


class Ear:
    """NotifySockets on a directory of their own, waiting for what comes."""

    def __init__(self, root):
        self.root = root
        self.came = threading.Semaphore(0)
        self.statuses = []  # of Pong, after each message that was taken
        self.children = []
        self.edges = NotifySockets(self.path, self.wake)

    def path(self, program):
        return str(self.root / "run" / "notify" / program)

    def wake(self):
        heard = self.heard()
        self.statuses.append(heard.status if heard is not None else None)
        self.came.release()

    def listen(self, program="Pong", token=TOKEN):
        self.edges.bind(program)
        self.edges.expect(program, token)

    def heard(self, program="Pong", token=TOKEN):
        return self.edges.state_of(program, token)

    def wait(self):
        """What is known after the next message that was taken."""
        assert self.came.acquire(timeout=PATIENCE_S), "no message came"
        return self.heard()

    def say(self, text, program="Pong"):
        """Send from this process and return the state afterwards."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), self.path(program))
        assert self.came.acquire(timeout=PATIENCE_S)
        return self.heard(program)

    def silence(self):
        """Nothing of what was sent before was taken: the next message is the first."""
        self.send("STATUS=the last", token=TOKEN)
        assert self.wait().status == "the last"
        assert self.statuses == ["the last"]

    def send(self, text, *, token=TOKEN, program="Pong", uid=None):
        """From a real process of its own, whose environment has the token; as root also in another user's name."""
        env = {"PATH": os.environ["PATH"], **({ENV_TOKEN: token} if token else {})}
        arguments = [self.path(program), text, str(os.geteuid() if uid is None else uid)]
        child = subprocess.Popen(
            [sys.executable, "-S", "-I", "-c", SENDER, *arguments], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.children.append(child)
        assert child.stdout.readline() == b"sent\n"


@pytest.fixture
def ear(tmp_path):
    made = Ear(tmp_path)
    yield made
    made.edges.close()
    for child in made.children:
        child.communicate(b"\n", timeout=PATIENCE_S)
        assert child.returncode == 0


def notify(ear, *arguments, program="Pong", token=TOKEN):
    """The real command, as a shell script would call it."""
    command = needs("systemd-notify")
    env = {**os.environ, "NOTIFY_SOCKET": ear.path(program), ENV_TOKEN: token}
    # Through a shell: the credentials that it passes may be those of its parent.
    return subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", command, *arguments], env=env, timeout=PATIENCE_S, check=False,
        capture_output=True,
    )  # fmt: skip


# --- real senders ------------------------------------------------------------------------------------------------------------


def test_systemd_notify_is_heard_and_returns(ear):
    ear.listen()
    done = notify(ear, "--ready", "--status=warming up")
    assert done.returncode == 0, done.stderr
    heard = ear.wait()
    assert heard.ready
    assert heard.status == "warming up"
    done = notify(ear, "WATCHDOG=1", "X_EXTRALIFE_STEPS=42", "X_EXTRALIFE_CHECKPOINT=40")
    assert done.returncode == 0, done.stderr
    heard = ear.heard()
    assert (heard.steps, heard.ckpt_step) == (42, 40)
    assert heard.progress_ns is not None
    assert abs(heard.progress_ns - module.now_ns()) < 60e9


def test_the_small_client_is_heard(ear, tmp_path):
    ear.listen()
    code = (
        "from workers.contract import Client, WorkerPhase\n"
        "me = Client(); me.phase(WorkerPhase.TRAINING); me.committed(7, stall_s=0.0, write_s=0.0); me.phase(WorkerPhase.LEAVING)\n"
        "input()"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), ENV_TOKEN: TOKEN, "EXTRALIFE_BEAT": str(tmp_path / "beat"),
           "NOTIFY_SOCKET": ear.path("Pong")}  # fmt: skip
    ear.children.append(subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE))
    heard = [ear.wait() for _ in range(3)][-1]
    assert heard.ready
    assert heard.stopping
    assert heard.ckpt_step == 7
    assert heard.status == WorkerPhase.LEAVING.name.lower()


def test_a_left_over_of_an_earlier_attempt_is_not_heard(ear):
    ear.listen()
    ear.send("STATUS=from the grave", token=OTHER)
    ear.send("STATUS=from nowhere", token=None)
    ear.silence()


def test_a_stranger_is_not_heard(ear):
    if os.geteuid() != 0:
        pytest.skip("only root can speak in the name of another user")
    ear.listen()
    ear.send("STATUS=from nobody", uid=65534)
    ear.silence()


def test_a_sender_that_has_gone_meanwhile_is_heard():
    """Its environment cannot be read any more, and a one-shot command must not lose its word by being quick."""
    with subprocess.Popen(["true"], env={ENV_TOKEN: OTHER}) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert module._token_of(child.pid) is None, "a zombie"
    assert module._token_of(child.pid) is None, "gone"
    with subprocess.Popen(["cat"], env={}, stdin=subprocess.PIPE) as child:
        assert module._token_of(child.pid) is None, "nothing to read"
        child.communicate(b"")


def test_what_an_attempt_said_ends_with_it(ear):
    ear.listen()
    ear.send("READY=1")
    assert ear.wait().ready
    ear.edges.expect("Pong", TOKEN)
    assert ear.heard().ready, "the same attempt: nothing is forgotten"
    ear.edges.expect("Pong", OTHER)
    assert ear.heard() is None
    assert ear.heard(token=OTHER) == NotifyState(OTHER)


def test_passed_descriptors_are_closed(ear):
    ear.listen()
    theirs, ours = socket.socketpair()
    with theirs, ours, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        held = [os.dup(theirs.fileno()) for _ in range(40)]  # more than anyone reads of them
        sender.connect(ear.path("Pong"))
        socket.send_fds(sender, [b"BARRIER=1"], held)
        for fd in held:
            os.close(fd)
        theirs.close()
        ours.settimeout(PATIENCE_S)
        assert ours.recv(1) == b"", "the last one is closed"


def test_floods_and_giants_do_no_harm(ear):
    ear.listen()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for number in range(500):
            with contextlib.suppress(BlockingIOError):
                sender.sendto(b"\xff" * (number * 100), ear.path("Pong"))
    ear.silence()


def test_a_client_never_waits_for_a_daemon_that_does_not_read(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(path))
        me = Client({"EXTRALIFE_BEAT": str(tmp_path / "beat"), ENV_TOKEN: TOKEN, "NOTIFY_SOCKET": str(path)})
        began = time.monotonic()
        for _ in range(2_000):
            me.edge("WATCHDOG=1")
        assert time.monotonic() - began < 10 * PATIENCE
        me.close()


FULL = NotifyState(TOKEN, True, True, "going", 100, 2, 200, 10, 8, 90, 3)


# --- the format ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"", {}),
        (b"A=1\nB=\nA=2", {"A": "2", "B": ""}),
        (b"=1\nnothing\n\nC=x=y\n", {"C": "x=y"}),
        (b"K" * 63 + b"=1\n" + b"L" * 64 + b"=1", {"K" * 63: "1"}),
        (b"STATUS=\xff\xc3\xa4", {"STATUS": "\ufffd\u00e4"}),
    ],
)
def test_lines_of_a_message(data: bytes, pairs: dict[str, str]) -> None:
    assert parse(data) == pairs


@pytest.mark.parametrize(
    ("message", "after"),
    [
        ({}, {}),
        ({"READY": "1"}, {"ready": True, "progress_ns": 5}),
        ({"READY": "11"}, {}),
        ({"WATCHDOG": "1"}, {"ready": True, "progress_ns": 5, "pings": 1}),
        ({"WATCHDOG": "0"}, {}),
        ({"STOPPING": "1"}, {"stopping": True}),
        ({"STOPPING": "0"}, {}),
        ({"STATUS": "a\tb\u202ec"}, {"status": "abc"}),
        ({"STATUS": "x" * 201}, {"status": "x" * 200}),
        ({"STATUS": "s", "READY": "1"}, {"status": "s", "ready": True, "progress_ns": 5}),
        ({"X_EXTRALIFE_STEPS": "0"}, {"steps": 0, "ready": True, "progress_ns": 5, "pings": 1}),
        ({"X_EXTRALIFE_STEPS": "9", "WATCHDOG": "1"}, {"steps": 9, "ready": True, "progress_ns": 5, "pings": 1}),
        ({"X_EXTRALIFE_STEPS": "x", "WATCHDOG": "1"}, {"ready": True, "progress_ns": 5, "pings": 1}),
        ({"X_EXTRALIFE_CHECKPOINT": "0"}, {"ckpt_step": 0, "ckpt_ns": 5, "ckpt_count": 1}),
        ({"X_EXTRALIFE_CHECKPOINT": "-1"}, {}),
        ({"EXTEND_TIMEOUT_USEC": "0"}, {"deadline_ns": 5}),
        ({"EXTEND_TIMEOUT_USEC": "7"}, {"deadline_ns": 7_005}),
        ({"ready": "1", "MAINPID": "7", "BARRIER": "1", "ERRNO": "2"}, {}),
    ],
)
def test_all_that_a_first_message_changes(message: dict[str, str], after: dict[str, object]) -> None:
    assert updated(NotifyState(TOKEN), message, 5) == NotifyState(TOKEN, **after)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "after"),
    [
        ({}, {}),
        ({"READY": "1"}, {"progress_ns": 500}),
        ({"STOPPING": "0"}, {}),
        ({"STATUS": ""}, {"status": "", "progress_ns": 500}),
        ({"WATCHDOG": "1"}, {"progress_ns": 500}),
        ({"X_EXTRALIFE_STEPS": "11"}, {"steps": 11, "progress_ns": 500}),
        ({"X_EXTRALIFE_STEPS": "10", "WATCHDOG": "1"}, {}),
        ({"X_EXTRALIFE_STEPS": "9"}, {"steps": 9}),
        ({"X_EXTRALIFE_STEPS": "9", "STATUS": "on"}, {"steps": 9, "status": "on", "progress_ns": 500}),
        ({"X_EXTRALIFE_CHECKPOINT": "8"}, {"ckpt_ns": 500, "ckpt_count": 4}),
        ({"EXTEND_TIMEOUT_USEC": "1"}, {"deadline_ns": 1_500}),
    ],
)
def test_all_that_a_later_message_changes(message: dict[str, str], after: dict[str, object]) -> None:
    changed = {name: after.get(name, getattr(FULL, name)) for name in FULL.__slots__}
    assert updated(FULL, message, 500) == NotifyState(**changed)  # type: ignore[arg-type]


# --- the sockets --------------------------------------------------------------------------------------------------------


@pytest.fixture
def ears(ear, monkeypatch: pytest.MonkeyPatch) -> Ear:
    """Hears this process too, which is none of an attempt."""
    monkeypatch.setattr(module, "_token_of", lambda _pid: TOKEN)
    return ear


def test_the_directory_of_the_sockets_is_the_owners_alone(ears: Ear) -> None:
    before = os.umask(0)
    try:
        ears.listen("Pong")
        ears.listen("Qbert")
    finally:
        os.umask(before)
    assert stat.S_IMODE((ears.root / "run" / "notify").stat().st_mode) == 0o700
    assert all(Path(ears.path(name)).is_socket() for name in ("Pong", "Qbert"))
