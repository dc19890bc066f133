"""The control socket: bound here, and handed over from one image of the daemon to the next. `server.py` serves it.

The socket is bound under a temporary name, gets its mode and is then renamed into place. So nobody can connect before the
mode is right, and a stale socket file is replaced in one step. The socket listens from the daemon's start. A client that
connects before the daemon can answer, or while one image replaces another, waits in the queue and notices nothing.

`_set_access` is the only place that sets mode and group, for a new socket and for one that is taken over. At every start,
systemd sets the runtime directory and everything in it back to 0700, so a socket from its store must get its group again. If
the socket cannot get its group, training continues: only the owner can use the socket, and `trouble` gives the reason.

After a crash systemd's descriptor store hands the socket to the next daemon. Why not a socket unit: after `systemctl stop`
a `status`, or a dashboard that asks every minute, would start every training again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Final

from supervisor import files, membership

QUEUE: Final = 1024  # a client with a timeout of its own gets EAGAIN at once when the queue is full
_LONGEST_PATH: Final = 107  # bytes of sun_path, unix(7)
_SPARE: Final = ".spare"


class SocketTaken(OSError):
    """Another daemon answers on the control socket."""


class Listener:
    """The listening control socket. Not inheritable until `hand_on`."""

    def __init__(self, sock: socket.socket, path: str, trouble: str = "") -> None:
        """`trouble`: why the configured group has no access; empty if it has."""
        self.sock, self.path, self.trouble = sock, path, trouble
        self._file = _identity(path)

    def hand_on(self) -> str:
        """The descriptor for the next program image, which takes it with `take_over`. Empty: no client can find it any more.

        The socket file stays.
        """
        if not self._is_in_place():
            return ""
        self.sock.set_inheritable(True)
        return str(self.sock.fileno())

    def close(self) -> None:
        """Close the socket, and rename its file if it is still ours: the next daemon needs its inode if no other is free."""
        self.sock.close()
        if self._is_in_place():
            Path(self.path).rename(Path(self.path).with_name(_SPARE))

    def _is_in_place(self) -> bool:
        return self._file is not None and _identity(self.path) == self._file


def listen(path: str, group: str = "") -> Listener:
    """Bind the control socket: mode 0600, or 0660 for `group`. Raises SocketTaken, or OSError that says what to do.

    If the socket cannot get its group, nothing is raised: the listener's `trouble` gives the reason.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(
            errno.ENAMETOOLONG,
            f"the control socket's path has {len(os.fsencode(path))} bytes, the kernel allows {_LONGEST_PATH}: "
            f"choose a shorter runtime directory than {Path(path).parent}",
        )
    refuse_if_alive(path)
    ours = str(Path(path).with_name(f".s{os.getpid()}"))
    Path(ours).unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind(sock, ours, path)
        trouble = _set_access(Path(ours), group)
        sock.listen(QUEUE)
        files.make_room(path, files.SOCKET)
        Path(ours).rename(path)
    except OSError as error:
        sock.close()
        with contextlib.suppress(OSError):
            Path(ours).unlink()
        raise OSError(error.errno, f"cannot make the control socket {path}: {error.strerror or error}") from error
    return Listener(sock, path, trouble)


def _bind(sock: socket.socket, ours: str, path: str) -> None:
    """Bind to `ours`. A file system without a free inode gets that of the previous socket back first."""
    spare = Path(path).with_name(_SPARE)
    spare.unlink(missing_ok=True)
    try:
        sock.bind(ours)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not Path(path).is_socket():
            raise
        Path(path).unlink()
        sock.bind(ours)


def _set_access(file: Path, group: str) -> str:
    """Set mode and group of the socket's file and of its directory. Returns why the group has no access, else empty."""
    file.chmod(0o600)
    if not group:
        return ""
    try:
        shutil.chown(file, group=group)
        # The group may enter the directory, but not list it. Otherwise the socket's own mode would have no effect.
        mode = stat.S_IMODE(file.parent.stat().st_mode)
        if not mode & stat.S_IXOTH:
            shutil.chown(file.parent, group=group)
            file.parent.chmod(mode | stat.S_IXGRP)
        file.chmod(0o660)
    except LookupError:
        why = f"there is no group {group!r}"
    except OSError as error:
        why = membership.outside(group, os.geteuid()) or f"{error.filename or file}: {error.strerror}"
    else:
        return ""
    return f"daemon.socket_group: {why}; only the daemon's own user and root can use the control socket"


def take_over(fd: int, path: str, group: str = "") -> Listener:
    """The listening socket that the previous image of this process handed over. Raises OSError if `fd` is no such socket.

    Mode and group of its file are set again, because the configuration may name another group than before.
    """
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    if sock.family != socket.AF_UNIX or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.detach()
        raise OSError(errno.ENOTSOCK, f"descriptor {fd} is not a listening control socket")
    try:
        trouble = _set_access(Path(path), group)
    except OSError as error:
        trouble = f"{path} has no file of the control socket any more: {error.strerror}"
    return Listener(sock, path, trouble)


def refuse_if_alive(path: str) -> None:
    """Raise SocketTaken if a daemon answers at `path`. A file without a listener is left from a killed one: replace it."""
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
