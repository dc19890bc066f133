"""A real server on a real unix socket, and the plainest possible client."""

import contextlib
import http.client
import json
import select
import socket
import time

from tools import PATIENCE

from supervisor.api.listener import listen
from supervisor.api.server import Server


@contextlib.contextmanager
def served(backend, path):
    listener = listen(str(path))
    server = Server(backend, listener, lambda: 1000.0)
    server.start()
    try:
        assert listener.trouble == "", "no group was asked for"
        yield server
    finally:
        server.stop()
        listener.close()


JSON = {"Content-Type": "application/json"}


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(30)
        self.sock.connect(str(self.path))


def call(path, target, body=None, method=None):
    """(status, JSON) of one request on a connection of its own."""
    connection = Connection(path)
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method or ("GET" if data is None else "POST"), target, body=data, headers=JSON)
        response = connection.getresponse()
        assert response.headers["content-type"] == "application/json"
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def raw(path, data, *, half_close=True, timeout_s=20):
    """What comes back for these very bytes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        sock.connect(str(path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
        if half_close:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(65536):
                got += piece
        return got


def hung_up(sock):
    """The server has ended it. Nothing is read, so its answer is still one that nobody reads."""
    look = select.poll()
    look.register(sock, select.POLLHUP)
    return bool(look.poll(0))


def ended(sock):
    """The server has ended it, and all that it had said was read."""
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def until(look, what, timeout_s=20):
    """The first true answer, asked again until a deadline."""
    deadline = time.monotonic() + timeout_s * PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}; last answer: {found!r}"
        time.sleep(0.01)
    return found
