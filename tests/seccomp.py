"""`python tests/seccomp.py EPERM 434,424 COMMAND...`: runs a command to which the kernel refuses these system calls.

As a container's seccomp profile does: an old Docker answers EPERM to a call that it does not know, gVisor ENOSYS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434  # the same numbers on all architectures
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF: load a word, jump if equal, return
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


def command(error: str, calls: tuple[int, ...], *argv: str) -> list[str]:
    return [sys.executable, str(Path(__file__)), error, ",".join(map(str, calls)), *argv]


def refuse(error: int, calls: tuple[int, ...]) -> None:
    """From now on, for this process and all that it starts."""
    rules = [struct.pack("HBBI", _LOAD, 0, 0, 0)]
    for at, call in enumerate(calls):
        rules.append(struct.pack("HBBI", _EQUAL, len(calls) - at, 0, call))
    rules += [struct.pack("HBBI", _RETURN, 0, 0, _ALLOW), struct.pack("HBBI", _RETURN, 0, 0, _ERRNO | error)]
    body = ctypes.create_string_buffer(b"".join(rules))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(body)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel takes no seccomp filter")


if __name__ == "__main__":
    refuse(getattr(errno, sys.argv[1]), tuple(map(int, sys.argv[2].split(","))))
    os.execvp(sys.argv[3], sys.argv[3:])
