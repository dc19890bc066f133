"""A minimal HTTP client for the daemon: one request per connection, standard library only.

http.client imports the whole email package, which takes 35 ms, more than all the rest of `supervisorctl status`. The server
is ours and always sends Content-Length, so the client needs no more of HTTP than this.
"""

from __future__ import annotations

import json
import socket
import struct

TYPE_CHECKING = False  # importing typing takes longer than the request
if TYPE_CHECKING:
    from typing import Any

_READ_S = 20.0
_TIMEVAL = struct.Struct("ll")
_MOST_HEADER_BYTES = 64 * 1024


class Unreachable(Exception):
    """No daemon answers on the socket: `no such file`, `refused connection` or another error of the kernel."""


class DaemonRefused(Exception):
    """The daemon has refused the request. The message is its answer, one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


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
        except ValueError:
            raise self.stranger() from None

    def _checked(self, method: str, target: str, body: bytes, timeout_s: float | None) -> tuple[dict[str, str], bytes]:
        status, headers, data = self._request(method, target, body, timeout_s)
        if status == 200:
            return headers, data
        try:
            sentence = str(json.loads(data)["error"])
        except (ValueError, KeyError, TypeError):
            sentence = f"the daemon answered {status}"
        if status == 401:
            wrong = "refused this user and password" if self._login else "asks for a user and a password"
            sentence = f"{self.url} {wrong}: give -u USER -p -, which asks for the password"
        raise DaemonRefused(status, sentence)

    def _request(self, method: str, target: str, body: bytes, timeout_s: float | None) -> tuple[int, dict[str, str], bytes]:
        host = self.path.split("://", 1)[1].partition("/")[0] if self._remote else "localhost"
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{self._authorization()}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            with self._connected(host) as sock:
                sock.settimeout(timeout_s)
                sock.sendall(head.encode("latin-1", "replace") + body)
                return _answer(sock)
        except FileNotFoundError as error:
            raise Unreachable(f"{self.url} no such file") from error
        except ConnectionRefusedError as error:
            raise Unreachable(f"{self.url} refused connection") from error
        except (TimeoutError, BlockingIOError) as error:
            raise Unreachable(f"{self.url} does not answer") from error
        except OSError as error:
            raise Unreachable(f"{self.url} {error.strerror or error}") from error

    def _connected(self, host: str) -> socket.socket:
        if self._remote:
            return _tcp(host, tls=self.path.startswith("https://"))
        try:
            return _unix(self.path)
        except (FileNotFoundError, ConnectionRefusedError):
            from supervisor.ctl.starting_daemon import daemon_comes

            if not daemon_comes(self.path):
                raise
            return _unix(self.path)

    def _authorization(self) -> str:
        if self._login is None:
            return ""
        import binascii

        token = binascii.b2a_base64(":".join(self._login).encode(), newline=False).decode("ascii")
        return f"Authorization: Basic {token}\r\n"


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


def _tcp(host: str, *, tls: bool) -> socket.socket:
    """A socket that is connected to `name`, `name:port` or `[address]:port`."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    if port and not port.isdecimal():
        raise OSError(22, "names no port: write http://host:port")
    number = int(port) if port else 443 if tls else 80
    try:
        sock = socket.create_connection((name.strip("[]"), number), timeout=_READ_S)
    except (UnicodeError, OverflowError) as error:  # such as http://a..b, whose second label is empty
        raise OSError(22, "is no address that can be connected to") from error
    if not tls:
        return sock
    import ssl

    return ssl.create_default_context().wrap_socket(sock, server_hostname=name.strip("[]"))


def _answer(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece or len(data) > _MOST_HEADER_BYTES:
            raise ConnectionResetError(104, "closed the connection without an answer")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    words = first.split()
    if len(words) < 2 or not words[1].isdigit() or not headers.get("content-length", "").isdigit():
        raise ConnectionAbortedError(103, "is not answered by extralife")
    length = int(headers["content-length"])
    pieces = [body]
    missing = length - len(body)
    while missing > 0:
        piece = sock.recv(min(missing, 1 << 20))
        if not piece:
            raise ConnectionResetError(104, "closed the connection in mid-answer")
        pieces.append(piece)
        missing -= len(piece)
    return int(words[1]), headers, b"".join(pieces)


def quote(text: str) -> str:
    """Escape text for a page's path or query: all but unreserved characters as %XX. urllib would take 8 ms to import."""
    return "".join(
        chr(byte) if (byte < 128 and chr(byte).isalnum()) or byte in b"-_.~" else f"%{byte:02X}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
