"""Runs a command of the operator within a time limit: its exit status and its output. Usually nothing of it stays behind.

The command is the leader of a process group, which is killed as one. It stays in the daemon's session, because the daemon
takes children in other sessions for orphans of workers. Nothing here needs room on a disk.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from supervisor.adapters import leftovers, procfs
from supervisor.files import held
from supervisor.formats import span
from workers import contract

_HALF_BYTES: Final = 32 * 1024  # of a longer output only the beginning and the end are kept
_MOST_ERROR_CHARS: Final = 300


def environ() -> dict[str, str]:
    """The daemon's environment without the variables that systemd set for the daemon alone.

    A command that inherits those could confuse the service.
    """
    kept = {key: value for key, value in os.environ.items() if key not in contract.STRIPPED_ENV}
    return kept | leftovers.mark(of_user=True)


def attempt(argv: Sequence[str], data: str, timeout_s: float, **more: Any) -> tuple[str, str]:
    """Run it. Returns (why it has failed, as a clause with its last line, or empty for success; its output)."""
    try:
        code, output = run(argv, timeout_s, data=data, **more)
    except OSError as error:
        return f"{argv[0]} cannot be started: {error.strerror or error}", ""
    if code is None:
        return f"it did not end within {span(timeout_s)} and was killed", ""
    last = output.strip().rpartition("\n")[2][-_MOST_ERROR_CHARS:]
    how = f"it ended with status {code}" if code > 0 else f"it was ended by signal {-code}"
    return (f"{how}: {last}" if last else how) if code else "", output


def run(
    argv: Sequence[str], timeout_s: float, *, env: Mapping[str, str] | None = None, data: str = "", cwd: str = "/",
    stop_fd: int | None = None, errors: bool = True, output_fd: int | None = None, **whose: Any,
) -> tuple[int | None, str]:  # fmt: skip
    """(exit status, output); the status is None if it was killed: too late, or `stop_fd` became readable.

    `errors`: the output includes standard error. `output_fd`: a file for the output in place of a pipe. Then the command
    does not notice the end of this process, and what it leaves in the background at its own end goes on.
    `whose`: arguments of Popen. Raises OSError if it cannot be started.
    """
    with held(os.memfd_create("stdin") if data else os.open(os.devnull, os.O_RDONLY)) as stdin:
        if data:
            os.write(stdin, data.encode("utf-8", "replace"))
            os.lseek(stdin, 0, os.SEEK_SET)
        process = subprocess.Popen(
            argv, stdin=stdin, stdout=subprocess.PIPE if output_fd is None else output_fd,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL, env=environ() if env is None else dict(env), cwd=cwd,
            process_group=0, **whose,
        )  # fmt: skip
    ended = False
    try:
        output, ended = _read(process, time.monotonic() + timeout_s, stop_fd)
    finally:
        if output_fd is None or not ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # before it is reaped: until then, nothing else gets its process id
        code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if output_fd is not None:
        most = max(0, os.fstat(output_fd).st_size - 2 * _HALF_BYTES)
        output = os.pread(output_fd, 2 * _HALF_BYTES, most)
    return (code if ended else None), output.decode("utf-8", "replace")


def _read(process: subprocess.Popen[bytes], until_s: float, stop_fd: int | None) -> tuple[bytes, bool]:
    """The output until the process ended, and whether it ended in time. Does not wait for its children."""
    output, poller, pidfd = b"", select.poll(), procfs.pidfd(process.pid)
    try:
        out = process.stdout.fileno() if process.stdout is not None else -1
        for fd in (pidfd, out, -1 if stop_fd is None else stop_fd):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        while (left_s := until_s - time.monotonic()) > 0:
            ready = {fd for fd, _ in poller.poll(left_s * 1000.0)}
            if stop_fd in ready:
                break
            if out in ready:
                piece = os.read(out, _HALF_BYTES)
                output += piece
                if len(output) > 2 * _HALF_BYTES:
                    output = output[:_HALF_BYTES] + output[-_HALF_BYTES:]
                if not piece:
                    poller.unregister(out)
            elif pidfd in ready:
                return output, True
        return output, False
    finally:
        os.close(pidfd)
