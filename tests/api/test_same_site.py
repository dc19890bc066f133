"""A page of another site reaches the control socket through a tunnel, and can neither act nor read."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import subprocess
import threading
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
JSON = "application/json"
CHROMIUM = browser_path()


def ask(api: Path, headers: dict[str, str], target: str = "/api/v1/ask") -> int:
    """The status of exactly these headers."""
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    data = "\r\n".join([*lines, "Connection: close", f"Content-Length: {len(STOP)}", "", STOP]).encode()
    return int(raw(api, data, half_close=False).split()[1])


def test_every_route_that_acts_is_behind_the_check(api: Path, backend: FakeBackend) -> None:
    pages = [
        f"/api/v1/{each}" for each in ("ask", "backup", "rollback", "reread", "update", "level", "alerts/test", "nothing")
    ]
    for target in ("/RPC2", "/RPC2/", *pages):
        for content_type, site in (("text/plain", "none"), (JSON, "cross-site")):
            headers = {"Host": "localhost", "Content-Type": content_type, "Sec-Fetch-Site": site}
            assert ask(api, headers, target) in {403, 415}
    assert not backend.asked
    assert ask(api, {"Host": "127.0.0.1:9001", "Content-Type": JSON, "Origin": "http://127.0.0.1:9001"}) == 200
    assert backend.asked[0][0] is Verb.STOP


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
