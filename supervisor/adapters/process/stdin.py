"""Writing to the standard input of a worker that has a pipe there (`stdin = true`).

The shim keeps the writing end as its own standard input (`shim.py`), where every daemon finds it through /proc, a restarted
one too; and there is no file that somebody could replace. A worker that does not read never holds up the daemon: what does
not fit into the pipe within a few seconds is an error.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import Final

from supervisor.adapters import procfs

_PATIENCE_S: Final = 2.0


class NoInput(OSError):
    """The worker's standard input is no pipe of ours, or nobody holds its other end any more."""


def send(shim_pid: int, shim_start_ticks: int, data: bytes) -> None:
    """Write all of it. Raises NoInput, or OSError: of a worker that does not read with how much it was sent."""
    fd = _open(shim_pid, shim_start_ticks)
    try:
        _write(fd, data)
    except BrokenPipeError:
        raise NoInput(errno.EPIPE, "nobody reads it any more") from None
    finally:
        os.close(fd)


def _open(shim_pid: int, shim_start_ticks: int) -> int:
    holder = procfs.open_verified(shim_pid, shim_start_ticks)  # its pid stays its own until this is closed
    if holder is None:
        raise NoInput(errno.ESRCH, "it is gone")
    try:
        fd = os.open(f"/proc/{shim_pid}/fd/0", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NoInput(error.errno, error.strerror) from None
    finally:
        os.close(holder)
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
