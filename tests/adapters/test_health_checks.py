"""Health checks against real servers, sockets that hang, and commands."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attempts_kit import BootClock, eventually, spec

from supervisor.adapters import procfs
from supervisor.adapters.process.health_checks import Failed, HealthChecks, make
from supervisor.formats import span
from supervisor.policy.worker.service_health import HealthCheck


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(int(self.path.rpartition("/")[2]))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that sends this to whoever connects, and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                sock.sendall(answer)
                kept.append(sock)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()  # it may still have one in hand that it has not kept yet
        for sock in kept:
            sock.close()


def ask(**check: object) -> None:
    make(HealthCheck(**{"timeout_s": 60.0, **check}), spec("Board", ["x"]))  # type: ignore[arg-type]


def test_a_page_is_well_or_not(port: int) -> None:
    for status in (200, 204, 302, 399):
        ask(http=f"http://localhost:{port}/{status}")
    for status in (400, 404, 500):
        with pytest.raises(Failed, match=f"^it answered {status}$"):
            ask(http=f"http://127.0.0.1:{port}/{status}")
    ask(tcp=f"127.0.0.1:{port}")


def test_nobody_there_is_a_failure_and_an_unknown_name_is_not() -> None:
    with socket.socket() as bound:  # nobody listens there, and nobody else can meanwhile
        bound.bind(("127.0.0.1", 0))
        free = bound.getsockname()[1]
        with pytest.raises(Failed, match="connection refused"):
            ask(http=f"http://127.0.0.1:{free}/")
        with pytest.raises(Failed, match="connection refused"):
            ask(tcp=f"127.0.0.1:{free}")
    with pytest.raises(socket.gaierror):
        ask(tcp="no-such-host.invalid:80")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 2", b"x"])
def test_one_that_hangs_is_a_failure_in_time(answer: bytes) -> None:
    with answering(answer) as port, pytest.raises(Failed, match=r"^no answer within 200ms$"):
        ask(http=f"http://127.0.0.1:{port}/", timeout_s=0.2)


def test_a_command(tmp_path) -> None:
    ask(command=("true",))
    with pytest.raises(Failed, match=r"^exit code 3$"):
        ask(command=("sh", "-c", "exit 3"))
    with pytest.raises(Failed, match=r"^signal 9$"):
        ask(command=("sh", "-c", "kill -9 $$"))
    pid, began_s = tmp_path / "pid", time.monotonic()
    for timeout_s in (0.2, 20.0):  # in the shorter time a busy machine may not have begun all of it
        with pytest.raises(Failed, match=rf"^the command did not end within {span(timeout_s)}$"):
            ask(command=("sh", "-c", f"sleep 1000 & echo $! > {pid}; wait"), timeout_s=timeout_s)
        if pid.exists() and pid.read_text():
            break
    assert time.monotonic() - began_s < 300, "not the 1000 s that it takes"
    child = int(pid.read_text())
    assert eventually(lambda: (stat := procfs.read_stat(child)) is None or not stat.alive), "what it started ends with it"
    with pytest.raises(FileNotFoundError):
        ask(command=("/no/such/check",))


def test_the_newest_result_is_kept_and_forgotten_with_its_attempt(port: int, tmp_path) -> None:
    mark = tmp_path / "well"
    checks = HealthChecks(BootClock())
    checks.watch(spec("Plain", ["x"]), "t0")
    assert checks.newest("t0") is None
    check = HealthCheck(command=("test", "-e", str(mark)), every_s=0.05, timeout_s=30.0)
    board = spec("Board", ["x"], health=check)
    checks.watch(board, "t1")
    checks.watch(board, "t1")
    assert eventually(lambda: checks.newest("t1").failures >= 2)
    found = checks.newest("t1")
    assert (found.error, found.ok_at_s, found.unknown) == ("exit code 1", None, "")
    mark.touch()
    assert eventually(lambda: checks.newest("t1").ok_at_s is not None)
    assert checks.newest("t1").failures == 0
    checks.forget("t1")
    checks.forget("t1")
    assert checks.newest("t1") is None
    checks.watch(spec("Board", ["x"], health=HealthCheck(command=("/no/such/check",), every_s=0.05)), "t2")
    assert eventually(lambda: "FileNotFoundError" in checks.newest("t2").unknown)
    assert checks.newest("t2").failures == 0
    checks.forget("t2")
