"""Ensures one daemon per state directory, with a lock that the kernel releases when the process ends, however it ends.

The daemon takes the lock before it opens the journal. A second daemon on the same state directory would start every program
a second time. A pid file is not enough: it would refuse starts after power cuts, or accept a second once the pid was reused.

A lock on a file can be lost with the file: after somebody removes `lock`, or the whole state directory, a second daemon can
lock a new file. So there is a second witness that nobody can remove: a name in the kernel's table of abstract Unix sockets.
The name is made of the directory's path, the root directory and the user (`claim`). Any user may take such a name, so it
counts only if our own user holds it. The table exists once per network namespace; the lock file does not depend on that.

The daemon checks the lock file by identity (`adapters/foundations.py`). If the file is gone, it restarts itself, and locks
a new one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import struct
from pathlib import Path
from typing import Final

from supervisor import files, lack
from supervisor.adapters.foundations import Identity, of_stat

_QUEUE: Final = 4096  # connections are never accepted: each refused start leaves a closed one in the queue
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED


class Taken(Exception):
    """Another daemon owns the state directory; the message names it."""


class Singleton:
    """The held lock. It closes on exec: a daemon that re-executes itself takes it again, and workers never inherit it.

    The name goes to the next image, so that no other daemon starts between the two.
    """

    def __init__(self, fd: int, path: str, witness: socket.socket | None) -> None:
        self._fd, self.path, self._witness = fd, path, witness

    def identity(self) -> Identity | None:
        """The identity of the locked file, whether or not it still has its name."""
        return of_stat(os.fstat(self._fd)) if self._fd >= 0 else None

    def refuse_if_held(self) -> None:
        """Raises OSError if another process has locked the file that is at the path now."""
        os.close(_locked(Path(self.path)))

    def hand_on(self) -> str:
        """The descriptor of the name for the next image's `claim`; empty if there is none."""
        if self._witness is None:
            return ""
        self._witness.set_inheritable(True)
        return str(self._witness.fileno())

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        if self._witness is not None:
            self._witness.close()
            self._witness = None


def claim(state_dir: str, handed_on: str = "") -> socket.socket | None:
    """Take the name that only one daemon of this user can have for a state directory, even a removed one. Raises Taken.

    None: the name was not available, for example because another user has it. Then the lock file alone decides.
    `handed_on`: the descriptor of the name that the previous image of this process had.
    """
    name = _name(state_dir)
    if handed_on:
        witness = socket.socket(fileno=int(handed_on))
        witness.set_inheritable(False)
        if witness.getsockname() == name:
            return witness
        witness.close()  # the configuration names another state directory now
    witness = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        witness.bind(name)
        witness.listen(_QUEUE)
    except OSError as error:
        witness.close()
        lack.check(error)
        if error.errno != errno.EADDRINUSE:
            return None
        pid = _holder(name)
        if pid is None:
            return None
        raise taken(f"pid {pid or 'unknown'}", state_dir) from None
    return witness


def owner(state_dir: str) -> int | None:
    """The pid of this user's daemon on a state directory, whatever happened to its files; None: none, or unknown."""
    return _holder(_name(state_dir)) or None


def _name(state_dir: str) -> bytes:
    """The socket name. The root directory is part of it: the same path in another container is another directory."""
    root = Path("/").stat()  # without its links: a new directory in it adds one, and must not change the name
    text = f"{os.path.realpath(state_dir)}|{root.st_dev}:{root.st_ino}|{os.geteuid()}"
    return b"\0extralife/" + hashlib.blake2b(os.fsencode(text), digest_size=16).hexdigest().encode()


def _holder(name: bytes) -> int | None:
    """The pid of our own user's process that holds this name; 0: its queue is full; None: another user or nobody has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(name)
        except BlockingIOError:
            return 0
        except OSError:
            return None
        pid, uid, _ = _CREDENTIALS.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid if uid == os.geteuid() else None


def hold(path: str, witness: socket.socket | None = None) -> Singleton:
    """Create and lock the lock file, and write our pid into it. Raises Taken or OSError; the message says what to do."""
    parent = Path(path).parent
    try:
        return Singleton(_locked(Path(path)), path, witness)
    except _Held as held:
        raise taken(f"pid {held.pid if held.pid.isdigit() else 'unknown'}", str(parent)) from None
    except OSError as error:
        way = "make room" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "create it"
        raise OSError(
            error.errno, f"cannot use {parent} as state directory: {error.strerror}; {way} or choose another state_dir"
        ) from error


def taken(who: str, state_dir: str) -> Taken:
    return Taken(f"another supervisord ({who}) runs on {state_dir}: stop that one first, or choose another state_dir")


class _Held(OSError):
    """Another process has locked the file. `pid`: the number in the file."""

    def __init__(self, pid: str) -> None:
        super().__init__(errno.EBUSY, f"another supervisord (pid {pid or 'unknown'}) has locked it")
        self.pid = pid


def _locked(path: Path) -> int:
    fd = files.open_own(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise _Held(pid) if isinstance(error, BlockingIOError) else error from None
    return fd
