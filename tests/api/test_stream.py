"""The stream of `status`: a whole page first, then what has changed; slow readers, many readers, and the end."""

from __future__ import annotations

import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend, program
from hypothesis import given
from hypothesis import strategies as st
from serving import Connection, call, hung_up, served, until
from structlog.testing import capture_logs
from tools import allow_open_files

from supervisor.api import server, stream
from supervisor.api.encoding import encoded
from supervisor.model.facts import DaemonSuspended, Stamped
from supervisor.policy.upkeep import refresh

STREAM = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LOOK_S", 0.02)
    monkeypatch.setattr(refresh, "SHORTEST_S", 0.02)
    monkeypatch.setattr(stream, "READINGS_SHARE", 1.0)  # a busy machine must not make the events of a test rare


@pytest.fixture
def path(backend: FakeBackend, socket_path: Path) -> Iterator[Path]:
    with served(backend, socket_path):
        yield socket_path


class Reader:
    """A client of the stream, as a browser's EventSource reads it."""

    def __init__(self, path: Path, **headers: str) -> None:
        self._connection = Connection(path)
        self._connection.request("GET", "/api/v1/stream", headers=headers)
        self.response = self._connection.getresponse()

    def close(self) -> None:
        self.response.close()  # it has the socket of a stream
        self._connection.close()  # which has that of a refusal

    def lines(self) -> list[str]:
        """Of the next event or comment; none: the stream has ended."""
        found = []
        while line := self.response.readline().decode():
            if line == "\n":
                return found
            found.append(line.rstrip("\n"))
        return found

    def event(self) -> tuple[str, int, Any]:
        """(name, id, data) of the next event; comments are passed over."""
        while (lines := self.lines())[0].startswith(":"):
            pass
        fields = dict(line.split(": ", 1) for line in lines)
        return fields["event"], int(fields["id"]), json.loads(fields["data"])

    def change(self, of: str) -> Any:
        """(id, data) of the next change of a program. None: it came with a whole page, to a reader that was late."""
        while (event := self.event())[0] == "change" and of not in event[2]["programs"]:
            pass
        return event[1:] if event[0] == "change" else None


def suspended(seq: int) -> Stamped:
    return Stamped(seq, 1.0, 1.0, "b", DaemonSuspended("why", 60.0, 1.0))


def test_a_browser_gets_each_event_compressed_at_once(
    path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "SHORTEST_S", 1e9)
    backend.add(*(program(f"p{number:03}") for number in range(20)))
    reader = Reader(path, **{"Accept-Encoding": "gzip", "Last-Event-ID": "7"})  # who connects anew gets a whole
    assert reader.response.getheader("content-encoding") == "gzip"
    plain, sizes = zlib.decompressobj(31), []

    def event() -> str:
        text = ""
        while not text.endswith("\n\n"):
            packed = reader.response.read1()
            sizes.append(len(packed))
            text += plain.decompress(packed).decode()
        return text

    begin, _, whole = event().partition("data: ")
    assert begin == "retry: 1000\nevent: whole\nid: 0\n"
    assert json.loads(whole)["programs"] == call(path, "/api/v1/status")[1]["programs"]
    for number in range(1, 4):
        backend.change("p007", loss=1 / (3 + number), steps=number)
        backend.journal.append(suspended(number))
        assert f'"loss":{1 / (3 + number):.6g}' in event()
    assert max(sizes[-2:]) < 100, "what an event repeats takes next to nothing"
    reader.close()


PAGES = st.fixed_dictionaries({
    "daemon": st.dictionaries(st.just("level"), st.none() | st.integers(0, 1)),
    "programs": st.lists(st.sampled_from("abc"), unique=True).flatmap(
        lambda names: st.tuples(*(st.fixed_dictionaries({"name": st.just(n), "steps": st.none() | st.integers(0, 1)}) for n in names))
    ),
    "now_s": st.integers(0, 1),
})  # fmt: skip


@given(old=PAGES, new=PAGES.filter(lambda page: page["daemon"]))
def test_a_change_makes_the_new_page_of_the_old_one_and_says_nothing_else(old: Any, new: Any) -> None:
    told = stream.changed(old, new)
    programs = {each["name"]: each for each in old["programs"] if each["name"] not in told["gone"]}
    for name, fresh in told["programs"].items():
        assert fresh
        programs[name] = programs.get(name, {}) | fresh
    assert programs == {each["name"]: each for each in new["programs"]}
    assert old["daemon"] | told["daemon"] == new["daemon"]
    assert ("now_s" in told) == (old["now_s"] != new["now_s"])


def test_a_stream_without_events_beats(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a proxy closes it."""
    monkeypatch.setattr(refresh, "SHORTEST_S", 1e9)
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.02)
    reader = Reader(path)
    assert reader.response.getheader("x-accel-buffering") == "no"
    reader.event()
    assert reader.lines() == [":"]
    reader.close()


def test_pages_are_made_once_for_all_readers_and_only_while_somebody_listens(
    path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, encoded_by = [], []
    make, encode = backend.page_status, stream.encoded
    monkeypatch.setattr(backend, "page_status", lambda: made.append(make()) or made[-1])
    monkeypatch.setattr(stream, "encoded", lambda value: encoded_by.append(value) or encode(value))
    readers = [Reader(path) for _ in range(20)]
    assert {reader.event()[0] for reader in readers} == {"whole"}
    assert {reader.event()[0] for reader in readers} <= {"change", "whole"}
    assert len(encoded_by) <= 2 * len(made), "a page is a change and a whole at the most, whoever reads"
    for reader in readers:
        reader.close()
    until(lambda: not watched(made, 0.1), "the server to leave the page alone")


def watched(made: list[Any], during_s: float) -> bool:
    before = len(made)
    time.sleep(during_s)
    return len(made) > before


def test_readings_come_once_a_period_and_a_fact_at_the_next_look(
    path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "SHORTEST_S", 1e9)
    reader = Reader(path)
    reader.event()
    backend.change("Pong", steps=1)
    time.sleep(0.1)
    backend.change("Pong", phase="STOPPED")
    backend.journal = [suspended(1)]
    assert reader.event()[2]["programs"]["Pong"] == {"steps": 1, "phase": "STOPPED"}, "and not the steps alone before it"
    reader.close()


# --- readers that are slow -------------------------------------------------------------------------------------------------


def connect(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(path))
    sock.sendall(STREAM)
    return sock


def test_who_never_reads_is_let_go_and_nobody_waits_for_it(
    path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.add(*(program(f"p{number}", why="x" * 1000) for number in range(500)))
    reader = Reader(path)
    reader.event()  # a busy machine may stop the reader in the middle of the large one; all later ones are small
    monkeypatch.setattr(stream, "UNREAD_S", 0.3)
    never = [connect(path) for _ in range(10)]
    until(lambda: reader.event() and all(map(hung_up, never)), "the server to let go of all of them")
    for sock in never:
        with sock:
            while sock.recv(1 << 20):
                pass
    reader.event()
    reader.close()


def test_a_reader_that_was_late_gets_the_whole_page(
    path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has missed changes, and the next one would not lead to the page from what it knows."""
    monkeypatch.setattr(refresh, "SHORTEST_S", 1e9)  # only a fact brings an event
    reads_nothing = threading.Event()

    def unread_bytes(scope: Any) -> int:
        return 9 if reads_nothing.is_set() and (b"x-late", b"1") in scope["headers"] else 0

    monkeypatch.setattr(stream, "unread_bytes", unread_bytes)
    late, other = Reader(path, **{"X-Late": "1"}), Reader(path)
    assert (late.event()[0], other.event()[0]) == ("whole", "whole")

    def happens(seq: int) -> None:
        backend.change("Pong", steps=seq)
        backend.journal = [suspended(seq)]

    reads_nothing.set()
    for seq in (1, 2):
        happens(seq)
        name, number, change = other.event()
        assert (name, number, change["programs"]) == ("change", seq, {"Pong": {"steps": seq}})
    reads_nothing.clear()
    happens(3)
    name, seq, page = late.event()
    assert (name, seq, [each["steps"] for each in page["programs"] if each["name"] == "Pong"]) == ("whole", 3, [3])
    happens(4)
    assert late.event()[:2] == ("change", 4)
    for each in (late, other):
        each.close()


# --- many readers ----------------------------------------------------------------------------------------------------------


def test_a_thousand_that_want_the_stream_do_not_keep_status_from_answering(path: Path) -> None:
    allow_open_files(2_200)
    readers = [connect(path) for _ in range(1_000)]
    code, told = call(path, "/api/v1/status")
    assert (code, len(told["programs"])) == (200, 2)
    codes = [sock.recv(12) for sock in readers]
    assert codes.count(b"HTTP/1.1 200") == stream.MOST_STREAMS
    assert codes.count(b"HTTP/1.1 503") == 1_000 - stream.MOST_STREAMS
    code, told = call(path, "/api/v1/stream")
    assert code == 503
    assert told["error"] == "128 streams are open already: close one, or ask for a page"
    for sock in readers:
        sock.close()
    until(lambda: call_stream(path) == 200, "a free place")


def call_stream(path: Path) -> int:
    reader = Reader(path)
    reader.close()
    return reader.response.status


# --- the end ---------------------------------------------------------------------------------------------------------------


def test_every_stream_ends_at_once_when_the_server_does(
    backend: FakeBackend, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((stream, "LOOK_S"), (server, "_LAST_ANSWERS_S"), (server, "_STOP_S")):
        monkeypatch.setattr(module, name, 60)  # whoever was waited for would take so long
    with served(backend, socket_path):
        readers = [Reader(socket_path) for _ in range(5)]
        assert {reader.event()[0] for reader in readers} == {"whole"}
        began = time.monotonic()
    assert time.monotonic() - began < 30
    for reader in readers:
        assert reader.lines() == []
        reader.close()


def test_a_page_that_cannot_be_made_ends_the_streams_and_is_told_to_the_next(
    path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(path)
    reader.event()
    with capture_logs() as said:
        with monkeypatch.context() as patch:
            patch.setattr(backend, "page_status", lambda: 1 // 0)
            while reader.lines():
                pass
            assert call(path, "/api/v1/stream")[0] == 500
        assert [entry["event"] for entry in said] == ["stream_failed", "api_request_failed"]
    reader.close()
    after = Reader(path)
    assert after.event()[0] == "whole"
    after.close()


# --- encoded once ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": float("nan"), "b": [float("inf")]}, '{"a":null,"b":[null]}'),
        ({1: (1.5, None)}, '{"1":[1.5,null]}'),
        ({(1, 2): "line\nend\u2028"}, '{"(1, 2)":"line\\nend\u2028"}'),
        ({"a": "\ud800"}, '{"a":"?"}'),
        ({"a": Path("/x")}, '{"a":"/x"}'),
    ],
)
def test_what_json_has_no_word_for(value: Any, text: str) -> None:
    assert encoded(value) == text.encode()
