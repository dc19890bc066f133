"""`extralifectl dashboard`: a port of this box for one user, one address that is good once, and streams that pass at once."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from running import CTL, Terminal, ctl, environment

from supervisor.features.dashboard.adapters import tcp_owner

NOBODY = 65534


class Dashboard:
    """One run of it, and a browser that has not logged in yet."""

    def __init__(self, path, *args):
        self.process = subprocess.Popen(
            [*CTL, "-s", f"unix://{path}", "dashboard", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/login/[\w-]{43})", self.address)
        assert match is not None, self.address + self.process.communicate(timeout=20)[1]
        self.port, self.login = int(match[1]), match[2]
        self.cookie = ""

    def ask(self, target, method="GET", body="", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            given = {"Cookie": self.cookie} if self.cookie else {}
            connection.request(method, target, body or None, {**given, **headers})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()

    def log_in(self):
        """The cookie, as the browser keeps it."""
        status, headers, _ = self.ask(self.login)
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]
        return headers["set-cookie"]

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def close(self):
        with self.process:
            self.process.kill()

    def end(self):
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(20), out, err


@pytest.fixture
def dashboard(api):
    made = Dashboard(api)
    yield made
    made.close()


def test_the_address_is_good_once_and_gives_a_cookie_of_this_site_alone(dashboard):
    assert dashboard.ask("/api/v1/status")[0] == 403
    assert dashboard.ask("/login/" + "x" * 43)[0] == 403
    assert dashboard.ask(dashboard.login, "POST")[0] == 403, "only the browser's own way"
    cookie = dashboard.log_in()
    assert re.fullmatch(rf"extralife-{dashboard.port}=[\w-]{{43}}; Path=/; HttpOnly; SameSite=Strict", cookie)
    assert dashboard.login.removeprefix("/login/") not in cookie
    status, headers, body = dashboard.ask("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Pong" in dashboard.ask("/api/v1/status")[2]
    status, headers, body = dashboard.ask(dashboard.login)
    assert (status, "set-cookie" in headers, 'content="0; url=/"' in body) == (200, False, True), "pressed reload"
    dashboard.cookie = ""
    status, headers, body = dashboard.ask(dashboard.login)
    assert (status, headers.get("set-cookie")) == (403, None)
    assert body == "this address was used already, or is not of this run: run `extralifectl dashboard` again\n"
    for cookie in (f"extralife-{dashboard.port}=x", f"extralife-{dashboard.port}=", "extralife-1=x", "=;;=", "é=é"):
        dashboard.cookie = cookie
        status, headers, body = dashboard.ask("/api/v1/status")
        assert (status, body) == (403, "open the address that `extralifectl dashboard` has printed\n")


def test_what_it_prints_and_how_it_ends(dashboard, api):
    dashboard.log_in()
    with dashboard.raw() as idle, dashboard.raw() as stream:
        stream.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {dashboard.cookie}\r\n\r\n".encode())
        assert b"200 OK" in stream.recv(1 << 16)
        code, out, err = dashboard.end()
        assert idle.recv(1) == b""
    assert (code, err) == (0, "")
    assert re.fullmatch(
        r"  The address is good once, for a browser of \w+ on this box. Ctrl-C ends it.\n\n"
        r"From a laptop, with the address that you use for ssh:\n"
        rf"  ssh -L 8700:{re.escape(str(api))} \w+@\S+\n  then open http://localhost:8700\n\n",
        out,
    ), out


def test_each_request_needs_the_cookie_also_on_a_connection_that_had_one(dashboard):
    dashboard.log_in()
    good = f"GET /api/v1/level HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {dashboard.cookie}\r\nConnection: keep-alive\r\n\r\n"
    with dashboard.raw() as sock, sock.makefile("rb") as answers:
        sock.sendall(good.encode() + b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        told = answers.read()
    assert told.count(b"HTTP/1.1 ") == 1
    assert b'"ladder"' in told or b'"level"' in told
    assert b'"programs"' not in told


def test_an_event_passes_as_soon_as_it_is_sent(dashboard, backend):
    dashboard.log_in()
    with dashboard.raw() as sock, sock.makefile("rb") as answer:
        sock.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {dashboard.cookie}\r\n\r\n".encode())
        while b"event: whole" not in answer.readline():
            pass
        backend.change("Pong", steps=4242)
        while b'"steps":4242' not in answer.readline():
            pass


def test_an_action_passes_with_its_body_and_is_the_callers_own(dashboard, backend):
    dashboard.log_in()
    ask, at = '{"verb": "stop", "names": ["Pong"]}', f"http://127.0.0.1:{dashboard.port}"
    json = {"Content-Type": "application/json"}
    assert dashboard.ask("/api/v1/ask", "POST", ask, **json, Origin="http://127.0.0.1:1")[0] == 403, "the daemon's own check"
    assert dashboard.ask("/api/v1/ask", "POST", ask, **json, Host="evil.example")[0] == 403
    assert not backend.asked
    assert dashboard.ask("/api/v1/ask", "POST", ask, **json, Origin=at)[0] == 200
    assert [(verb.value, names, uid) for verb, names, _, _, uid in backend.asked] == [("stop", ("Pong",), os.geteuid())]


@pytest.mark.parametrize(
    "data", [b"", b"\0\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000], ids=["nothing", "garbage", "too long"]
)
def test_what_is_no_request_is_closed_and_nothing_is_printed(dashboard, data):
    with dashboard.raw() as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            assert not sock.recv(1 << 16).startswith(b"HTTP/1.1 200")
    assert dashboard.ask("/")[0] == 403
    assert dashboard.end()[0::2] == (0, "")


def test_a_daemon_that_starts_again_is_waited_for(api, dashboard):
    dashboard.log_in()
    away = api.with_name("away.sock")
    api.rename(away)
    try:
        status, _, body = dashboard.ask("/api/v1/status")
    finally:
        away.rename(api)
    assert (status, body) == (503, f"extralife does not answer: {api}: No such file or directory\n")
    assert dashboard.ask("/api/v1/status")[0] == 200


# --- other users -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_of_the_box_is_refused_also_with_the_right_cookie_and_a_socket_that_it_closed(dashboard, backend):
    dashboard.log_in()
    body = '{"verb": "stop", "names": ["Pong"]}'
    request = (
        f"POST /api/v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nCookie: {dashboard.cookie}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    code = (
        "import os, socket, sys\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "for number in range(51):\n"
        "    with socket.socket() as sock:\n"
        f"        sock.connect(('127.0.0.1', {dashboard.port}))\n"
        "        if number < 50: sock.sendall(sys.argv[1].encode())\n"
        "        else: print(sock.recv(65536).decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, request], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "this port is for the user who runs `extralifectl dashboard`" in done.stdout
    assert dashboard.ask("/api/v1/status")[0] == 200
    assert not backend.asked


def test_the_owner_of_a_connection_and_of_one_that_is_no_more():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, there = listening.accept()
        with server:
            assert tcp_owner.owner(server.getsockname(), there) == os.geteuid()
            assert tcp_owner.owner(("127.0.0.1", 1), there) is None
            client.close()
            assert tcp_owner.owner(server.getsockname(), there) is None, "a closed one has owner 0, whoever it was"
        with socket.socket(socket.AF_INET6) as dual:
            dual.connect(("::ffff:127.0.0.1", listening.getsockname()[1]))
            server, there = listening.accept()
            with server:
                assert tcp_owner.owner(server.getsockname(), there) == os.geteuid()


def test_a_box_that_does_not_say_whose_connection_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tcp_owner, "_TABLES", (tmp_path / "tcp", tmp_path / "tcp6"))
    with pytest.raises(FileNotFoundError):
        tcp_owner.owner(("127.0.0.1", 1), ("127.0.0.1", 2))


# --- the command -----------------------------------------------------------------------------------------------------------


def test_a_port_of_your_choice_and_one_that_is_taken(api):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ctl("dashboard", "--port", str(port), socket=api)
        assert (done.returncode, done.stdout) == (
            1, f"Error: port {port} of 127.0.0.1 cannot be used: Address already in use; choose another with --port\n",
        )  # fmt: skip
    made = Dashboard(api, "--port", str(port))
    assert made.port == port
    with contextlib.closing(made):
        assert made.end()[0] == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["x"], "takes no names"),
        (["--port", "x"], "must be a whole number"),
        (["--port", "70000"], "there are no such ports"),
        (["--frob"], "unknown option"),
    ],
)
def test_what_makes_no_sense_is_refused(api, args, says):
    done = ctl("dashboard", *args, socket=api)
    assert done.returncode != 0
    assert says in done.stdout


def test_it_ends_with_its_terminal(api):
    with Terminal("dashboard", socket=api) as terminal:
        terminal.until("http://localhost:8700")
        os.close(terminal.master)
        terminal.process.wait(20)
        terminal.master = os.open(os.devnull, os.O_RDONLY)


def test_a_daemon_over_tcp_needs_no_forwarder():
    """It printed an address that answered 503 to everything, and an ssh line to `http://...`."""
    done = ctl("-s", "http://127.0.0.1:9001", "dashboard")
    said = "Error: this daemon is served over TCP already: open http://127.0.0.1:9001 in a browser\n"
    assert (done.returncode, done.stdout) == (1, said)
