"""Clients that send garbage, send slowly, never read or come in hundreds: each is let go, and everybody else is served."""

from __future__ import annotations

import contextlib
import gc
import re
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from fake_backend import FakeBackend
from leaks import open_files
from malformed import malformed
from serving import call, ended, hung_up, raw, served, until
from tools import PATIENCE, allow_open_files

from supervisor.api import limits

LOG = b"GET /api/v1/logs/Pong/stdout?tail=1048576 HTTP/1.1\r\nHost: localhost\r\n\r\n"
STATUS = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROMPT_S = 5 * PATIENCE


def post(target: bytes, fields: bytes) -> bytes:
    """The head of a request with a body."""
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n\r\n" % (target, fields)


@pytest.fixture
def path(backend: FakeBackend, socket_path: Path) -> Iterator[Path]:
    """A server of its own, which leaves neither thread nor descriptor behind."""
    gc.collect()
    before = open_files()
    with served(backend, socket_path):
        yield socket_path
    until(lambda: gc.collect() is not None and open_files() <= before, "every descriptor to be closed")


@pytest.fixture
def big_log(backend: FakeBackend, tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"x" * 2**20)
    backend.change("Pong", stdout_log=str(log))


def connect(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    sock.settimeout(20)
    return sock


def closed(sock: socket.socket, sent: Iterable[bytes] = (), pause_s: float = 0.0) -> bool:
    """Whether the server ends it, before all of this is sent or after (whatever it answers before)."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for piece in sent:
            sock.sendall(piece)
            time.sleep(pause_s)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def one_answer(sock: socket.socket) -> bytes:
    """The whole of the next answer."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = sock.recv(65536)
        assert piece, got
        got += piece
    size = re.search(rb"content-length: (\d+)", got)
    assert size is not None
    while len(got.partition(b"\r\n\r\n")[2]) < int(size[1]):
        got += sock.recv(65536)
    return got


def status_took_s(path: Path) -> float:
    began = time.monotonic()
    code, body = call(path, "/api/v1/status")
    assert code == 200
    assert body["programs"]
    return time.monotonic() - began


# --- garbage ---------------------------------------------------------------------------------------------------------------


def test_five_hundred_broken_requests_are_each_answered_or_ended(path: Path, backend: FakeBackend) -> None:
    codes: dict[int, int] = {}
    for data in malformed(500):
        for code in re.findall(rb"HTTP/1.1 (\d+)", raw(path, data)):
            codes[int(code)] = codes.get(int(code), 0) + 1
    assert sum(codes.values()) > 300
    assert not [code for code in codes if code >= 500], codes
    assert backend.asked == []
    assert status_took_s(path) < PROMPT_S


def test_a_hundred_megabytes_of_body_are_refused_after_64_kilobytes(path: Path) -> None:
    with connect(path) as sock:
        sock.sendall(post(b"/api/v1/ask", b"Content-Length: 104857600"))
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 100 * 2**20:
                sent += sock.send(b"x" * 65536)
        assert sent < 4 * 2**20
        assert sock.recv(65536).startswith(b"HTTP/1.1 413")
        assert closed(sock)


CHUNKED = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("limit", "first", "then"),
    [
        ("HEAD_S", b"", ()),
        ("HEAD_S", b"", (bytes([byte]) for byte in STATUS * 100)),
        ("HEAD_S", STATUS, (STATUS[:20],)),
        ("BODY_S", post(b"/api/v1/ask", b"Content-Length: 1000"), (b" " for _ in range(1000))),
        ("", CHUNKED, (b"10000\r\n" + b"x" * 65536 + b"\r\n" for _ in range(10_000))),
        ("UNREAD_S", LOG * 3, None),
    ],
    ids=["silence", "a slow head", "half of a second head", "a slow body", "an endless body", "an answer that is not read"],
)
def test_a_client_that_takes_no_end_is_let_go_and_status_is_answered(
    path: Path, big_log: None, monkeypatch: pytest.MonkeyPatch, limit: str, first: bytes, then: Iterator[bytes] | None
) -> None:
    if limit:
        monkeypatch.setattr(limits, limit, 0.3)
    with connect(path) as sock:
        sock.sendall(first)
        if then is None:
            until(lambda: hung_up(sock), "the server to let it go")
        assert closed(sock, then or (), pause_s=0.02 if limit else 0.0)
    assert status_took_s(path) < PROMPT_S


# --- slowness --------------------------------------------------------------------------------------------------------------


def test_a_slow_reader_that_does_read_gets_everything(path: Path, big_log: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNREAD_S", 1.0)
    longest_s = limits.UNREAD_S
    while longest_s >= limits.UNREAD_S:  # then a busy machine, and not the reader, has kept the answer waiting
        got, longest_s = read_slowly(path)
    assert got > 2**20


def read_slowly(path: Path) -> tuple[int, float]:
    """The bytes that came of a megabyte of log, and the longest time of four reads: the kernel lets the server write again
    once three quarters of what it holds (208 KiB) have been read."""
    got, reads_s = 0, []
    with connect(path) as sock, contextlib.suppress(ConnectionResetError):
        sock.sendall(LOG.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        reads_s.append(time.monotonic())
        while piece := sock.recv(65536):
            got += len(piece)
            time.sleep(0.1)
            reads_s.append(time.monotonic())
    reads_s.append(time.monotonic())
    return got, max(after_s - before_s for before_s, after_s in zip(reads_s, reads_s[4:] or reads_s[-1:], strict=False))


def test_too_much_that_nobody_reads_is_answered_503(path: Path, big_log: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_UNREAD_BYTES", 2**20)
    readers = [connect(path) for _ in range(3)]
    for sock in readers:
        sock.sendall(LOG)
        sock.recv(1)
    until(lambda: raw(path, STATUS).startswith(b"HTTP/1.1 503"), "503")
    for sock in readers:
        sock.close()
    until(lambda: raw(path, STATUS).startswith(b"HTTP/1.1 200"), "200")


# --- numbers ---------------------------------------------------------------------------------------------------------------


def test_the_connection_too_many_takes_the_place_of_the_one_that_was_idle_longest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_S", 1e9)  # none has to go because a busy machine takes its time
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 20)
    idle = [connect(path) for _ in range(24)]
    assert status_took_s(path) < PROMPT_S
    gone = [number for number, sock in enumerate(idle) if ended(sock)]
    assert gone == list(range(len(gone))), "the oldest go first"
    assert 4 <= len(gone) <= 6
    for sock in idle:
        sock.close()


def test_a_thousand_requests_at_once_are_all_answered(path: Path) -> None:
    # Client and server are this process: each request has a descriptor at either end. Some are open already.
    requests = min(1000, (allow_open_files(2_200) - 200) // 2)
    answered, waiting = 0, selectors.DefaultSelector()
    began = time.monotonic()
    for _ in range(requests):
        sock = connect(path)
        sock.sendall(STATUS.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        waiting.register(sock, selectors.EVENT_READ)
    while waiting.get_map():
        for key, _ in waiting.select(20):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            answered += one_answer(sock).startswith(b"HTTP/1.1 200")
            waiting.unregister(sock)
            sock.close()
    assert answered == requests > 0
    assert time.monotonic() - began < 60, "two seconds on a quiet machine"


def test_clients_that_vanish_in_the_middle_leave_nothing(path: Path) -> None:
    def threads_after_300() -> int:
        for number in range(300):
            sock = connect(path)
            with contextlib.suppress(BrokenPipeError):
                sock.sendall((STATUS * 3)[: number % (3 * len(STATUS))])
            sock.close()
        assert status_took_s(path) < PROMPT_S
        return threading.active_count()

    before = threads_after_300()
    assert threads_after_300() <= before
