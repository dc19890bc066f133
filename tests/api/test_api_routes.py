"""Each address of the API: its page, its methods, and what becomes of every kind of error."""

import pytest
from serving import JSON, Connection, call
from starlette.requests import ClientDisconnect
from structlog.testing import capture_logs

from supervisor.api.inputs import RequestRefused
from supervisor.reports.pages import BadQuery, pages

BOTH = {"level", "offsite"}  # read and posted


def answer(api, method, target):
    """(status, headers, body)."""
    connection = Connection(api)
    try:
        connection.request(method, target, headers=JSON)
        found = connection.getresponse()
        return found.status, dict(found.getheaders()), found.read()
    finally:
        connection.close()


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
def test_a_page_is_read_and_not_posted(api, backend, target, kind):
    backend.wall_s = 1.0
    status, headers, body = answer(api, "GET", target)
    assert (status, headers["content-type"], headers["content-length"]) == (200, kind, str(len(body)))
    assert answer(api, "HEAD", target) == (200, headers, b"")
    for method in ("POST", "PUT", "DELETE"):
        assert call(api, target, {}, method) == (405, {"error": "this page does not take that method"})


def test_every_page_of_the_reports_has_its_address(api, backend):
    posted = {name: call(api, f"/api/v1/{name}", {})[0] for name in pages()}
    assert posted == {name: 400 if name in BOTH else 405 for name in pages()}
    assert call(api, "/api/v1/level") == (200, backend.ladder)
    assert call(api, "/api/v1/nothing") == call(api, "/nothing", {}) == (404, {"error": "no such page"})


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
@pytest.mark.parametrize(("target", "body"), [("/api/v1/facts", None), ("/api/v1/alerts/test", {})])
def test_an_error_is_answered_and_only_a_trouble_of_the_daemon_is_logged(
    api, backend, monkeypatch, target, body, error, status,
    sentence, logged,
):  # fmt: skip
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(backend, "page_facts", fails, raising=False)
    monkeypatch.setattr(backend, "test_alerts", fails)
    with capture_logs() as said:
        assert call(api, target, body) == (status, {"error": sentence})
    if logged is None:
        assert said == []
        return
    more = {"error": str(error)} if logged[1] == "warning" else {"exc_info": True}
    assert said == [{"event": logged[0], "path": target, **more, "log_level": logged[1]}]
