"""The TCP port of [http]: no request without the password, guessing is slow, and the control socket notices nothing."""

import base64
import contextlib
import http.client
import json
import os
import socket
import subprocess
import xmlrpc.client

import pytest
from environments import NotInstallable, stock_supervisor
from serving import call, ended, served, until
from structlog.testing import capture_logs
from tools import allow_open_files

from supervisor.api import door, limits, tcp
from supervisor.model.inputs import Verb
from supervisor.model.settings import HttpSettings

PASSWORD = "correct horse bättery"
STOP = json.dumps({"verb": "stop", "names": ["Pong"]})


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def settings(port, password=PASSWORD, host="127.0.0.1"):
    return HttpSettings(f"{host}:{port}", "me", "/secret", host, port, password)


def basic(user="me", password=PASSWORD):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Port:
    """A server with a TCP port of its own."""

    def __init__(self, server, path, number):
        self.server, self.path, self.number = server, path, number

    def ask(self, authorization, target="/api/v1/status", body=None, **headers):
        """(status, JSON, headers)."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.number, timeout=20)) as connection:
            given = {} if authorization is None else {"Authorization": authorization}
            connection.request("GET" if body is None else "POST", target, body, {**given, **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), answer.headers


@pytest.fixture
def port(backend, socket_path):
    with served(backend, socket_path) as server:
        number = free_port()
        server.tcp.want(settings(number))
        until(lambda: is_open(number), "the port")
        yield Port(server, socket_path, number)


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


# --- the password ----------------------------------------------------------------------------------------------------------


def test_the_password_lets_in_and_the_journal_says_who(port, backend):
    for right in (basic(), f"Bearer {PASSWORD.encode().decode('latin-1')}"):
        assert port.ask(right, Host="203.0.113.9:9001")[0] == 200
    as_json = {"Content-Type": "application/json"}
    assert port.ask(basic(), "/api/v1/ask", STOP, **as_json)[0] == 200
    assert backend.asked == [(Verb.STOP, ("Pong",), "", "me at 127.0.0.1", None)]
    assert port.ask(basic(), "/api/v1/ask", STOP, **as_json, Origin="http://evil.example")[0] == 403, (
        "browsers send it along"
    )
    assert port.ask(basic(), "/api/v1/ask", STOP)[0] == 415


@pytest.mark.parametrize(
    "wrong", [None, basic(password="wrong"), "Basic é", "x" * 9000], ids=["none", "wrong", "broken", "long"]
)
def test_without_it_nothing_is_answered_but_401(port, backend, wrong, monkeypatch):
    monkeypatch.setattr(door, "REST_S", 60.0)  # a busy machine may send the body late
    for target, body in (("/", None), ("/metrics", None), ("/nothing", None), ("/api/v1/ask", STOP)):
        status, told, headers = port.ask(wrong, target, body)
        assert (status, told) == (401, {"error": "this port needs the user and the password of [http]"})
        assert headers["www-authenticate"] == 'Basic realm="extralife", charset="UTF-8"'
        assert headers["content-type"] == "application/json"
        if wrong:
            break
    assert not backend.asked
    assert call(port.path, "/api/v1/status")[0] == 200


def test_xmlrpc_and_the_stock_client_log_in(port):
    word = PASSWORD.replace(" ", "%20")
    with xmlrpc.client.ServerProxy(f"http://me:{word}@127.0.0.1:{port.number}/RPC2") as proxy:
        assert proxy.supervisor.getIdentification() == "extralife"
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port.number}/RPC2") as proxy:
        with pytest.raises(xmlrpc.client.ProtocolError, match="401"):
            proxy.supervisor.getIdentification()
    try:
        client = stock_supervisor() / "supervisorctl"
    except NotInstallable as error:
        pytest.skip(f"supervisor 4.3.0 cannot be installed here to log in with: {error}")
    port.server.tcp.want(settings(port.number, "an ascii password"))

    def status(password):
        command = [str(client), "-s", f"http://127.0.0.1:{port.number}", "-u", "me", "-p", password, "status"]
        its_own = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        }  # its package is called the same
        return subprocess.run(command, env=its_own, capture_output=True, text=True, check=False).stdout

    until(lambda: "Pong" in status("an ascii password"), "the stock client's status")
    assert "Server requires authentication" in status("another password")


# --- the port --------------------------------------------------------------------------------------------------------------


def test_it_moves_closes_and_changes_its_password_with_the_settings(port):
    port.server.tcp.want(settings(port.number, "another password"))
    until(lambda: port.ask(basic(password="another password"))[0] == 200, "the new password")
    assert port.ask(basic())[0] == 401
    other = free_port()
    port.server.tcp.want(settings(other))
    until(lambda: is_open(other) and not is_open(port.number), "the new port")
    port.server.tcp.want(HttpSettings())
    until(lambda: not is_open(other), "its end")
    assert port.server.tcp.view() is None


def test_a_port_that_is_taken_is_reported_and_tried_again(backend, socket_path, monkeypatch):
    monkeypatch.setattr(tcp, "RETRY_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as taken, capture_logs() as said:
        number = taken.getsockname()[1]
        with served(backend, socket_path) as server:
            server.tcp.want(settings(number))
            until(lambda: (server.tcp.view() or {})["error"], "the trouble")
            view = server.tcp.view()
            assert view is not None
            assert view["listen"] == f"127.0.0.1:{number}"
            assert view["error"].startswith("Address already in use")
            assert call(socket_path, "/api/v1/status")[0] == 200
            taken.close()
            until(lambda: not (server.tcp.view() or {})["error"], "the port")
            assert is_open(number)
    assert not is_open(number)
    assert [entry["event"] for entry in said] == ["http_port_not_open", "serving_http"]


def test_a_password_that_could_not_be_read_leaves_the_port_closed(backend, socket_path):
    with served(backend, socket_path) as server:
        number = free_port()
        server.tcp.want(settings(number, ""))
        until(lambda: (server.tcp.view() or {})["error"], "the trouble")
        assert server.tcp.view() == {
            "listen": f"127.0.0.1:{number}", "error": "it has no password: /secret could not be used",
        }  # fmt: skip
        assert not is_open(number)


# --- crowds ----------------------------------------------------------------------------------------------------------------


def test_a_crowd_on_the_port_leaves_the_control_socket_alone(port, monkeypatch):
    monkeypatch.setattr(limits, "HEAD_S", 1e9)  # none has to go because a busy machine takes its time
    allow_open_files(2_200)
    slow = b"POST /api/v1/ask HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
    crowd = []
    for number in range(600):
        sock = socket.create_connection(("127.0.0.1", port.number), 20)
        sock.sendall(slow if number % 2 else b"GET / HT")
        crowd.append(sock)
    local = [socket.socket(socket.AF_UNIX) for _ in range(limits.MOST_CONNECTIONS - limits.MOST_OVER_TCP - 2)]
    for sock in local:
        sock.connect(str(port.path))
    assert call(port.path, "/api/v1/status")[0] == 200
    assert not [sock for sock in local if ended(sock)], "none of the control socket's had to go"
    for sock in (*crowd, *local):
        sock.close()
    until(lambda: port.ask(basic())[0] == 200, "room for the right one")
