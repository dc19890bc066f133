"""Runs a command of the operator within a time limit: its exit status and its output. Usually nothing of it stays behind.

The command is the leader of a process group, which is killed as one. It stays in the daemon's session, unless it is another
user's: the daemon takes children in other sessions for orphans of workers. Nothing here needs room on a disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from supervisor import as_user, users
from supervisor.adapters import leftovers, procfs
from supervisor.config import secrets
from supervisor.files import held
from supervisor.formats import span
from workers import contract

_HALF_BYTES: Final = 32 * 1024  # of a longer output only the beginning and the end are kept
_MOST_ERROR_CHARS: Final = 300
_SHORTEST_SECRET: Final = 4  # a shorter one would hide words
_DIES_S: Final = 10.0  # from SIGKILL to its end, unless it belongs to another user or is in state D


def environ() -> dict[str, str]:
    """The daemon's environment without the variables that systemd set for the daemon alone, and without a shell's PWD.

    A command that inherits those could confuse the service. It does not run in that directory, whose name is no password.
    """
    kept = {key: value for key, value in os.environ.items() if key not in {*contract.STRIPPED_ENV, "PWD", "OLDPWD"}}
    return kept | leftovers.mark(of_user=True)


def environ_of(user: str, given: Mapping[str, str]) -> dict[str, str]:
    """What a check of this user's program gets: `given`, without the daemon's secrets if the user is another one."""
    is_other = as_user.other(user) is not None
    kept = {key: value for key, value in given.items() if not (is_other and secrets.NAME.search(key))}
    return kept | (users.find(user).env if user else {}) | leftovers.mark(of_user=not is_other)


class Unsure(str):
    """Why a command was killed before its end, as a clause: it is not known how much of its work it has done."""

    __slots__ = ()


class NotKilled(OSError):
    """The command's time is over, and it may not be signalled, as after sudo: it runs on."""


def attempt(
    argv: Sequence[str], data: str, timeout_s: float, *, env: Mapping[str, str] | None = None, **more: Any
) -> tuple[str, str]:
    """Run it. Returns (why it has failed, as a clause with its last line, or empty for success; its output).

    Neither has a secret that the command was given, such as a key that a provider's client prints with its error.
    """
    env = environ() if env is None else env
    try:
        code, output = run(argv, timeout_s, data=data, env=env, **more)
    except NotKilled as left:
        return Unsure(left.strerror), ""
    except OSError as error:
        return f"{argv[0]} cannot be started: {error.strerror or error}", ""
    if code is None:
        return Unsure(f"it did not end within {span(timeout_s)} and was killed"), ""
    for secret in sorted(_secrets(argv, env), key=len, reverse=True):
        output = output.replace(secret, "***")
    last = output.strip().rpartition("\n")[2][-_MOST_ERROR_CHARS:]
    how = f"it ended with status {code}" if code > 0 else f"it was ended by signal {-code}"
    return (f"{how}: {last}" if last else how) if code else "", output


def _secrets(argv: Sequence[str], env: Mapping[str, str]) -> set[str]:
    """Values of secret-looking variables and options. Example: `--api-key k3y` and `API_KEY=k3y` both give "k3y"."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("-") else [word])]
    options = [(option, value) for option, value in pairwise(words) if option.startswith("-")]
    found = {value for name, value in (*env.items(), *options) if secrets.NAME.search(name)}
    return {value for value in found if len(value) >= _SHORTEST_SECRET}


def run(
    argv: Sequence[str], timeout_s: float, *, env: Mapping[str, str] | None = None, data: str = "", cwd: str = "/",
    stop_fd: int | None = None, errors: bool = True, output_fd: int | None = None, user: str = "",
) -> tuple[int | None, str]:  # fmt: skip
    """(exit status, output); the status is None if it was killed: too late, or `stop_fd` became readable.

    `errors`: the output includes standard error. `output_fd`: a file for the output in place of a pipe. Then the command
    does not notice the end of this process, and what it leaves in the background at its own end goes on.
    `user`: whose command it is. Raises OSError if it cannot be started, and NotKilled.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(as_user.as_daemon())  # to kill it, too
        stdin = stack.enter_context(held(os.memfd_create("stdin") if data else os.open(os.devnull, os.O_RDONLY)))
        if data:
            os.write(stdin, data.encode("utf-8", "replace"))
            os.lseek(stdin, 0, os.SEEK_SET)
        if whose := as_user.popen_as(user):  # Popen enters the directory as root, who may enter every one
            with as_user.acting_as(user):
                directory = stack.enter_context(held(os.open(f"{cwd}/.", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)))
            cwd = f"/proc/self/fd/{directory}"
            whose["start_new_session"] = True  # it could type into the terminal of the daemon's session
        process = subprocess.Popen(
            argv, stdin=stdin, stdout=subprocess.PIPE if output_fd is None else output_fd,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL, env=environ() if env is None else dict(env), cwd=cwd,
            **(whose or {"process_group": 0}),
        )  # fmt: skip
        ended = False
        try:
            output, ended = _read(process, time.monotonic() + timeout_s, stop_fd)
        finally:
            if output_fd is None or not ended:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)  # before it is reaped: until then, nothing else has its id
            if process.stdout is not None:
                process.stdout.close()
            try:
                code = process.wait(_DIES_S)
            except subprocess.TimeoutExpired:
                why = f"it did not end within {span(timeout_s)}, and process {process.pid} runs on after SIGKILL"
                raise NotKilled(errno.EPERM, why) from None
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
