"""What a message of sd_notify(3) changes, field by field, and the sockets' own care: modes, descriptors, limits."""

from __future__ import annotations

import array
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import eventually
from leaks import open_files
from structlog.testing import capture_logs

from supervisor.adapters.process import notify_sockets as module
from supervisor.adapters.process.notify_sockets import NotifySockets, NotifyState, parse, updated
from workers.contract import ENV_TOKEN

TOKEN, OTHER = "a" * 32, "b" * 32
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


def test_signs_of_progress_are_counted_up_to_two() -> None:
    state = NotifyState(TOKEN)
    for pings in (1, 2, 2):
        state = updated(state, {"WATCHDOG": "1"}, 5)
        assert state.pings == pings


# --- the sockets --------------------------------------------------------------------------------------------------------


class Ears:
    """NotifySockets, with a count of what was taken."""

    def __init__(self, root: Path) -> None:
        self.root, self.came = root, threading.Semaphore(0)
        self.sockets = NotifySockets(self.path, self.came.release)

    def path(self, program: str) -> str:
        return str(self.root / "run" / "notify" / program)

    def listen(self, *programs: str) -> None:
        for program in programs:
            self.sockets.bind(program)
            self.sockets.expect(program, TOKEN)

    def say(self, text: str, program: str = "Pong") -> NotifyState | None:
        """Send from this process and return the state afterwards."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), self.path(program))
        assert self.came.acquire(timeout=60.0)
        return self.sockets.state_of(program, TOKEN)


@pytest.fixture
def ears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ears]:
    monkeypatch.setattr(module, "_token_of", lambda _pid: TOKEN)  # this process is none of an attempt
    made = Ears(tmp_path)
    yield made
    made.sockets.close()


def test_a_message_changes_the_state_before_the_daemon_is_woken(ears: Ears) -> None:
    ears.listen("Pong")
    began_ns = module.now_ns()
    state = ears.say("WATCHDOG=1\nSTATUS=on")
    assert state is not None
    assert state.progress_ns is not None
    assert began_ns <= state.progress_ns <= module.now_ns()
    assert state == NotifyState(TOKEN, ready=True, status="on", progress_ns=state.progress_ns, pings=1)
    assert ears.sockets.state_of("Pong", OTHER) is None
    assert ears.sockets.state_of("Qbert", TOKEN) is None


def test_the_directory_of_the_sockets_is_the_owners_alone(ears: Ears) -> None:
    before = os.umask(0)
    try:
        ears.listen("Pong")
        ears.listen("Qbert")
    finally:
        os.umask(before)
    assert stat.S_IMODE((ears.root / "run" / "notify").stat().st_mode) == 0o700
    assert all(Path(ears.path(name)).is_socket() for name in ("Pong", "Qbert"))


@pytest.mark.parametrize("spare", [0, 1])
def test_a_path_of_107_bytes_is_bound_and_a_longer_one_is_refused(ears: Ears, spare: int) -> None:
    length = 107 - len(os.fsencode(ears.path("x"))) + 1 + spare
    name = "\u00e4" * (length // 2) + "x" * (length % 2)  # bytes count, not letters
    assert len(os.fsencode(ears.path(name))) == 107 + spare
    if spare:
        with pytest.raises(OSError, match=r" is longer than the 107 bytes .*: shorten runtime_dir or the program's name$"):
            ears.sockets.bind(name)
        assert not Path(ears.path(name)).exists()
    else:
        ears.sockets.bind(name)
        assert Path(ears.path(name)).is_socket()


def test_the_missing_are_named_and_restored_without_a_descriptor_more(ears: Ears) -> None:
    ears.listen("Qbert", "Pong", "Alien")
    assert ears.sockets.missing() == ""
    before = open_files()
    os.unlink(ears.path("Qbert"))
    os.unlink(ears.path("Alien"))
    Path(ears.path("Alien")).write_text("a file in its place")
    assert ears.sockets.missing() == "the socket of Alien, Qbert is gone"
    inode = os.stat(ears.path("Pong")).st_ino
    ears.sockets.restore()
    assert ears.sockets.missing() == ""
    assert os.stat(ears.path("Pong")).st_ino == inode, "the one that was in place stays"
    assert open_files() <= before
    assert [ears.say("STATUS=on", name).status for name in ("Pong", "Qbert", "Alien")] == ["on"] * 3  # type: ignore[union-attr]


def test_another_socket_in_its_place_is_not_ours(ears: Ears) -> None:
    ears.listen("Pong")
    os.rename(ears.path("Pong"), ears.path("aside"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(ears.path("Pong"))
        assert ears.sockets.missing() == "the socket of Pong is gone"
        ears.sockets.bind("Pong")
    assert ears.sockets.missing() == ""
    assert ears.say("STATUS=on") == NotifyState(TOKEN, status="on")


def test_one_that_cannot_be_bound_leaves_no_descriptor(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATH_BYTES", 1000)
    with pytest.raises(OSError, match="AF_UNIX path too long"):
        ears.sockets.bind("x" * 200)
    before = open_files()
    for _ in range(3):
        with pytest.raises(OSError, match="AF_UNIX path too long"):
            ears.sockets.bind("x" * 200)
    assert open_files() <= before


def test_closing_ends_the_thread_and_leaves_the_paths(tmp_path: Path) -> None:
    others, before = set(threading.enumerate()), open_files()
    ears = Ears(tmp_path)
    ears.listen("Pong", "Qbert")
    (thread,) = set(threading.enumerate()) - others
    assert (thread.name, thread.daemon) == ("edges", True)
    for _ in range(2):
        ears.sockets.close()
    assert not thread.is_alive()
    assert open_files() <= before
    assert all(Path(ears.path(name)).is_socket() for name in ("Pong", "Qbert"))


def test_an_endless_sender_is_read_sixty_four_at_a_time_with_pauses(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each socket at most 64 messages in a row, and of all of them 64 in 50 ms."""
    pauses: list[float] = []
    monkeypatch.setattr(module, "now_ns", lambda: 1)  # the window never ends
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append))
    ears.listen("Pong")
    for _ in range(63):
        ears.say("STATUS=x")
    ears.listen("Qbert")
    ears.say("STATUS=x", "Qbert")
    ears.say("STATUS=x")
    assert eventually(lambda: len(pauses) >= 2)
    ears.sockets.close()  # wakes the thread once more
    assert pauses in ([0.05] * 2, [0.05] * 3), "none before the 64th"


def test_the_window_begins_anew_after_50_ms(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    at_ns = module.now_ns()
    monkeypatch.setattr(module, "now_ns", lambda: at_ns)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append))
    ears.listen("Pong")
    for _ in range(70):
        ears.say("STATUS=x")
        at_ns += 60_000_000
    assert pauses == []


def test_a_long_message_is_cut_and_its_beginning_counts(ears: Ears) -> None:
    ears.listen("Pong")
    state = ears.say("READY=1\nX=" + "x" * 4086 + "\nSTATUS=beyond")
    assert state is not None
    assert (state.ready, state.status) == (True, "")
    assert ears.say("X=" + "x" * 4084 + "\nSTATUS=short").status == "sh"  # type: ignore[union-attr]


def test_a_message_that_changes_nothing_wakes_too_and_one_of_a_past_attempt_does_not(
    ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    ears.listen("Pong")
    assert ears.say("MAINPID=7") == NotifyState(TOKEN)
    tokens: list[str | None] = [OTHER, "", None]
    monkeypatch.setattr(module, "_token_of", lambda _pid: tokens.pop(0))
    for text in ("STATUS=old", "STATUS=nowhere"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), ears.path("Pong"))
    assert ears.say("READY=1").status == "", "only the last one, whose environment cannot be read"  # type: ignore[union-attr]
    assert not ears.came.acquire(blocking=False)


# --- what comes along ---------------------------------------------------------------------------------------------------


def test_every_whole_descriptor_that_was_passed_is_closed_and_no_other_number() -> None:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    first, second, kept = held
    data = array.array("i", [first, 1_000_000, second]).tobytes()
    module._close_passed(
        [
            (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, array.array("i", [kept]).tobytes()),
            (socket.IPPROTO_TCP, socket.SCM_RIGHTS, array.array("i", [kept]).tobytes()),
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, data + array.array("i", [kept]).tobytes()[:3]),
        ]
    )
    is_open = [os.path.exists(f"/proc/self/fd/{fd}") for fd in held]
    os.close(kept)
    assert is_open == [False, False, True]


def test_the_token_of_a_sender_is_that_of_its_environment() -> None:
    for env, token in (
        ({ENV_TOKEN: TOKEN, "X": "1"}, TOKEN),
        ({"X": "1", f"X{ENV_TOKEN}": OTHER}, ""),
        ({ENV_TOKEN: "a=b"}, "a=b"),
        ({ENV_TOKEN: "\udcff"}, "\udcff"),
    ):
        with subprocess.Popen(["cat"], env=env, stdin=subprocess.PIPE) as child:
            assert eventually(lambda child=child, token=token: module._token_of(child.pid) == token)
            child.communicate(b"")


def test_a_broken_message_is_logged_with_its_program(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = module.parse, [True]

    def once(data: bytes) -> dict[str, str]:
        if broken:
            broken.clear()
            raise ValueError("odd")
        return real(data)

    ears.listen("Pong")
    monkeypatch.setattr(module, "parse", once)
    before = open_files()
    with capture_logs() as logged, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(ears.path("Pong"))
        socket.send_fds(sender, [b"READY=1"], [0])
        assert ears.say("STATUS=on") == NotifyState(TOKEN, status="on")
    assert logged == [{"event": "edge_failed", "program": "Pong", "exc_info": True, "log_level": "error"}]
    assert open_files() <= before, "what came along with it is closed"
