"""supervisord and extralifectl as processes that are forked from one with all modules imported, which saves nine tenths of
their time.

Each has its own arguments, environment, directory, files and exit code, and the daemon its own session and command line. What
differs from `python -m supervisor` is the start of the interpreter: whoever tests that, a terminal, a signal or a module in
PYTHONPATH starts it for real. A daemon that reloads starts for real, too.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = {"ctl": "supervisor.ctl", "daemon": "supervisor"}
ROOMS = {"ctl": ("supervisor.ctl",), "daemon": ("supervisor.shell", "supervisor.adapters", "supervisor.api")}
DRAWS = ("pictures", "terminal_plot")
ROOM_FOR_ARGUMENTS = "-" * 500


def argv(kind):
    return [sys.executable, "-m", MODULES[kind]]


def ctl(args, *, env, cwd, stdin="", timeout_s=60.0):
    """`extralifectl` with these arguments, as `subprocess.run` would run it."""
    ours, theirs = [], []
    for reads in (True, False, False, False):  # its three streams, and what it ended with
        read, write = os.pipe()
        theirs.append(read if reads else write)
        ours.append(write if reads else read)
    with contextlib.ExitStack() as opened:
        given, said, warned, ended = (opened.enter_context(open(fd, "rb" if n else "wb")) for n, fd in enumerate(ours))
        try:
            _order("ctl", args, env, cwd, theirs)
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
                raise subprocess.TimeoutExpired([*argv("ctl"), *args], timeout_s) from None
    code = os.waitstatus_to_exitcode(int(status))
    return subprocess.CompletedProcess([*argv("ctl"), *args], code, out.decode(), err.decode())


class Daemon:
    """A `supervisord` in a session of its own, with the methods of `subprocess.Popen`."""

    def __init__(self, args, *, env, cwd, log):
        self.returncode = None
        self._args = [*argv("daemon"), *args]
        ended, theirs = os.pipe()
        self._ended = open(ended, "rb")  # noqa: SIM115  as long as the daemon
        try:
            with open(os.devnull, "rb") as nothing:
                _order("daemon", args, env, cwd, [nothing.fileno(), log.fileno(), log.fileno(), theirs])
        finally:
            os.close(theirs)
        self.pid = int(self._ended.readline())

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._args, timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(int(self._ended.read()))
            self._ended.close()
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _order(kind, args, env, cwd, fds):
    order = json.dumps([args, dict(env), str(cwd)]).encode("utf-8", "surrogateescape")
    socket.send_fds(_server(kind), [order], fds)


@cache
def _server(kind):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "TZ": "UTC"}
    process = subprocess.Popen(
        [sys.executable, __file__, kind, str(theirs.fileno()), ROOM_FOR_ARGUMENTS],
        pass_fds=[theirs.fileno()], env=env, cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,  # no files, as what they are replaced by
    )  # fmt: skip
    theirs.close()
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def _serve(kind, orders):
    sys.path[0] = str(ROOT)
    if kind == "daemon":
        importlib.import_module("supervisor.__main__")  # first: it leaves out a package
    for room in ROOMS[kind]:
        for each in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
            if not each.name.endswith(("__main__", *DRAWS)):
                importlib.import_module(each.name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, fds, _, _ = socket.recv_fds(orders, 1 << 20, 4)
        if not order:
            return 0
        if os.fork() == 0:
            orders.close()
            return _keep(kind, json.loads(order.decode("utf-8", "surrogateescape")), *fds)
        for each in fds:
            os.close(each)


def _keep(kind, order, stdin, stdout, stderr, ended):
    """Run one and tell its process id and what it ended with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        for number, each in enumerate((stdin, stdout, stderr)):
            os.dup2(each, number)
        os.closerange(3, 64)
        return _run(kind, *order)
    for each in (stdin, stdout, stderr):
        os.close(each)
    os.write(ended, f"{pid}\n".encode())
    os.write(ended, b"%d" % os.waitpid(pid, 0)[1])
    os._exit(0)


def _run(kind, args, env, cwd):
    module = importlib.import_module(f"{MODULES[kind]}.__main__")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = [f"supervisor{'d' if kind == 'daemon' else 'ctl'}", *args]
    if kind == "daemon":
        os.setsid()
        gc.unfreeze()
        _show([*argv(kind), *args])
        return module.main()
    code = module.main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)  # an interpreter takes as long for its end as a command


def _show(words):
    """The command line that others see, in the place of this process' own."""
    first, last = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    ctypes.memmove(first, os.fsencode("\0".join(words)).ljust(last - first, b"\0"), last - first)


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
