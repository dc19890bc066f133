"""The server, its TCP port and the stream without crowds: what is sent byte by byte, what is logged, what is closed."""

import gzip
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from fake_backend import program
from serving import Connection, call, served
from tools import PATIENCE

from supervisor.api import app

# --- the server --------------------------------------------------------------------------------------------------------------


def test_pages_are_compressed_for_clients_that_accept_it_and_logs_never(backend, socket_path, tmp_path):
    backend.add(*(program(f"p{number:03}") for number in range(20)))
    (tmp_path / "log").write_bytes(b"x" * 5000)
    backend.change("p000", stdout_log=str(tmp_path / "log"))
    with served(backend, socket_path):
        for target, packs in (("status", True), ("level", False), ("logs/p000/stdout", False)):
            bodies = []
            for accepted in ("gzip, br", "identity"):
                connection = Connection(socket_path)
                connection.request("GET", f"/api/v1/{target}", headers={"Accept-Encoding": accepted})
                answer = connection.getresponse()
                packed = answer.getheader("content-encoding") == "gzip"
                assert packed == (packs and accepted != "identity"), "an answer below 1 kB is not worth it"
                bodies.append(answer.read())
                assert int(answer.getheader("content-length", "")) == len(bodies[-1])
                bodies[-1] = gzip.decompress(bodies[-1]) if packed else bodies[-1]
                connection.close()
            assert [body[:1000] for body in bodies] == [bodies[0][:1000]] * 2


def test_a_second_asker_gets_the_page_that_is_being_made_unless_a_fact_was_recorded_since(backend, socket_path, monkeypatch):
    asked, begun, gate, newest = threading.Semaphore(0), threading.Semaphore(0), threading.Event(), 7

    def newest_fact():
        asked.release()
        return newest

    def slow(**_):
        begun.release()
        assert gate.wait(PATIENCE * 30)
        return {"newest": newest}

    monkeypatch.setattr(backend, "newest_fact", newest_fact)
    monkeypatch.setattr(backend, "page_cost", slow, raising=False)
    with served(backend, socket_path), ThreadPoolExecutor(4) as clients:
        answers = []
        for since, fact in (("60s", 7), ("60s", 7), ("61s", 7), ("60s", 8)):
            newest = fact
            answers.append(clients.submit(call, socket_path, f"/api/v1/cost?since={since}"))
            assert asked.acquire(timeout=30)
        gate.set()
        assert {answer.result()[0] for answer in answers} == {200}
    made = sum(begun.acquire(blocking=False) for _ in answers)
    assert made == 3, "the last asker may just have changed something; the second one gets the page of the first"


def test_pages_of_long_windows_are_made_one_at_a_time_beside_the_short_ones(backend, socket_path, monkeypatch):
    begun, gate = threading.Semaphore(0), threading.Event()

    def made(since, **_):
        if since.ago_s != 43_200.0:
            begun.release()
            assert gate.wait(PATIENCE * 30)
        return {}

    monkeypatch.setattr(app, "_MOST_LONG", 3)
    monkeypatch.setattr(backend, "page_cost", made, raising=False)
    with served(backend, socket_path), ThreadPoolExecutor(4) as clients:
        long = [clients.submit(call, socket_path, f"/api/v1/cost?since={each}") for each in ("all", "boot", "@5", "999999s")]
        (refused,) = [each.result() for each in wait(long, 30 * PATIENCE, FIRST_COMPLETED).done]
        assert refused == (503, {"error": "3 pages of long windows are being made already: try again"})
        assert begun.acquire(timeout=30)
        assert call(socket_path, "/api/v1/cost?since=43200s") == (200, {})
        assert not begun.acquire(blocking=False), "one at a time"
        gate.set()
        assert sorted(each.result()[0] for each in long) == [200, 200, 200, 503]
