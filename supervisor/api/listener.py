"""The control socket: bound, listening, handed on from image to image. Who serves it: `server.py`.

It is bound under another name, given its mode and then renamed into place: nobody can connect before the mode is right,
and a stale socket file is replaced in one step. It listens from the daemon's first moment: who connects before the daemon
can answer, or while one image of it gives way to the next, waits in the queue and notices nothing.

Mode and group are set in one place, `_give`, whichever way the socket comes about. systemd makes the runtime directory
0700 again at every start, with everything in it: a socket taken over from its store is given to the group once more. A
group that the socket cannot be given to keeps nobody from training: the socket is the owner's alone, and `trouble` says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from supervisor import membership
from supervisor.adapters.foundations import Identity, Remembered

QUEUE: Final = 1024  # a client with a timeout of its own gets EAGAIN at once when the queue is full
_LONGEST_PATH: Final = 107  # bytes of sun_path, unix(7)


class SocketTaken(OSError):
    """Another daemon answers on the control socket."""


class Listener:
    """The listening control socket. Not inheritable until `hand_on`."""

    def __init__(self, sock: socket.socket, path: str, trouble: str = "") -> None:
        """`trouble`: why the group that was asked for has no access; empty when it has."""
        self.sock, self.path, self.trouble = sock, path, trouble
        self._file = _identity(path)
        self._seen = Remembered(path)
        self._seen.renew()
        self.renewed: list[Callable[[socket.socket], None]] = []  # called with the new socket of `restore`

    def identity(self) -> Identity | None:
        """Of the socket's file, held open so that its number is not given away; None: there was none from the start."""
        return self._seen()

    def restore(self, group: str) -> None:
        """Listen at the path again; clients of the previous socket stay connected. Raises OSError.

        A file that somebody put in our socket's place is kept under another name; a daemon that answers there stays.
        """
        if os.path.lexists(self.path):
            _refuse_if_alive(self.path)
            Path(self.path).rename(f"{self.path}.replaced-{time.time_ns()}")
        new = listen(self.path, group)
        old, self.sock, self.trouble, self._file = self.sock, new.sock, new.trouble, new._file
        new._seen.close()
        self._seen.renew()
        for tell in self.renewed:
            tell(self.sock)
        old.close()  # the server has a descriptor of its own, and goes on serving its present clients

    def hand_on(self) -> int:
        """The descriptor for the next program image, which takes it with `take_over`. The socket file stays."""
        self.sock.set_inheritable(True)
        return self.sock.fileno()

    def close(self) -> None:
        """An orderly end: the file goes too, if it is still ours."""
        self._seen.close()
        self.sock.close()
        if self._file is not None and _identity(self.path) == self._file:
            Path(self.path).unlink(missing_ok=True)


def listen(path: str, group: str = "") -> Listener:
    """Bind the control socket: mode 0600, or 0660 for `group`. Raises SocketTaken, or OSError with what to do.

    A group that cannot be had is no error but the listener's `trouble`.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(
            errno.ENAMETOOLONG,
            f"the control socket's path has {len(os.fsencode(path))} bytes, the kernel allows {_LONGEST_PATH}: "
            f"choose a shorter runtime directory than {Path(path).parent}",
        )
    _refuse_if_alive(path)
    ours = str(Path(path).with_name(f".s{os.getpid()}"))
    Path(ours).unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(ours)
        trouble = _give(Path(ours), group)
        sock.listen(QUEUE)
        Path(ours).rename(path)
    except OSError as error:
        _drop(sock, ours)
        raise OSError(error.errno, f"cannot make the control socket {path}: {error.strerror or error}") from error
    return Listener(sock, path, trouble)


def _give(file: Path, group: str) -> str:
    """Set mode and group of the socket's file and of its directory. Returns why the group gets nothing, if so."""
    file.chmod(0o600)
    if not group:
        return ""
    try:
        shutil.chown(file, group=group)
        _let_through(file.parent, group)
        file.chmod(0o660)
    except LookupError:
        why = f"there is no group {group!r}"
    except OSError as error:
        why = membership.outside(group, os.geteuid()) or f"{error.filename or file}: {error.strerror}"
    else:
        return ""
    return f"daemon.socket_group: {why}; only the daemon's own user and root can use the control socket"


def _let_through(directory: Path, group: str) -> None:
    """The group may pass the socket's directory, not list it: else the socket's own mode would be of no use."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & stat.S_IXOTH:
        shutil.chown(directory, group=group)
        directory.chmod(mode | stat.S_IXGRP)


def take_over(fd: int, path: str, group: str = "") -> Listener:
    """The listening socket that an earlier image of this process handed on. Raises OSError when it is none.

    Its file gets its mode and its group anew: the configuration may name another group than before.
    """
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    if sock.family != socket.AF_UNIX or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.detach()
        raise OSError(errno.ENOTSOCK, f"descriptor {fd} is not a listening control socket")
    try:
        trouble = _give(Path(path), group)
    except OSError as error:
        trouble = f"{path} has no file of the control socket any more: {error.strerror}"
    return Listener(sock, path, trouble)


def _refuse_if_alive(path: str) -> None:
    """A socket file that nobody listens on is left over from a killed daemon: it may be replaced."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with probe:
        probe.settimeout(5.0)
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except OSError as error:
            raise OSError(error.errno, f"cannot use {path} as control socket: {error.strerror or error}") from error
    raise SocketTaken(f"socket taken: another daemon answers on {path}; stop that one first, or choose another state_dir")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _drop(sock: socket.socket, path: str) -> None:
    sock.close()
    with contextlib.suppress(OSError):
        Path(path).unlink()
