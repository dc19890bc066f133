"""Reads sd_notify(3) datagrams from workers. They wake the daemon early and may be lost. NOTIFY programs send nothing else.

Each program has one datagram socket. Its path stays the same over attempts and daemons, so the path identifies the sending
program. The sender's credentials (SO_PASSCRED) must be those of our own user or root. If its environment can be read, it
must carry the current attempt's token: a leftover of an earlier attempt is ignored. `systemd-notify` waits until the
descriptor that it passes along (BARRIER=1) is closed: every passed descriptor is closed once its message is handled.
"""

from __future__ import annotations

import array
import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from supervisor.adapters import procfs
from supervisor.adapters.threads import Lasting
from supervisor.records import Record
from workers.contract import ENV_TOKEN, now_ns

log = structlog.get_logger()

_MOST_BYTES: Final = 4096  # a longer datagram is cut; its beginning is what matters
_MOST_FDS: Final = 16
_MOST_AT_ONCE: Final = 64
_WINDOW_S: Final = 0.05
_MOST_IN_WINDOW: Final = 64  # of all programs: some 1,000 a second; a normal program sends a few a minute
_UCRED: Final = struct.Struct("3i")
_STATUS_CHARS: Final = 200
_PATH_BYTES: Final = 107  # of sockaddr_un, less the closing NUL


class NotifyState(Record):
    """All that a program has reported so far in its current attempt. Times are CLOCK_BOOTTIME in ns."""

    token: str
    ready: bool = False
    stopping: bool = False
    status: str = ""
    progress_ns: int | None = None
    pings: int = 0  # signs of progress other than STATUS= and READY=1; counted up to 2
    deadline_ns: int | None = None
    steps: int | None = None
    ckpt_step: int | None = None
    ckpt_ns: int | None = None
    ckpt_count: int = 0


def parse(data: bytes) -> dict[str, str]:
    """Parse KEY=VALUE lines; other lines are ignored. The last value of a repeated key counts.

    Only a line feed ends a line: `splitlines` knows ten other characters, and a STATUS= that quotes a log line with one
    of them would be read as a second assignment.
    """
    pairs = {}
    for line in data.decode("utf-8", "replace").split("\n"):
        key, equals, value = line.partition("=")
        if equals and key and len(key) < 64:
            pairs[key] = value
    return pairs


def updated(state: NotifyState, message: dict[str, str], at_ns: int) -> NotifyState:
    """The state after one more message.

    READY=1, WATCHDOG=1 or a step count make a program ready: it trains. From then on these and STATUS= are its signs of
    progress. But a count that does not grow is none: a program that repeats it is alive but makes no progress. Example:
    WATCHDOG=1 alone is progress; WATCHDOG=1 with X_EXTRALIFE_STEPS=500 is progress the first time, and not the second.
    Before a program is ready, nothing counts as progress: loading with a STATUS= may take as long as a start, not a step.
    """
    steps = _whole(message.get("X_EXTRALIFE_STEPS"))
    grew = steps is not None and (state.steps is None or steps > state.steps)
    ckpt_step = _whole(message.get("X_EXTRALIFE_CHECKPOINT"))
    extend_us = _whole(message.get("EXTEND_TIMEOUT_USEC"))
    watched = message.get("WATCHDOG") == "1" and steps is None
    pinged = message.get("READY") == "1" or watched
    ready = state.ready or pinged or grew
    moves = grew or pinged or (ready and "STATUS" in message)
    return replace(
        state, ready=ready, stopping=state.stopping or message.get("STOPPING") == "1",
        status="".join(c for c in message.get("STATUS", state.status) if c.isprintable())[:_STATUS_CHARS],
        progress_ns=at_ns if moves else state.progress_ns, pings=min(2, state.pings + (grew or watched)),
        deadline_ns=at_ns + extend_us * 1000 if extend_us is not None else state.deadline_ns,
        steps=state.steps if steps is None else steps, ckpt_step=state.ckpt_step if ckpt_step is None else ckpt_step,
        ckpt_ns=state.ckpt_ns if ckpt_step is None else at_ns, ckpt_count=state.ckpt_count + (ckpt_step is not None),
    )  # fmt: skip


def _whole(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)


class _Bound(Record):
    sock: socket.socket
    inode: int


class NotifySockets:
    def __init__(self, path_of: Callable[[str], str], wake: Callable[[], None]) -> None:
        """`path_of` gives a program's socket path; `wake` is called after each accepted message."""
        self._path_of, self._wake = path_of, wake
        self._guard = threading.Lock()
        self._sockets: dict[str, _Bound] = {}
        self._states: dict[str, NotifyState] = {}
        self._selector = selectors.DefaultSelector()
        self._poke_out, self._poke_in = socket.socketpair()
        self._poke_out.setblocking(False)
        self._selector.register(self._poke_out, selectors.EVENT_READ, None)
        self._over = False
        self._window = now_ns(), 0  # its begin, and the messages in it
        self._thread = Lasting("edges", self._turn, lambda: self._over)
        self._thread.start()

    def bind(self, program: str) -> None:
        """Listen for a program, before its worker is started. Raises OSError.

        Does nothing if the path still leads to our socket. If an earlier daemon left that socket, or somebody removed ours,
        a new one is created. Only the deciding thread may call this.
        """
        path = Path(self._path_of(program))
        bound = self._sockets.get(program)
        if bound is not None and path.is_socket() and path.stat().st_ino == bound.inode:
            return
        if len(os.fsencode(path)) > _PATH_BYTES:
            raise OSError(
                f"the socket path {path} is longer than the {_PATH_BYTES} bytes that unix sockets allow: "
                "shorten runtime_dir or the program's name"
            )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            sock.bind(str(path))
            new = _Bound(sock, path.stat().st_ino)
        except OSError:
            sock.close()
            raise
        if bound is not None:
            self._selector.unregister(bound.sock)
            bound.sock.close()
        self._sockets[program] = new
        self._selector.register(sock, selectors.EVENT_READ, program)
        self._poke()

    def expect(self, program: str, token: str) -> None:
        """Expect messages of a new attempt; the state of the previous one is forgotten."""
        with self._guard:
            known = self._states.get(program)
            if known is None or known.token != token:
                self._states[program] = NotifyState(token)

    def state_of(self, program: str, token: str) -> NotifyState | None:
        """All that this attempt has reported, or None when it is not expected."""
        with self._guard:
            found = self._states.get(program)
        return found if found is not None and found.token == token else None

    def close(self) -> None:
        """Stop reading. The paths stay: the next daemon binds them again."""
        self._over = True
        self._poke()
        self._thread.join(5.0)
        for sock in (*(bound.sock for bound in self._sockets.values()), self._poke_out, self._poke_in):
            sock.close()
        self._selector.close()

    def _poke(self) -> None:
        with contextlib.suppress(OSError):
            self._poke_in.send(b".")

    def _turn(self) -> None:
        window_ns, count = self._window
        for key, _ in self._selector.select():
            sock = key.fileobj
            if key.data is None:
                with contextlib.suppress(OSError):
                    self._poke_out.recv(4096)
            elif isinstance(sock, socket.socket):
                try:
                    count += self._drain(key.data, sock)
                except Exception:  # one bad message must not end the reception of all others
                    log.exception("edge_failed", program=key.data)
        if (at_ns := now_ns()) - window_ns > _WINDOW_S * 1e9:
            window_ns, count = at_ns, 0
        elif count >= _MOST_IN_WINDOW:  # an endless sender would keep a core, and the interpreter's lock, busy
            time.sleep(_WINDOW_S)
        self._window = window_ns, count

    def _drain(self, program: str, sock: socket.socket) -> int:
        """Receive the waiting messages, up to a limit, so that no chatty program delays the others; return their number."""
        for number in range(_MOST_AT_ONCE):
            try:
                data, ancillary, _, _ = sock.recvmsg(
                    _MOST_BYTES,
                    socket.CMSG_SPACE(_UCRED.size) + socket.CMSG_SPACE(4 * _MOST_FDS),
                    socket.MSG_CMSG_CLOEXEC,
                )
            except OSError:
                return number
            try:
                pid, uid = _credentials(ancillary)
                if uid in (0, os.geteuid()) and pid is not None:
                    self._take(program, pid, parse(data))
            finally:
                _close_passed(ancillary)
        return _MOST_AT_ONCE

    def _take(self, program: str, pid: int, message: dict[str, str]) -> None:
        with self._guard:
            state = self._states.get(program)
        if state is None or _token_of(pid) not in (None, state.token):
            return
        after = updated(state, message, now_ns())
        with self._guard:
            if self._states.get(program) is state:
                self._states[program] = after
        self._wake()


def _credentials(ancillary: list[tuple[int, int, bytes]]) -> tuple[int | None, int | None]:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _UCRED.size:
            pid, uid, _ = _UCRED.unpack_from(data)
            return pid, uid
    return None, None


def _close_passed(ancillary: list[tuple[int, int, bytes]]) -> None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            passed = array.array("i")
            passed.frombytes(data[: len(data) - len(data) % passed.itemsize])
            for fd in passed:
                with contextlib.suppress(OSError):
                    os.close(fd)


def _token_of(pid: int) -> str | None:
    """The token in the sender's environment, "" without one; None when that cannot be read (gone, another user's)."""
    try:
        environ = procfs.environment(pid)
    except OSError:
        return None
    return environ.get(ENV_TOKEN, "") if environ else None
