"""What of a request reaches the daemon, and each answer as a whole: head, status and body."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_backend import FakeBackend, daemon, journal, program
from serving import Connection, call

from supervisor.api import app
from supervisor.api.port import Result
from supervisor.model.codes import BAD_NAME, CANT_REREAD, FAILED, NOT_RUNNING, SUCCESS
from supervisor.model.inputs import Verb

ME, UID = pwd.getpwuid(os.getuid()).pw_name, os.getuid()


def noting(name, answer):
    def noted(self, *given, **named):
        if self.raises is not None:
            raise self.raises
        self.calls.append((name, *given, *named.values()))
        return getattr(self, answer)

    return noted


@dataclass
class Noting(FakeBackend):
    """Notes every call with all that it is given, and answers as the test says."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    result: Result = ("Pong", SUCCESS, "done")
    results: list[Result] = field(default_factory=list)
    tests: Any = field(default_factory=lambda: {"tried": [{"target": "x"}]})
    raises: Exception | None = None

    ask = noting("ask", "results")
    request = noting("request", "result")
    remove = noting("remove", "result")
    send_stdin = noting("send_stdin", "result")
    reread = noting("reread", "changes")
    update = noting("update", "changes")
    test_alerts = noting("test_alerts", "tests")


@pytest.fixture
def backend():
    made = Noting()
    made.add(program("Pong"), program("Breakout", "QUEUED", attempt=0))
    return made


@pytest.mark.parametrize(
    ("body", "reaches"),
    [
        ({"verb": "stop", "names": ["Pong:*"]}, (Verb.STOP, ["Pong"], "", ME, UID, 600.0)),
        ({"verb": "stop", "names": ["all"], "signal": "HUP"}, (Verb.STOP, ["Breakout", "Pong"], "", ME, UID, 600.0)),
        ({"verb": "clear", "names": ["Pong", "Pong"]}, (Verb.CLEAR, ["Pong"], "", ME, UID, 600.0)),
        ({"verb": "signal", "names": ["Pong"], "signal": "hup"}, (Verb.SIGNAL, ["Pong"], "SIGHUP", ME, UID, 600.0)),
        ({"verb": "stop", "names": ["Pong"], "timeout_s": 3600}, (Verb.STOP, ["Pong"], "", ME, UID, 3600.0)),
        ({"verb": "stop", "names": ["Pong"], "timeout_s": 0.5}, (Verb.STOP, ["Pong"], "", ME, UID, 0.5)),
        ({"verb": "start", "names": ["Pong"], "wait": False}, (Verb.START, ["Pong"], "", ME, UID, 600.0)),
        ({"verb": "shutdown"}, (Verb.SHUTDOWN, [], "", ME, UID, 600.0)),
        ({"verb": "reload", "names": []}, (Verb.RELOAD, [], "", ME, UID, 600.0)),
        ({"verb": "stop", "names": ["Pung", "\ud800"]}, None),
        ({"verb": "stop", "names": []}, None),
        ({"verb": "signal", "names": ["Pong"], "signal": "nonsense"}, None),
    ],
)
def test_what_is_asked_reaches_the_daemon_as_it_was_meant(api, backend, body, reaches):
    assert call(api, "/api/v1/ask", body)[0] == 200
    assert backend.calls == ([] if reaches is None else [("ask", *reaches)])


def test_the_results_come_in_the_order_of_the_names_and_unknown_ones_keep_their_place(api, backend):
    backend.results = [("Pong", NOT_RUNNING, "not running"), ("Breakout", SUCCESS, "stopped")]
    assert call(api, "/api/v1/ask", {"verb": "stop", "names": ["Breakout", "x", "Pong"]}) == (
        200,
        {
            "results": [
                {"name": "Breakout", "code": 80, "text": "stopped"}, {"name": "x", "code": 10, "text": "no such process"},
                {"name": "Pong", "code": 70, "text": "not running"},
            ]
        },
    )  # fmt: skip
    backend.results = backend.results[:1]
    assert call(api, "/api/v1/ask", {"verb": "stop", "names": ["Breakout", "Pong"]})[1] == {
        "results": [{"name": "Pong", "code": 70, "text": "not running"}]
    }, "a program that was removed meanwhile has none"  # fmt: skip
    assert call(api, "/api/v1/ask", {"verb": "signal", "names": ["Pong"], "signal": "²"})[1] == {
        "results": [{"name": "Pong", "code": 11, "text": "bad signal name"}]
    }


@pytest.mark.parametrize(("wait", "text"), [({}, "started"), ({"wait": True}, "started"), ({"wait": False}, "accepted")])
@pytest.mark.parametrize("verb", ["start", "restart"])
def test_a_start_is_waited_for_unless_the_client_does_not_want_it(api, backend, verb, wait, text):
    backend.results = [("Pong", SUCCESS, "accepted")]

    def started(*_):
        backend.change("Pong", attempt=2)
        return backend.results

    backend.ask = started
    assert call(api, "/api/v1/ask", {"verb": verb, "names": ["Pong"], **wait})[1] == {
        "results": [{"name": "Pong", "code": 80, "text": text}]
    }


@pytest.mark.parametrize("verb", ["shutdown", "reload"])
@pytest.mark.parametrize(("code", "status"), [(CANT_REREAD, 422), (FAILED, 503)])
def test_a_daemon_that_does_not_end_says_why(api, backend, verb, code, status):
    backend.results = [("", code, "level.slots: no; program.x: no"), ("", SUCCESS, "x")]
    assert call(api, "/api/v1/ask", {"verb": verb}) == (status, {"error": "level.slots: no; program.x: no"})
    backend.results = []
    assert call(api, "/api/v1/ask", {"verb": verb}) == (200, {"results": []})


ROUTES = [
    ("backup", {}, ("request", Verb.BACKUP, "", [], ME, UID, 600.0)),
    ("backup", {"names": ["Pong:*"], "label": "x" * 100}, ("request", Verb.BACKUP, "x" * 100, ["Pong"], ME, UID, 600.0)),
    ("backup", {"names": ["Pong", "all"]}, ("request", Verb.BACKUP, "", [], ME, UID, 600.0)),
    ("rollback", {"backup": "b", "names": ["Pong"]}, ("request", Verb.ROLLBACK, "b", ["Pong"], ME, UID, 600.0)),
    *(("offsite", {"do": do}, ("request", Verb.OFFSITE, do, [], ME, UID, 600.0))
      for do in ("now", "check", "forget", "take-over")),
    ("when-done", {"do": "delay", "for_s": 5}, ("request", Verb.WHEN_DONE, "delay", [], ME, UID, 600.0, 5)),
    ("when-done", {"do": "now"}, ("request", Verb.WHEN_DONE, "now", [], ME, UID, 600.0)),
    ("remove", {"name": "Pong:Pong"}, ("remove", "Pong", ME, UID)),
    ("stdin", {"name": "any:any", "text": "ä\ud800\n"}, ("send_stdin", "any", b"\xc3\xa4\xed\xa0\x80\n")),
    ("level", {"pin": "light"}, ("request", Verb.PIN, "", ["light"], ME, UID, 600.0, None)),
    ("level", {"pin": "light", "for_s": 5, "unpin": False}, ("request", Verb.PIN, "", ["light"], ME, UID, 600.0, 5.0)),
    ("level", {"unpin": True}, ("request", Verb.UNPIN, "", [], ME, UID, 600.0, None)),
]  # fmt: skip


@pytest.mark.parametrize(("page", "body", "reaches"), ROUTES)
def test_what_each_route_hands_on_and_answers(api, backend, page, body, reaches):
    assert call(api, f"/api/v1/{page}", body) == (200, {"name": "Pong", "code": 80, "text": "done"})
    assert backend.calls == [reaches]


@pytest.mark.parametrize(
    ("page", "body", "status"),
    [
        ("remove", {"name": "Pong"}, 409), ("stdin", {"name": "Pong", "text": ""}, 409), ("level", {"unpin": True}, 409),
        ("backup", {}, 200),
    ],
)  # fmt: skip
def test_what_the_daemon_refuses_is_told_in_its_words(api, backend, page, body, status):
    backend.result = ("Pong", FAILED, "not now")
    told = {"name": "Pong", "code": FAILED, "text": "not now"} if status == 200 else {"error": "not now"}
    assert call(api, f"/api/v1/{page}", body) == (status, told)
    backend.result = ("Pong", BAD_NAME, "no such program")
    if page in {"stdin", "level"}:
        assert call(api, f"/api/v1/{page}", body) == (404, {"error": "no such program"})


def test_changes_of_the_configuration(api, backend):
    assert call(api, "/api/v1/reread", {}) == (200, backend.changes)
    assert call(api, "/api/v1/update", {}) == (200, backend.changes)
    assert call(api, "/api/v1/update", {"names": ["Pong:*", "b"], "dry_run": True})[0] == 200
    assert call(api, "/api/v1/update", {"names": ["b", "all"], "dry_run": False})[0] == 200
    assert call(api, "/api/v1/alerts/test", {}) == (200, {"tried": [{"target": "x"}]})
    assert backend.calls == [
        ("reread",), ("update", [], False, ME, UID), ("update", ["Pong", "b"], True, ME, UID), ("update", [], False, ME, UID),
        ("test_alerts",),
    ]  # fmt: skip
    backend.changes = {"errors": ["a", 7]}
    for page in ("reread", "update"):
        assert call(api, f"/api/v1/{page}", {}) == (422, {"error": "a; 7", "errors": ["a", 7]})


def test_after_an_error_its_place_among_the_requests_that_wait_is_free_again(api, backend):
    backend.raises = ZeroDivisionError("secret")
    for _ in range(app.MOST_ASKS + 1):
        assert call(api, "/api/v1/reread", {})[0] == 500


def test_health_as_a_whole(api, backend):
    backend.now_s = 970.0
    config = backend.header["config"]
    well = {"state": "running", "age_s": 30.0, "worst_gap_s": None, "config": config}
    for step_s in (-3600.0, 3600.0, 0.0):  # a step of the wall clock since the last turn is no wedge, and hides none
        backend.wall_s = time.time() + step_s
        assert call(api, "/healthz") == (200, {"ok": True, **well})
    backend.header = daemon(journal=journal(error="disk full"), http={"listen": "x", "error": "taken"})
    wrong = ["the journal cannot be written: disk full", "the TCP port x of [http] is not open: taken"]
    assert call(api, "/healthz") == (503, {"ok": False, **well, "error": "; ".join(wrong), "troubles": wrong})
    row = {"name": "x", "look": "other", "since_wall_s": 1.0}
    away = [{**row, "path": "/p/stderr.log", "why": "the log"}, {**row, "path": "/p", "why": "the directory"}]
    backend.change("Pong", stderr_log="/p/stderr.log")
    backend.header = daemon(foundations=away)
    assert call(api, "/healthz")[1]["troubles"] == ["the directory"], "a worker whose log is away trains on"
    backend.now_s = 969.4
    error = {"error": "the deciding loop has not run for 31s", "age_s": pytest.approx(30.6)}
    assert call(api, "/healthz") == (503, error)


@pytest.mark.parametrize(
    "page", ["backup", "offsite", "when-done", "rollback", "remove", "stdin", "level", "update", "alerts/test", "reread"]
)
def test_every_route_refuses_a_key_that_it_does_not_know(api, backend, page):
    status, told = call(api, f"/api/v1/{page}", {"z": 1})
    assert (status, told["error"].partition(";")[0]) == (400, "unknown key 'z'")
    assert backend.calls == []


# --- logs --------------------------------------------------------------------------------------------------------------------


def log_of(api, target):
    connection = Connection(api)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_a_log_is_answered_with_its_position(api, backend, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 2000 + b"end")
    backend.change("Pong", stdout_log=str(path), stderr_log=str(tmp_path / "none"))
    backend.header = daemon(main_log=str(path))
    file = f"{path.stat().st_dev:x}-{path.stat().st_ino:x}"

    def told(data, after, note=""):
        head = {"content-type": "application/octet-stream", "content-length": str(len(data))}
        return 200, {**head, "x-file": file, "x-next-offset": str(after), "x-note": note}, data

    for target in ("/api/v1/mainlog", "/api/v1/logs/Pong/stdout", "/api/v1/logs/Pong:Pong/stdout"):
        assert log_of(api, target) == told(b"x" * 1597 + b"end", 2003)
        assert log_of(api, f"{target}?tail=0") == told(b"", 2003)
        assert log_of(api, f"{target}?tail=4&limit=1") == told(b"xend", 2003)
        assert log_of(api, f"{target}?offset=1999") == told(b"xend", 2003)
        assert log_of(api, f"{target}?offset=1999&limit=2&file={file}") == told(b"xe", 2001)
        assert log_of(api, f"{target}?offset=2003&limit=1048576") == told(b"", 2003)
        assert log_of(api, f"{target}?offset=2&limit=1&file=0-0") == told(b"x", 1, "rotated")
        assert log_of(api, f"{target}?offset={2**62}&limit=1") == told(b"x", 1, "truncated")
    assert call(api, "/api/v1/logs/Pong/stderr") == (404, {"error": "no log file"})
    assert log_of(api, "/api/v1/logs/Pong/stderr?maybe=")[::2] == (204, b""), "no error in a browser's console"
    backend.header = daemon(main_log=str(tmp_path))
    assert call(api, "/api/v1/mainlog")[0] == 500
    assert call(api, "/api/v1/mainlog")[1]["error"].startswith("cannot read the log: [Errno ")
