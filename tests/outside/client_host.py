"""Runs `supervisorctl` again and again in forks of one small process, so that the start of Python is paid once.

Each run is a process of its own with its own arguments, environment, terminal and exit code. Only its clocks are set: the
wall clock and CLOCK_BOOTTIME show the time of the simulated box. Requests and answers are JSON, a line each.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import struct
import sys
import termios
import time
import tomllib
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def client():
    """The function behind the installed script `supervisorctl`, wherever it is declared to be."""
    where = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["supervisorctl"]
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def serve(main, lines, answers):
    for line in lines:
        answer = run(main, json.loads(line))
        for name in answer.pop("modules"):  # the next fork finds them loaded
            importlib.import_module(name)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def run(main, request):
    given = _file(request["stdin"].encode())
    told = os.memfd_create("modules")
    if request["tty"]:
        terminal, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, request["columns"], 0, 0))
        ends = (given, slave, slave)
    else:
        ends = (given, os.memfd_create("out"), os.memfd_create("err"))
    pid = os.fork()
    if not pid:
        _be_the_client(main, request, ends, told)
    if request["tty"]:
        os.close(slave)
        out, err = _all_of_terminal(terminal).replace(b"\r\n", b"\n"), b""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not request["tty"]:
        out, err = map(_content, ends[1:])
    os.close(given)
    return {"code": code, "out": out.decode(), "err": err.decode(), "modules": json.loads(_content(told) or b"[]")}


def _be_the_client(main, request, ends, told):
    code = 70
    try:
        os.setsid()
        for number, end in enumerate(ends):
            os.dup2(end, number)
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()
        os.chdir("/")
        wall_s, boot_s, gettime = request["wall_s"], request["boot_s"], time.clock_gettime
        time.time = lambda: wall_s
        time.clock_gettime = lambda clock: boot_s if clock == time.CLOCK_BOOTTIME else gettime(clock)
        sys.argv = ["supervisorctl", *request["argv"]]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        ours = sorted(name for name in sys.modules if name.split(".")[0] == "supervisor" and not name.endswith("__main__"))
        os.write(told, json.dumps(ours).encode())
        os._exit(code or 0)


def _file(content):
    file = os.memfd_create("in")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _content(file):
    data = os.pread(file, 1 << 24, 0)
    os.close(file)
    return data


def _all_of_terminal(terminal):
    data = b""
    try:
        while piece := os.read(terminal, 65536):
            data += piece
    except OSError:  # EIO: every process has closed the other end
        pass
    os.close(terminal)
    return data


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    serve(client(), sys.stdin, sys.stdout)
