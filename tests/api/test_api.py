"""The JSON API on a real uvicorn and a real unix socket, over a fake daemon."""

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from serving import Connection, call, served

from supervisor.api import server
from supervisor.api.app import MOST_ASKS


def test_one_program_by_any_of_supervisors_names(api):
    for spec in ("Pong", "Pong:Pong", "Pong:*", "Pong:"):
        assert call(api, f"/api/v1/programs/{spec}")[1]["name"] == "Pong"


# --- asking --------------------------------------------------------------------------------------------------------------


def test_waiting_requests_do_not_make_status_wait(api, backend):
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


def test_it_stops_with_open_connections_and_waiting_requests(backend, socket_path, monkeypatch):
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
