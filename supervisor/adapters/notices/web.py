"""One request to a metadata service: no proxy, no redirect, a bounded answer, within one time limit for the whole request.

A socket's own time limit applies to each read and is not enough: a service that sends a byte a second could take all day.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from supervisor.records import dataclass

_MOST_BYTES: Final = 65_536
_SHOWN: Final = 80


class Unreadable(Exception):
    """A source gave no answer that can be parsed; the message is one clause."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`date_wall_s`: the service's own clock, which may be right when this box's clock is wrong."""

    status: int
    body: str
    headers: Mapping[str, str]
    date_wall_s: float | None


class Web:
    """A metadata service at `endpoint` (http://HOST[:PORT])."""

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        parts = urlsplit(endpoint)
        self._host, self._port, self._base = parts.hostname or "", parts.port or 80, parts.path.rstrip("/")
        self._timeout_s = timeout_s

    def ask(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        """The service's answer, with any status except a redirect. Raises Unreadable."""
        until_s = time.monotonic() + self._timeout_s
        connection = http.client.HTTPConnection(self._host, self._port)
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection((self._host, self._port), self._timeout_s)
            connection.sock = _Bounded(sock, until_s)
            connection.request(method, self._base + path, headers={"Connection": "close", **(headers or {})})
            response = connection.getresponse()
            body = response.read(_MOST_BYTES).decode("utf-8", "replace")
            found = {name.lower(): value for name, value in response.getheaders()}
        except TimeoutError as error:
            raise Unreadable(f"it has not answered within {self._timeout_s:g} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Unreadable(f"it cannot be asked ({reason})") from error
        finally:
            if sock is not None:
                sock.close()
        if 300 <= response.status < 400:
            raise Unreadable(f"it answers with a redirect ({response.status}): that is no metadata service")
        return Answer(response.status, body, found, _wall_s(found.get("date", "")))


def bad_status(answer: Answer, path: str) -> Unreadable:
    """The error for an answer whose status means neither yes nor no."""
    return Unreadable(f"it answers {path.partition('?')[0]} with status {answer.status}")


def unparseable(answer: Answer) -> Unreadable:
    """The error for an answer that cannot be parsed."""
    return Unreadable(f"its answer cannot be parsed: {answer.body[:_SHOWN]!r}")


def _wall_s(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


class _Bounded:
    """A connection with one deadline for everything that is sent and read."""

    def __init__(self, sock: socket.socket, until_s: float) -> None:
        self._sock, self._until_s = sock, until_s

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(_left_s(self._until_s))
        self._sock.sendall(data)

    def makefile(self, *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._until_s))

    def close(self) -> None:
        """Does nothing: http.client calls it before the body is read. `Web.ask` closes the socket."""


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, until_s: float) -> None:
        super().__init__()
        self._sock, self._until_s = sock, until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left_s(self._until_s))
        return self._sock.recv_into(buffer)


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0.0:
        raise TimeoutError
    return left_s
