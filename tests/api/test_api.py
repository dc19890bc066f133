"""The JSON API on a real uvicorn and a real unix socket, over a fake daemon."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from fake_backend import WALL_S, FakeBackend
from serving import Connection, call, raw, served

from supervisor.api import server
from supervisor.api.app import MOST_ASKS
from supervisor.api.limits import MOST_BODY_BYTES
from supervisor.model import facts
from supervisor.model.facts import Stamped


def journal(*items: facts.Fact) -> list[Stamped]:
    return [Stamped(n, float(n), WALL_S + n, "b" * 32, item) for n, item in enumerate(items, 1)]


# --- reading -------------------------------------------------------------------------------------------------------------


def test_accounts_of_a_window(api: Path, backend: FakeBackend) -> None:
    backend.journal = journal(
        facts.DaemonStarted("first", 1, "1", clean=True, salt=""),
        facts.LevelChosen("set", "light", 2),
        facts.ProgramConfigured("new", "Pong", "d"),
        facts.OperatorAsked("x", "status", (), None),
    )
    status, told = call(api, "/api/v1/accounts")
    assert (status, told["total"]["wall_s"], told["programs"][0]["seconds"]["ADMISSION"]) == (200, 3.0, 1.0)
    assert call(api, "/api/v1/accounts?since=1s")[1]["total"]["wall_s"] == 1.0
    assert call(api, f"/api/v1/accounts?since=@{WALL_S + 3}")[1]["total"]["wall_s"] == 1.0
    assert call(api, "/api/v1/accounts?since=boot")[1]["since_s"] == 1.0
    for wrong in ("1h", "5", "nans", "@1s", "-5s", "@", "s", "@inf", "yesterday"):
        status, told = call(api, f"/api/v1/accounts?since={wrong}")
        assert status == 422, wrong
        assert "since must be all, boot" in told["error"]


def test_one_program_by_any_of_supervisors_names(api: Path) -> None:
    for spec in ("Pong", "Pong:Pong", "Pong:*", "Pong:"):
        assert call(api, f"/api/v1/programs/{spec}")[1]["name"] == "Pong"
    status, told = call(api, "/api/v1/programs/Pung")
    assert (status, told) == (404, {"error": "no such program: 'Pung'"})


def test_health_tells_a_wedged_loop(api: Path, backend: FakeBackend) -> None:
    backend.now_s -= 30.0
    for step_s in (-3600.0, 3600.0):  # a step of the wall clock since the last turn is no wedge, and hides none
        backend.wall_s = time.time() + step_s
        assert call(api, "/healthz")[0] == 200
    backend.now_s -= 0.25
    assert call(api, "/healthz") == (503, {"error": "the deciding loop has not run for 30s", "age_s": 30.25})


# --- logs ----------------------------------------------------------------------------------------------------------------


def test_a_log_that_is_a_link_or_a_pipe_is_not_opened(api: Path, backend: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    backend.change("Pong", stdout_log=str(tmp_path / "link"), stderr_log=str(tmp_path / "fifo"))
    for channel in ("stdout", "stderr"):
        status, told = call(api, f"/api/v1/logs/Pong/{channel}")
        assert status == 500
        assert told["error"].startswith("cannot read the log")


# --- asking --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NONSENSE", "", "0", "999", None, "-9", "²"])
def test_a_bad_signal_goes_no_further(api: Path, backend: FakeBackend, name: object) -> None:
    told = call(api, "/api/v1/ask", {"verb": "signal", "names": ["Pong"], "signal": name})[1]
    assert told["results"] == [{"name": "Pong", "code": 11, "text": "bad signal name"}]
    assert backend.asked == []


def test_waiting_requests_do_not_make_status_wait(api: Path, backend: FakeBackend) -> None:
    backend.gate = threading.Event()
    stop = {"verb": "stop", "names": ["Pong"]}
    with ThreadPoolExecutor(MOST_ASKS + 1) as pool:
        try:
            asked = [pool.submit(call, api, "/api/v1/ask", stop) for _ in range(MOST_ASKS + 1)]
            answered, waiting = wait(asked, timeout=60, return_when=FIRST_COMPLETED)
            assert [one.result() for one in answered] == [
                (503, {"error": f"{MOST_ASKS} requests are waiting already: try again"})
            ]
            assert call(api, "/api/v1/status")[0] == 200, "and this one does not wait"
            assert len(waiting) == MOST_ASKS
        finally:
            backend.gate.set()
        assert {one.result(30)[0] for one in waiting} == {200}


# --- load and rubbish ------------------------------------------------------------------------------------------------------


BROKEN_BYTES = [
    b"", b"\r\n\r\n", b"\n", b"\x00" * 100, b"\xff\xfe\xfd\r\n\r\n", b"GET", b"GET /", b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n", b"G\x01T / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%00%ff%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/v1/logs/..%2f..%2fetc/stdout HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n",
    b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
    b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
    b'POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"verb":',
    b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: gzip\r\n\r\n{}",
    b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
]  # fmt: skip

BROKEN_BODIES: list[tuple[object, int]] = [
    (b"{", 400), (b"[]", 400), (b"7", 400), (b"null", 400), (b"\xff\xfe", 400), (b'{"verb": NaN}', 400),
    (b"[" * 50_000, 400), (b" " * (MOST_BODY_BYTES + 1), 413), ({}, 400), ({"verb": None}, 400), ({"verb": "explode"}, 400),
    ({"verb": ["stop"]}, 400), ({"verb": "stop", "names": "Pong"}, 400), ({"verb": "stop", "names": [1]}, 400),
    ({"verb": "stop", "names": {"a": 1}}, 400), ({"verb": "stop", "nmes": []}, 400),
    ({"verb": "stop", "timeout_s": "1"}, 400), ({"verb": "stop", "timeout_s": -1}, 400), ({"verb": "stop", "timeout_s": True}, 400),
    ({"verb": "stop", "timeout_s": 1e9}, 400), ({"verb": "stop", "names": ["\ud800"]}, 200), ({"verb": "stop", "names": [""]}, 200),
    ({"verb": "stop", "names": ["x" * 60_000]}, 200), ({"verb": "start", "names": []}, 200),
    ({"verb": "start", "names": [], "timeout_s": 3600}, 200),
]  # fmt: skip

BROKEN_QUERIES = [
    "/api/v1/facts?after=x", "/api/v1/facts?after=-1", "/api/v1/facts?limit=100000", "/api/v1/facts?limit=1e3",
    "/api/v1/facts?after=" + "9" * 400, "/api/v1/facts?after=", "/api/v1/mainlog?tail=1", "/api/v1/nothing", "/nothing",
    "/api/v1/logs/Pong/stdout?tail=-1", "/api/v1/logs/Pong/stdout?offset=-5", "/api/v1/logs/Pong/stdout?offset=x",
    "/api/v1/logs/Pong/stdout?offset=0&limit=0",
]  # fmt: skip


def test_rubbish_never_harms_the_server(api: Path, backend: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x")
    backend.change("Pong", stdout_log=str(tmp_path / "log"))
    for data in BROKEN_BYTES:
        got = raw(api, data)
        assert got == b"" or got.startswith(b"HTTP/1.1 "), data[:80]
        assert b" 500 " not in got.partition(b"\r\n")[0], data[:80]
    for body, wanted in BROKEN_BODIES:
        status, told = call(api, "/api/v1/ask", body)
        assert status == wanted, (body, told)
        assert status == 200 or told["error"], body
    for target in BROKEN_QUERIES:
        status, told = call(api, target)
        assert status in {400, 404, 422}, target
        assert told["error"]
    assert call(api, "/api/v1/ask", method="GET") == (405, {"error": "this page does not take that method"})
    assert call(api, "/api/v1/status", {})[0] == 405
    assert backend.asked == []
    assert call(api, "/api/v1/status")[0] == 200


def test_it_stops_with_open_connections_and_waiting_requests(
    backend: FakeBackend, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LAST_ANSWERS_S", "_STOP_S"):
        monkeypatch.setattr(server, name, 60)  # a busy machine may answer late
    backend.gate = threading.Event()
    threads = sum(thread.name == "api" for thread in threading.enumerate())
    with ThreadPoolExecutor(1) as pool:
        with served(backend, socket_path):
            idle = Connection(socket_path)
            idle.connect()
            asked = pool.submit(call, socket_path, "/api/v1/ask", {"verb": "stop", "names": ["Pong"]})
            assert backend.waiting.acquire(timeout=20)
            backend.gate.set()  # the daemon lets go of every waiting call when it ends
        assert asked.result(20)[0] == 200
        idle.close()
    assert not socket_path.exists()
    assert sum(thread.name == "api" for thread in threading.enumerate()) == threads
