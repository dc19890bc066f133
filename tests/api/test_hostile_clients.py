"""Clients that send garbage, send slowly, never read or come in hundreds: each is let go, and everybody else is served."""

import contextlib
import gc
import socket
import threading
import time

import pytest
from leaks import open_files
from serving import call, ended, hung_up, served, until
from tools import PATIENCE

from supervisor.api import limits

LOG = b"GET /api/v1/logs/Pong/stdout?tail=1048576 HTTP/1.1\r\nHost: localhost\r\n\r\n"
STATUS = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROMPT_S = 5 * PATIENCE


def post(target, fields):
    """The head of a request with a body."""
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n\r\n" % (target, fields)


@pytest.fixture
def path(backend, socket_path):
    """A server of its own, which leaves neither thread nor descriptor behind."""
    gc.collect()
    before = open_files()
    with served(backend, socket_path):
        yield socket_path
    until(lambda: gc.collect() is not None and open_files() <= before, "every descriptor to be closed")


@pytest.fixture
def big_log(backend, tmp_path):
    log = tmp_path / "stdout.log"
    log.write_bytes(b"x" * 2**20)
    backend.change("Pong", stdout_log=str(log))


def connect(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    sock.settimeout(20)
    return sock


def closed(sock, sent=(), pause_s=0.0):
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


def status_took_s(path):
    began = time.monotonic()
    code, body = call(path, "/api/v1/status")
    assert code == 200
    assert body["programs"]
    return time.monotonic() - began


# --- too much ---


def test_a_hundred_megabytes_of_body_are_refused_after_64_kilobytes(path):
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
def test_a_client_that_takes_no_end_is_let_go_and_status_is_answered(path, big_log, monkeypatch, limit, first, then):
    if limit:
        monkeypatch.setattr(limits, limit, 0.3)
    with connect(path) as sock:
        sock.sendall(first)
        if then is None:
            until(lambda: hung_up(sock), "the server to let it go")
        assert closed(sock, then or (), pause_s=0.02 if limit else 0.0)
    assert status_took_s(path) < PROMPT_S


# --- numbers ---------------------------------------------------------------------------------------------------------------


def test_the_connection_too_many_takes_the_place_of_the_one_that_was_idle_longest(path, monkeypatch):
    monkeypatch.setattr(limits, "HEAD_S", 1e9)  # none has to go because a busy machine takes its time
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 20)
    idle = [connect(path) for _ in range(24)]
    assert status_took_s(path) < PROMPT_S
    gone = [number for number, sock in enumerate(idle) if ended(sock)]
    assert gone == list(range(len(gone))), "the oldest go first"
    assert 4 <= len(gone) <= 6
    for sock in idle:
        sock.close()


def test_clients_that_vanish_in_the_middle_leave_nothing(path):
    def threads_after_300():
        for number in range(300):
            sock = connect(path)
            with contextlib.suppress(BrokenPipeError):
                sock.sendall((STATUS * 3)[: number % (3 * len(STATUS))])
            sock.close()
        assert status_took_s(path) < PROMPT_S
        return threading.active_count()

    before = threads_after_300()
    assert threads_after_300() <= before
