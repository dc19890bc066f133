"""Ensures one daemon per state directory, with a lock that the kernel releases when the process ends, however it ends.

The daemon takes the lock before it opens the journal. A second daemon on the same state directory would start every program
a second time. A pid file is not enough: it would refuse a start after each power cut, or accept a second daemon once the pid
was reused.

A lock on a file can be lost with the file: after somebody removes `lock`, or the whole state directory, a second daemon can
lock a new file. So there is a second witness that nobody can remove: a name in the kernel's table of abstract Unix sockets.
The name is made of the directory's path, the root directory and the user (`claim`). Any user may take such a name, so it
counts only if our own user holds it. The table exists once per network namespace; the lock file does not depend on that.

The daemon checks the lock file by identity (`adapters/foundations.py`). If the file is gone, `Singleton.restore` creates a
new one, locks it before it has its final name, and then gives it the name, unless another file has taken it meanwhile.
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
from supervisor.adapters.foundations import Identity, directory, of_fd, of_path

_QUEUE: Final = 4096  # connections are never accepted: each refused start leaves a closed one in the queue
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED


class Taken(Exception):
    """Another daemon owns the state directory; the message names it."""


class Singleton:
    """The held lock. It closes on exec: a daemon that re-executes itself takes it again, and workers never inherit it."""

    def __init__(self, fd: int, path: str, witness: socket.socket | None) -> None:
        self._fd, self.path, self._witness = fd, path, witness
        self._directory_fd = directory(Path(path).parent)

    def identity(self) -> Identity | None:
        """The identity of the locked file, whether or not it still has its name."""
        return of_fd(self._fd) if self._fd >= 0 else None

    def restore(self) -> None:
        """Lock a new file and give it the name, after ours was removed. Raises OSError, also if another daemon holds it."""
        state_dir = Path(self.path).parent
        now = of_path(state_dir)
        if now is None or not now.same(of_fd(self._directory_fd)):
            raise OSError(errno.ESTALE, "the state directory is not the one with which extralife started")
        ours = state_dir / f".lock.{os.getpid()}"
        ours.unlink(missing_ok=True)
        fd = _locked(ours, os.O_EXCL)
        try:
            os.link(ours, self.path)
        except FileExistsError:
            os.close(fd)
            fd = _locked(Path(self.path))
        except OSError:
            os.close(fd)
            raise
        finally:
            ours.unlink(missing_ok=True)
        old, self._fd = self._fd, fd
        os.close(old)

    def release(self) -> None:
        for fd in (self._fd, self._directory_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._directory_fd = -1
        if self._witness is not None:
            self._witness.close()
            self._witness = None


def claim(state_dir: str) -> socket.socket | None:
    """Take the name that only one daemon of this user can have for a state directory, even a removed one. Raises Taken.

    None: the name was not available, for example because another user has it. Then the lock file alone decides.
    """
    name = _name(state_dir)
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


def _locked(path: Path, flags: int = 0) -> int:
    fd = files.open_own(path, os.O_RDWR | flags)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise _Held(pid) if isinstance(error, BlockingIOError) else error from None
    return fd
