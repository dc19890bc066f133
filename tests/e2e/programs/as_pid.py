"""as_pid.py PID COMMAND...: COMMAND as the very process PID, which must be free: clone3(2) with `set_tid` (root only).

Exits with 0 once the command runs, with 3 where the kernel does not allow it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SYS_CLONE3 = 435


class _Args(ctypes.Structure):
    """`struct clone_args` of <linux/sched.h>."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in "flags pidfd child_tid parent_tid exit_signal stack stack_size tls set_tid set_tid_size cgroup".split()
    ]


def main() -> int:
    pid, command = int(sys.argv[1]), sys.argv[2:]
    wanted = (ctypes.c_int * 1)(pid)
    args = _Args(exit_signal=signal.SIGCHLD, set_tid=ctypes.addressof(wanted), set_tid_size=1)
    libc = ctypes.PyDLL(None, use_errno=True)
    got = libc.syscall(_SYS_CLONE3, ctypes.byref(args), ctypes.sizeof(args))
    if got == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.execvp(command[0], command)
    if got < 0:
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    os._exit(main())
