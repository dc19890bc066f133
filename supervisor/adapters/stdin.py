"""Writes to the standard input of a worker whose standard input is a pipe (`stdin = true`).

The shim keeps the write end of the pipe as its own standard input (`shim.py`). Every daemon, also a restarted one, finds it
there through /proc, and there is no file that somebody could replace. A worker that does not read never delays the daemon:
data that does not fit into the pipe within a few seconds is an error.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import Final

from supervisor.adapters import procfs
from supervisor.files import held

_PATIENCE_S: Final = 2.0


class NoInput(OSError):
    """The worker's standard input is not our pipe, or no process holds its other end any more."""


def send(shim_pid: int, shim_start_ticks: int, data: bytes) -> None:
    """Write all data. Raises NoInput or OSError; for a worker that does not read, OSError says how many bytes were sent."""
    with held(_open(shim_pid, shim_start_ticks)) as fd:
        try:
            _write(fd, data)
        except BrokenPipeError:
            raise NoInput(errno.EPIPE, "nobody reads it any more") from None


def _open(shim_pid: int, shim_start_ticks: int) -> int:
    holder = procfs.open_verified(shim_pid, shim_start_ticks)  # exactly this process, not a later one with its pid
    if holder is None:
        raise NoInput(errno.ESRCH, "it is gone")
    with held(holder):
        try:
            fd = os.open(f"/proc/{shim_pid}/fd/0", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NoInput(error.errno, error.strerror) from None
        is_gone = procfs.wait_gone(holder, 0.0)  # a pidfd does not reserve the pid: the file may be that of a later process
    if is_gone:
        os.close(fd)
        raise NoInput(errno.ESRCH, "it is gone")
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise NoInput(errno.ENXIO, "it is no pipe")
    return fd


def _write(fd: int, data: bytes) -> None:
    sent, until_s = 0, time.monotonic() + _PATIENCE_S
    writable = select.poll()
    writable.register(fd, select.POLLOUT)
    while sent < len(data):
        try:
            sent += os.write(fd, data[sent:])
        except BlockingIOError:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not writable.poll(left_s * 1000):
                raise OSError(errno.EAGAIN, f"it is not read: {sent} of {len(data)} bytes were sent") from None
