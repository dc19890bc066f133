"""A page of another site reaches the control socket through a tunnel, and can neither act nor read."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import subprocess
import threading
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_backend import FakeBackend
from serving import call, raw
from tools import browser_path
from tunnels import tunnel

from supervisor.model.inputs import Verb

STOP = json.dumps({"verb": "stop", "names": ["Pong"]})
JSON, XML = "application/json", "text/xml"


CHROMIUM = browser_path()


def ask(
    api: Path, headers: dict[str, str], method: str = "POST", target: str = "/api/v1/ask", body: str = STOP
) -> tuple[int, str]:
    """(status, what it says) of exactly these headers."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    data = "\r\n".join([*lines, "Connection: close", f"Content-Length: {len(body)}", "", body]).encode()
    head, _, text = raw(api, data, half_close=False).partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert status == 200 or b"\r\ncontent-type: application/json" in head
    return status, text.decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost", "Content-Type": JSON},
        {"Host": "", "Content-Type": JSON},  # the stock client's `tail -f`
        {"Host": "127.0.0.1:9001", "Content-Type": "application/json; charset=utf-8"},
        {"Host": "[::1]:9001", "Content-Type": JSON, "Origin": "http://[::1]:9001"},
        {"Host": "localhost:9001", "Content-Type": JSON, "Origin": "http://localhost:9001", "Sec-Fetch-Site": "same-origin"},
        {"Host": "LOCALHOST", "Content-Type": "Application/JSON", "Origin": "https://localhost", "Sec-Fetch-Site": "none"},
    ],
)
def test_clients_of_this_machine_are_served(api: Path, backend: FakeBackend, headers: dict[str, str]) -> None:
    assert ask(api, headers)[0] == 200
    assert backend.asked[0][0] is Verb.STOP


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (415, {"Host": "localhost", "Content-Type": "text/plain"}),
        (415, {"Host": "localhost", "Content-Type": "multipart/form-data; boundary=application/json"}),
        (403, {"Host": "localhost:9001", "Content-Type": JSON, "Origin": "http://evil.example"}),
        (403, {"Host": "localhost:9001", "Content-Type": JSON, "Origin": "http://localhost"}),
        (403, {"Host": "localhost", "Content-Type": JSON, "Sec-Fetch-Site": "cross-site"}),
        (403, {"Host": "evil.example", "Content-Type": JSON, "Origin": "http://evil.example"}),
        (403, {"Host": "localhost.evil.example:9001", "Content-Type": JSON}),
        (403, {"Host": "[x", "Content-Type": JSON}),  # never closed: it is not the empty name of a client without Host
    ],
)
def test_a_page_of_another_site_changes_nothing(
    api: Path, backend: FakeBackend, status: int, headers: dict[str, str]
) -> None:
    got, said = ask(api, headers)
    assert got == status
    assert json.loads(said)["error"]
    assert not backend.asked


@pytest.mark.parametrize("target", ["/RPC2", "/RPC2/"])
def test_xmlrpc_needs_its_own_content_type(api: Path, backend: FakeBackend, target: str) -> None:
    body = xmlrpc.client.dumps(("Pong",), "supervisor.stopProcess")
    for content_type in ("text/plain", JSON, ""):
        assert ask(api, {"Host": "localhost", "Content-Type": content_type}, target=target, body=body)[0] == 415
    assert not backend.asked
    assert ask(api, {"Host": "localhost", "Content-Type": XML}, target=target, body=body)[0] == 200
    assert [asked[0] for asked in backend.asked] == [Verb.STOP]


def test_every_route_that_acts_is_behind_the_check(api: Path, backend: FakeBackend) -> None:
    for target in ("ask", "backup", "rollback", "reread", "update", "level", "alerts/test", "nothing"):
        for content_type, site in (("text/plain", "none"), (JSON, "cross-site")):
            headers = {"Host": "localhost", "Content-Type": content_type, "Sec-Fetch-Site": site}
            assert ask(api, headers, target=f"/api/v1/{target}")[0] in {403, 415}
    assert not backend.asked


def test_reading_across_sites_is_refused_but_a_link_may_be_followed(api: Path) -> None:
    other = {"Host": "localhost:9001", "Sec-Fetch-Site": "cross-site"}
    assert ask(api, {**other, "Sec-Fetch-Mode": "no-cors"}, "GET", "/api/v1/backups?check=x", "")[0] == 403
    follows = {**other, "Sec-Fetch-Mode": "navigate"}
    assert ask(api, follows, "GET", "/api/v1/status", "")[0] == 200
    assert ask(api, {**follows, "Sec-Fetch-Dest": "document"}, "GET", "/api/v1/status", "")[0] == 200
    for place in ("iframe", "frame", "object", "embed"):  # a page may load them by itself, as often as it likes
        assert ask(api, {**follows, "Sec-Fetch-Dest": place}, "GET", "/api/v1/backups?check=x", "")[0] == 403
    assert ask(api, {"Host": "evil.example"}, "GET", "/api/v1/status", "")[0] == 403, "by a name that was rebound"
    assert ask(api, {**other, "Origin": "http://evil.example"}, "OPTIONS", body="")[0] == 403, "a preflight"


def test_a_second_host_header_is_no_way_around(api: Path) -> None:
    got = raw(api, b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", half_close=False)
    assert b" 400 " in got.splitlines()[0] or b" 403 " in got.splitlines()[0]


# --- a real browser --------------------------------------------------------------------------------------------------


PAGE = """<!doctype html><title>evil</title><body><form id=f method=post enctype=text/plain action="%(at)s/api/v1/ask" target=x>
<input name='{"verb":"stop","names":["Pong"],"x":"' value='"}'></form><iframe name=x></iframe><script>
const stop = '{"verb":"stop","names":["Pong"]}';
const call = '<?xml version="1.0"?><methodCall><methodName>supervisor.stopProcess</methodName>' +
  '<params><param><value><string>Pong</string></value></param></params></methodCall>';
const tries = [
  ['/api/v1/ask', {method: 'POST', mode: 'no-cors', body: stop}],
  ['/api/v1/ask', {method: 'POST', mode: 'no-cors', body: stop, headers: {'Content-Type': 'text/plain'}}],
  ['/api/v1/ask', {method: 'POST', body: stop, headers: {'Content-Type': 'application/json'}}],
  ['/api/v1/update', {method: 'POST', mode: 'no-cors'}],
  ['/RPC2', {method: 'POST', mode: 'no-cors', body: call}],
  ['/RPC2', {method: 'POST', body: call, headers: {'Content-Type': 'text/xml'}}],
  ['/api/v1/status', {}],
];
(async () => {
  const seen = [];
  for (const [target, how] of tries) {
    try { const got = await fetch('%(at)s' + target, how); seen.push(got.type + got.status); }
    catch (error) { seen.push('refused'); }
  }
  document.getElementById('f').submit();
  await new Promise(done => setTimeout(done, 500));
  await fetch('/seen', {method: 'POST', body: seen.join(' ')});
})();
</script>"""


class Site(http.server.ThreadingHTTPServer):
    """Another site, on another port of localhost."""

    def __init__(self, page: str) -> None:
        self.page, self.seen, self.told = page, "", threading.Event()
        super().__init__(("127.0.0.1", 0), _Pages)


class _Pages(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self._answer(self.server.page.encode())

    def do_POST(self) -> None:
        self.server.seen = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(b"")
        self.server.told.set()

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def browser(directory: Path, url: str) -> Iterator[None]:
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
         "--remote-debugging-port=0", f"--user-data-dir={directory}", url],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "HOME": str(directory)},
    )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.mark.skipif(
    CHROMIUM is None,
    reason="needs a real browser: apt-get install chromium-headless-shell (on Ubuntu: snap install chromium)",
)
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_real_browser_on_another_origin_cannot_act(api: Path, backend: FakeBackend, tmp_path: Path, name: str) -> None:
    """`localhost` is the same site as the page (another port), `127.0.0.1` another one."""
    with tunnel(api) as port:
        site = Site(PAGE % {"at": f"http://{name}:{port}"})
        threading.Thread(target=site.serve_forever, daemon=True).start()
        with browser(tmp_path / "profile", f"http://localhost:{site.server_port}/"):
            assert site.told.wait(60), "the page has not run"
        site.shutdown()
        site.server_close()
        assert site.seen.split() == ["opaque0", "opaque0", "refused", "opaque0", "opaque0", "refused", "refused"]
        assert not backend.asked, "and the form was sent as well"
        over_tcp = http.client.HTTPConnection("127.0.0.1", port)
        over_tcp.request("POST", "/api/v1/ask", STOP, {"Content-Type": JSON})
        assert over_tcp.getresponse().status == 200, "a program may use the tunnel"
        over_tcp.close()
    assert call(api, "/api/v1/status")[0] == 200
