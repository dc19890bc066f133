"""Runs the health checks of services, each in its own thread: a hung check delays no other check and no decision.

Every check ends in time: each step of a connection gets the rest of `timeout_s`, and a command's process group is killed.
Only a name server that does not answer can take longer; then the last result stays valid.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from supervisor.adapters import hooks
from supervisor.adapters.process.processes import inherited
from supervisor.adapters.threads import Lasting
from supervisor.formats import span
from supervisor.model.settings import ProgramSpec
from supervisor.policy.script.service_health import Checked, HealthCheck
from supervisor.ports import Clock

_FIRST_S: Final = 2.0  # a service that has just started is checked soon, so that `status` can show it
_MOST_HEAD_BYTES: Final = 8192
_PORTS: Final = {"http": 80, "https": 443}


class Failed(Exception):
    """The check was made, and the service is not healthy."""


class HealthChecks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._found: dict[str, Checked] = {}  # by token
        self._over: dict[str, threading.Event] = {}

    def watch(self, spec: ProgramSpec, token: str) -> None:
        """Begin to check an attempt, if its program has a check."""
        if spec.health is None:
            return
        with self._guard:
            if token in self._over:
                return
            over = self._over[token] = threading.Event()
            self._found[token] = Checked()
        turn = partial(self._turn, spec, spec.health, token, over)
        Lasting(f"health-{spec.name}", turn, over.is_set).start()

    def forget(self, token: str) -> None:
        with self._guard:
            over = self._over.pop(token, None)
            self._found.pop(token, None)
        if over is not None:
            over.set()

    def newest(self, token: str) -> Checked | None:
        """The last result for an attempt; None: its program has no check."""
        return self._found.get(token)

    def _turn(self, spec: ProgramSpec, check: HealthCheck, token: str, over: threading.Event) -> None:
        before = self._found.get(token, Checked())
        if over.wait(min(_FIRST_S, check.every_s) if before == Checked() else check.every_s):
            return
        found = self._after(before, spec, check)
        with self._guard:
            if token in self._over:
                self._found[token] = found

    def _after(self, found: Checked, spec: ProgramSpec, check: HealthCheck) -> Checked:
        try:
            make(check, spec)
        except Failed as failed:
            now_s = self._clock.now_s()
            since_s = now_s if found.failing_since_s is None else found.failing_since_s
            return replace(found, failures=found.failures + 1, failing_since_s=since_s, error=str(failed), unknown="")
        except Exception as error:  # noqa: BLE001  a check that could not be made is unknown, whatever the reason
            return replace(found, unknown=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        return Checked(ok_at_s=self._clock.now_s())


def make(check: HealthCheck, spec: ProgramSpec) -> None:
    """Make one check. Raises Failed when the service is not healthy, and any other exception when that is unknown."""
    if check.command:
        _command(check, spec)
    elif check.http:
        _http(check.http, check.timeout_s)
    else:
        host, _, port = check.tcp.rpartition(":")
        _connected(host.strip("[]"), int(port), _Left(check.timeout_s)).close()


class _Left:
    def __init__(self, seconds: float) -> None:
        self._until_s, self._all_s = time.monotonic() + seconds, seconds

    def seconds(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise self.late()
        return left_s

    def late(self) -> Failed:
        return Failed(f"no answer within {span(self._all_s)}")


def _connected(host: str, port: int, left: _Left) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=left.seconds())  # an unresolved name: unknown
    except TimeoutError:
        raise left.late() from None
    except ConnectionError as error:
        raise Failed((error.strerror or str(error)).lower()) from None


def _http(url: str, timeout_s: float) -> None:
    place, left = urlsplit(url), _Left(timeout_s)
    host = place.hostname or ""
    sock = _connected(host, place.port or _PORTS[place.scheme], left)
    with contextlib.ExitStack() as stack:
        try:
            if place.scheme == "https":
                sock.settimeout(left.seconds())
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            stack.enter_context(sock)
            target = (place.path or "/") + (f"?{place.query}" if place.query else "")
            sock.settimeout(left.seconds())
            name = place.netloc.rpartition("@")[2]
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            status = _status(sock, left)
        except TimeoutError:
            raise left.late() from None
        except (ConnectionError, ssl.SSLError) as error:
            raise Failed(str(error)) from None
    if not 200 <= status < 400:
        raise Failed(f"it answered {status}")


def _status(sock: socket.socket, left: _Left) -> int:
    """The status of the answer; the rest of the answer is not read."""
    head = b""
    while b"\n" not in head and len(head) < _MOST_HEAD_BYTES:
        sock.settimeout(left.seconds())
        piece = sock.recv(1024)
        if not piece:
            break
        head += piece
    words = head.partition(b"\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise Failed("its answer is not HTTP")
    return int(words[1])


def _command(check: HealthCheck, spec: ProgramSpec) -> None:
    env = hooks.environ_of(spec.user, inherited()) | dict(spec.env) | {"EXTRALIFE_PROGRAM": spec.name}
    code, _ = hooks.run(check.command, check.timeout_s, env=env, cwd=spec.directory or "/", user=spec.user)
    if code is None:
        raise Failed(f"the command did not end within {span(check.timeout_s)}")
    if code:
        raise Failed(f"exit code {code}" if code > 0 else f"signal {-code}")
