"""The HTTP client for the daemon: one request per connection, over its socket or over TCP."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import struct
from typing import Any

from supervisor.ctl.outcome import DaemonRefused, Unreachable

_READ_S = 20.0
_TIMEVAL = struct.Struct("ll")


class Client:
    """Talks to one daemon, over its socket at a path, or over TCP at http://host:port (https:// behind a proxy).

    Messages name the daemon by `url`. `login` is (user, password).
    """

    def __init__(self, place: str, login: tuple[str, str] | None = None) -> None:
        self._remote = place.startswith(("http://", "https://"))
        self.path = place
        self.url = place if self._remote else f"unix://{place}"
        self._login = login

    def get(self, target: str) -> Any:
        """The parsed JSON of a page."""
        return self._parsed(self.read(target)[1])

    def read(self, target: str) -> tuple[dict[str, str], bytes]:
        """(headers, bytes) of a page. If a reload cuts the connection before the answer, the request is sent again, once."""
        try:
            return self._checked("GET", target, b"", _READ_S)
        except Unreachable as first:
            if not isinstance(first.__cause__, ConnectionError) or isinstance(first.__cause__, ConnectionRefusedError):
                raise
            return self._checked("GET", target, b"", _READ_S)

    def post(self, target: str, body: dict[str, object], timeout_s: float | None = None) -> Any:
        """Request an action. There is no time limit by default: a worker that stops saves first."""
        return self._parsed(self._checked("POST", target, json.dumps(body).encode(), timeout_s)[1])

    def stranger(self) -> Unreachable:
        """The error for an answer that no daemon of extralife gives: another server listens at this address."""
        return Unreachable(f"{self.url} is not answered by extralife")

    def _parsed(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise self.stranger() from None

    def _checked(self, method: str, target: str, body: bytes, timeout_s: float | None) -> tuple[dict[str, str], bytes]:
        status, headers, data = self._request(method, target, body, timeout_s)
        if status == 200:
            return headers, data
        try:
            sentence = str(json.loads(data)["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            sentence = f"the daemon answered {status}"
        if status == 401:
            wrong = "refused this user and password" if self._login else "asks for a user and a password"
            sentence = f"{self.url} {wrong}: give -u USER -p -, which asks for the password"
        raise DaemonRefused(status, sentence)

    def _request(self, method: str, target: str, body: bytes, timeout_s: float | None) -> tuple[int, dict[str, str], bytes]:
        headers = {"Content-Type": "application/json", "Connection": "close", "Cache-Control": "no-cache"}
        if self._login is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(self._login).encode()).decode()}"
        try:
            with contextlib.closing(self._connection()) as connection:
                connection.connect()
                connection.sock.settimeout(timeout_s)
                connection.request(method, target, body, headers)
                answer = connection.getresponse()
                return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        except FileNotFoundError as error:
            raise Unreachable(f"{self.url} no such file") from error
        except ConnectionRefusedError as error:
            raise Unreachable(f"{self.url} refused connection") from error
        except (TimeoutError, BlockingIOError) as error:
            raise Unreachable(f"{self.url} does not answer") from error
        except (http.client.RemoteDisconnected, http.client.IncompleteRead) as error:
            raise Unreachable(f"{self.url} closed the connection before its whole answer") from ConnectionResetError(error)
        except OSError as error:
            raise Unreachable(f"{self.url} {error.strerror or error}") from error
        except http.client.InvalidURL as error:
            raise Unreachable(f"{self.url} names no port: write http://host:port") from error
        except (UnicodeError, OverflowError) as error:  # such as http://a..b, whose second label is empty
            raise Unreachable(f"{self.url} is no address that can be connected to") from error
        except http.client.HTTPException as error:
            raise self.stranger() from error

    def _connection(self) -> http.client.HTTPConnection:
        if not self._remote:
            return _UnixConnection(self.path)
        scheme, _, rest = self.path.partition("://")
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        return kind(rest.partition("/")[0], timeout=_READ_S)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket at a path. Waits for a daemon that is just starting."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        try:
            self.sock = _unix(self._path)
        except (FileNotFoundError, ConnectionRefusedError):
            from supervisor.ctl.starting_daemon import daemon_comes  # takes as long as the request

            if not daemon_comes(self._path):
                raise
            self.sock = _unix(self._path)


def _unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not settimeout: it makes the socket non-blocking, and then connect fails at once while many others connect.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(_READ_S), 0))
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock
