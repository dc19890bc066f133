"""supervisorctl as a process that is forked from one with all modules imported, which saves nine tenths of its time.

It has its own arguments, environment, directory, pipes and exit code. What differs from `python -m supervisor.ctl` is the
start of the interpreter: whoever tests that, a terminal, a signal or a module in PYTHONPATH starts it for real.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARGV = [sys.executable, "-m", "supervisor.ctl"]


def ctl(
    args: list[str], *, env: Mapping[str, str], cwd: Path, stdin: str = "", timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """`supervisorctl` with these arguments, as `subprocess.run` would run it."""
    ours, theirs = [], []
    for reads in (True, False, False, False):  # its three streams, and what it ended with
        read, write = os.pipe()
        theirs.append(read if reads else write)
        ours.append(write if reads else read)
    order = json.dumps([args, dict(env), str(cwd)]).encode("utf-8", "surrogateescape")
    with contextlib.ExitStack() as opened:
        given, said, warned, ended = (opened.enter_context(open(fd, "rb" if n else "wb")) for n, fd in enumerate(ours))
        try:
            socket.send_fds(_server(), [order], theirs)
        finally:
            for each in theirs:
                os.close(each)
        given.write(stdin.encode())
        given.close()
        pid = int(ended.readline())
        with ThreadPoolExecutor(3) as readers:
            answers = [readers.submit(each.read) for each in (said, warned, ended)]
            try:
                out, err, status = (each.result(timeout_s) for each in answers)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([*ARGV, *args], timeout_s) from None
    return subprocess.CompletedProcess([*ARGV, *args], os.waitstatus_to_exitcode(int(status)), out.decode(), err.decode())


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "TZ": "UTC"}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=env, cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,  # no files, as what they are replaced by
    )  # fmt: skip
    theirs.close()
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def _serve(orders: socket.socket) -> None:
    for each in pkgutil.iter_modules([str(ROOT / "supervisor" / "ctl")]):
        if each.name not in {"__main__", "pictures", "terminal_plot"}:  # these draw
            importlib.import_module(f"supervisor.ctl.{each.name}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, fds, _, _ = socket.recv_fds(orders, 1 << 20, 4)
        if not order:
            return
        if os.fork() == 0:
            _keep(json.loads(order.decode("utf-8", "surrogateescape")), *fds)
        for each in fds:
            os.close(each)


def _keep(order: tuple[list[str], dict[str, str], str], stdin: int, stdout: int, stderr: int, ended: int) -> None:
    """Run one and tell its process id and what it ended with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        for number, each in enumerate((stdin, stdout, stderr)):
            os.dup2(each, number)
        os.closerange(3, 64)
        os._exit(_run(*order))
    for each in (stdin, stdout, stderr):
        os.close(each)
    os.write(ended, f"{pid}\n".encode())
    os.write(ended, b"%d" % os.waitpid(pid, 0)[1])
    os._exit(0)


def _run(args: list[str], env: dict[str, str], cwd: str) -> int:
    from supervisor.ctl.__main__ import main

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = ["supervisorctl", *args]
    code: object = 1
    try:
        code = main()
    except SystemExit as left:
        code = left.code
    except BaseException:  # as the interpreter does
        sys.excepthook(*sys.exc_info())
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
