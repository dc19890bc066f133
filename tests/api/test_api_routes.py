"""Each address of the API without a server between: its page, its methods, and what becomes of every kind of error."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend, program
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message
from structlog.testing import capture_logs

from supervisor.api import app as apps
from supervisor.api import assets
from supervisor.api.app import Api
from supervisor.api.door import PasswordCheck
from supervisor.api.inputs import RequestRefused
from supervisor.api.peer import Peer
from supervisor.model.settings import HttpSettings
from supervisor.reports.pages import PAGES, BadQuery

BOTH = {"level", "offsite"}  # read and posted
JSON = (b"content-type", b"application/json")


class Asked:
    """An application of its own for each request, as a server would make it."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend

    def __call__(
        self,
        method: str,
        target: str,
        body: bytes = b"{}",
        kind: tuple[bytes, bytes] = JSON,
        host: str = "localhost",
        **scope: Any,
    ) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body)."""
        passwords = PasswordCheck(lambda: 0.0)
        passwords.use_password(HttpSettings("127.0.0.1:1", "me", "/secret", "127.0.0.1", 1, "word"))
        api, sent = Api(self.backend, lambda: 1000.0), []
        path, _, query = target.partition("?")
        pieces = iter([{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}])

        async def receive() -> Message:
            return next(pieces)

        async def send(message: Message) -> None:
            sent.append(message)

        whole = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(b"host", host.encode()), kind, (b"content-length", b"%d" % len(body))], "extralife.peer": Peer(1, 0, 0),
            "server": ("localhost", 80), "scheme": "http", "asgi": {"version": "3.0"}, **scope,
        }  # fmt: skip
        try:
            asyncio.run(api.app(["Tunnel.example"], passwords)(whole, receive, send))
        finally:
            api.close()
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:])

    def told(self, method: str, target: str, body: bytes = b"{}", **more: Any) -> tuple[int, Any]:
        """(status, JSON)."""
        status, headers, text = self(method, target, body, **more)
        assert (headers["content-type"], headers["content-length"]) == ("application/json", str(len(text)))
        return status, json.loads(text)


@pytest.fixture
def asked() -> Asked:
    backend = FakeBackend(wall_s=1.0)
    backend.add(program("Pong"))
    return Asked(backend)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/assets/0123456789abcdef/vendor/vendored.json", "application/json"),
        ("/assets/0123456789abcdef/app.js", "text/javascript; charset=utf-8"),
        ("/healthz", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/api/v1/programs/Pong", "application/json"),
        ("/api/v1/status", "application/json"),
        ("/api/v1/facts", "application/json"),
    ],
)
def test_a_page_is_read_and_not_posted(asked: Asked, target: str, kind: str) -> None:
    status, headers, body = asked("GET", target)
    assert (status, headers["content-type"], headers["content-length"]) == (200, kind, str(len(body)))
    assert asked("HEAD", target)[:2] == (200, headers)
    for method in ("POST", "PUT", "DELETE"):
        assert asked.told(method, target) == (405, {"error": "this page does not take that method"})


def test_every_page_of_the_reports_has_its_address(asked: Asked) -> None:
    assert {name: asked("POST", f"/api/v1/{name}")[0] for name in PAGES} == {
        name: 400 if name in BOTH else 405 for name in PAGES
    }
    assert asked.told("GET", "/api/v1/level") == (200, asked.backend.ladder)
    assert asked.told("GET", "/api/v1/nothing") == asked.told("POST", "/nothing") == (404, {"error": "no such page"})


def test_a_costly_page_of_a_long_window_is_given_again_for_a_while(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    made, now_s = itertools.count(1), [0.0]
    asked.backend.page = lambda *_: {"made": next(made)}  # type: ignore[method-assign]
    api = Api(asked.backend, lambda: now_s[0])

    def twice(**query: str) -> list[int]:
        return [json.loads(asyncio.run(api._shared("accounts", query)))["made"] for _ in range(2)]

    assert twice() == [1, 2]
    monkeypatch.setattr(apps, "_COSTLY_S", 0.0)
    monkeypatch.setattr(apps, "_SHARE", 1e-9)
    assert (twice(since="60s"), twice(), twice(since="200000s")) == ([3, 4], [5, 5], [6, 6])
    request = Request({"type": "http", "query_string": b"", "headers": [(b"cache-control", b"no-cache")]})  # `supervisorctl`
    assert json.loads(asyncio.run(api._page("accounts")(request)).body) == {"made": 7}  # type: ignore[arg-type]
    now_s[0] = apps._OLDEST_S
    assert twice() == [8, 8]
    api.close()


@pytest.mark.parametrize(
    ("error", "status", "sentence", "logged"),
    [
        (RequestRefused(418, "no tea"), 418, "no tea", None),
        (BadQuery("since must be x"), 422, "since must be x", None),
        (ClientDisconnect(), 400, "the client has gone", None),
        (OSError(5, "I/O"), 503, "this cannot be read now: [Errno 5] I/O", ("api_request_refused", "warning")),
        (KeyError("secret"), 500, "this request stopped at a bug (KeyError); see the daemon's log", ("api_request_failed", "error")),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("method", "target"), [("GET", "/api/v1/facts"), ("POST", "/api/v1/alerts/test")])
def test_an_error_is_answered_and_only_a_trouble_of_the_daemon_is_logged(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, method: str, target: str, error: Exception, status: int, sentence: str,
    logged: tuple[str, str] | None,
) -> None:  # fmt: skip
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asked.backend, "page_facts", fails, raising=False)
    monkeypatch.setattr(asked.backend, "test_alerts", fails)
    with capture_logs() as said:
        assert asked.told(method, target) == (status, {"error": sentence})
    if logged is None:
        assert said == []
        return
    more = {"error": str(error)} if logged[1] == "warning" else {"exc_info": True}
    assert said == [{"event": logged[0], "path": target, **more, "log_level": logged[1]}]


def test_the_dashboards_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_text("/assets/x")
    monkeypatch.setattr(assets, "DIRECTORY", tmp_path)
    loaded = assets.Assets()
    assert not loaded.loaded
    loaded.load()
    assert loaded.loaded
    (tmp_path / "index.html").unlink()
    tmp_path.rmdir()

    def get(**params: str) -> Any:
        scope = {"type": "http", "method": "GET", "headers": [], "path_params": params}
        return loaded.answer(Request(scope))

    page = get()
    stamp = page.headers["etag"].strip('"')
    assert (page.status_code, page.body, len(stamp)) == (200, f"/assets/{stamp}/x".encode(), 16)
