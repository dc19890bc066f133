"""The JSON API on a real uvicorn and a real unix socket, over a fake daemon."""

from __future__ import annotations

import os
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from fake_backend import WALL_S, FakeBackend
from serving import Connection, call, served

from supervisor.api import server
from supervisor.api.app import MOST_ASKS
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


def test_one_program_by_any_of_supervisors_names(api: Path) -> None:
    for spec in ("Pong", "Pong:Pong", "Pong:*", "Pong:"):
        assert call(api, f"/api/v1/programs/{spec}")[1]["name"] == "Pong"


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
