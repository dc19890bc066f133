"""Two daemons with the same programs, ours and a real supervisord 4.3.0, and the stock client for either."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from box import PATIENCE, ROOT, Box, until
from tools import MEMORY_DIR

sys.path.insert(0, str(ROOT / "bench"))

from environments import stock_supervisor

TALK = 'echo "talker says hello"; echo "talker complains" >&2; exec sleep 100000'
AUTO, MANUAL = True, False
READER = "echoer"  # the one that reads its standard input
Programs = dict[str, tuple[list[str], bool]]  # name -> (command, autostart)


def programs(directory: Path) -> Programs:
    """What both sides supervise at first."""
    not_executable = directory / "not-executable"
    not_executable.write_text("#!/bin/sh\n")
    return {
        READER: (["cat"], AUTO),
        "finisher": (["sleep", "2"], AUTO),
        "forbidden": ([str(not_executable)], MANUAL),
        "idler": (["sleep", "100000"], MANUAL),
        "missing": (["/nonexistent/program"], MANUAL),
        "quick": (["sh", "-c", "exit 3"], MANUAL),
        "talker": (["sh", "-c", TALK], AUTO),
    }


def edited(before: Programs) -> Programs:
    """One program changed, one new, and the rest but one gone."""
    return {"fresh": (["sleep", "100000"], AUTO), "idler": (["sleep", "100001"], MANUAL), "talker": before["talker"]}


class Driver:
    """The stock client, imported once and forked for each command: its imports take most of its time."""

    _SCRIPT = """
import json, os, sys
from supervisor import supervisorctl
for line in sys.stdin:
    args, stdin, stdout = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(stdin, os.O_RDONLY), 0)
        os.dup2(os.open(stdout, os.O_WRONLY | os.O_TRUNC), 1)
        sys.stdin, sys.stdout, sys.argv = open(0), open(1, "w"), ["supervisorctl", *args]
        try:
            supervisorctl.main(args)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""

    def __init__(self, python: Path, directory: Path) -> None:
        self._in, self._out = directory / "client.in", directory / "client.out"
        self._process = subprocess.Popen(
            [str(python), "-c", self._SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=directory, env=ENVIRONMENT,
        )  # fmt: skip

    def run(self, args: tuple[str, ...], stdin: str) -> tuple[int, str]:
        """(exit code, standard output) of one command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in.write_text(stdin)
        self._out.write_text("")
        self._process.stdin.write(json.dumps([args, str(self._in), str(self._out)]) + "\n")
        self._process.stdin.flush()
        answered = select.select([self._process.stdout], [], [], 60 * PATIENCE)[0]
        assert answered, f"supervisorctl {args} has not ended; so far: {self._out.read_text()!r}"
        return int(self._process.stdout.readline()), self._out.read_text()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def _killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens meanwhile, the process does not outlive it."""
    try:
        yield
    finally:
        process.kill()


class Side:
    """One daemon, asked through Supervisor's own client."""

    name: str
    socket: Path
    directory: Path
    client: Path  # the stock supervisorctl
    _driver: Driver | None = None

    def configure(self, wanted: Programs, *, broken: bool = False) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()

    # the stock client

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [str(self.client), "-s", f"unix://{self.socket}", *args]

    def ctl(self, args: tuple[str, ...], stdin: str = "") -> tuple[int, str]:
        """(exit code, standard output)."""
        if self._driver is None:
            self._driver = Driver(self.client.with_name("python"), self.directory)
        return self._driver.run(("-s", f"unix://{self.socket}", *args), stdin)

    def follow(self, args: tuple[str, ...], awaited: str, typed: str = "") -> tuple[int, str]:
        """The same of a client that follows a log, ended by Ctrl-C once the awaited pattern has come."""
        client = subprocess.Popen(
            self._command(args), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.PIPE,
            cwd=self.directory, env=ENVIRONMENT,
        )  # fmt: skip
        assert client.stdout is not None
        assert client.stdin is not None
        got, deadline = b"", time.monotonic() + 30 * PATIENCE
        with client, _killed(client):
            client.stdin.write(typed.encode())
            client.stdin.flush()
            while not re.search(awaited.encode(), got):
                if select.select([client.stdout], [], [], 0.5)[0]:
                    piece = os.read(client.stdout.fileno(), 65536)
                    assert piece, f"{self.name}: {args} ended with {got!r}"
                    got += piece
                assert time.monotonic() < deadline, f"{self.name}: {args} waited in vain, got {got!r}"
            client.send_signal(signal.SIGINT)
            # Its standard input ends as well: the `fg` of a client that saw no Ctrl-C in its loop waits for a line.
            got += client.communicate(timeout=30 * PATIENCE)[0]
        # The stock client catches Ctrl-C in its loop alone: one that comes between two looks ends it by the signal.
        code = client.returncode
        return 0 if code == -signal.SIGINT else code, got.decode()

    # what the story waits for

    def state(self, program: str) -> str:
        with contextlib.suppress(OSError, http.client.HTTPException, xmlrpc.client.Error):
            return str(self._rpc("supervisor.getProcessInfo", program)["statename"])
        return "not known"

    def wait_state(self, program: str, state: str) -> None:
        until(lambda: self.state(program) == state, 30, f"{program} to be {state} with {self.name}")

    def pid(self, program: str) -> int:
        return int(self._rpc("supervisor.getProcessInfo", program)["pid"])

    def _rpc(self, method: str, *args: Any) -> Any:
        connection = _Connection(self.socket)
        try:
            connection.request("POST", "/RPC2", xmlrpc.client.dumps(args, method), {"Content-Type": "text/xml"})
            ((value,), _) = xmlrpc.client.loads(connection.getresponse().read())
            return value
        finally:
            connection.close()

    def plain(self, text: str) -> str:
        """An output without what differs from run to run."""
        text = text.replace(str(self.socket), "SOCKET").replace(str(self.directory), "DIRECTORY")
        for pattern, word in _CHANGING:
            text = re.sub(pattern, word, text)
        return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")


ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC", "TERM": "dumb"}
_CHANGING = (
    (r"\bpid \d+", "pid N"), (r"uptime (\d+ days?, )?\d+:\d\d:\d\d", "uptime H:MM:SS"),
    (r"\b[A-Z][a-z]{2} \d\d \d\d:\d\d [AP]M", "MON DD HH:MM AM"), (r"\b\d+\.\d+ s\b", "N s"),
    (r"(?m)^(supervisor> )?[1-9]\d*$", r"\1N"), (r"file: \S+ line: \d+", "file: FILE line: N"),
    (r"\bline \d+:", "line N:"), (r"\b\d+ known games", "N known games"),
)  # fmt: skip


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


class Ours(Side):
    name = "extralife"

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory, self.box = directory, Box(directory)
        self.socket = self.box.runtime / "supervisor.sock"
        self.client = stock_supervisor() / "supervisorctl"

    def configure(self, wanted: Programs, *, broken: bool = False) -> None:
        text = [
            f'[program.{name}]\ncommand = {json.dumps(command)}\nautostart = {str(auto).lower()}\nprogress = "none"\n'
            + "stdin = true\n" * (name == READER)
            for name, (command, auto) in wanted.items()
        ]
        self.box.config("\n".join(text) + "[program.broken]\n" * broken, slots=10)

    def start(self) -> None:
        self.box.start()

    def close(self) -> None:
        super().close()
        self.box.close()


class Theirs(Side):
    name = "supervisord 4.3.0"

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.runtime = Path(tempfile.mkdtemp(prefix="xl-", dir=MEMORY_DIR))
        self.socket = self.runtime / "supervisor.sock"
        self.client = stock_supervisor() / "supervisorctl"
        self.daemon: subprocess.Popen[bytes] | None = None

    def configure(self, wanted: Programs, *, broken: bool = False) -> None:
        daemon = (
            f"[supervisord]\nnodaemon=true\nlogfile={self.directory}/s.log\npidfile={self.directory}/s.pid\n"
            f"childlogdir={self.directory}\n[unix_http_server]\nfile={self.socket}\n[rpcinterface:supervisor]\n"
            "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        )
        text = [daemon]
        for name, (command, auto) in wanted.items():
            logs = "".join(f"{channel}_logfile={self.directory}/{name}.{channel}\n" for channel in ("stdout", "stderr"))
            line = shlex.join(command).replace("%", "%%")
            text.append(f"[program:{name}]\ncommand={line}\nautostart={str(auto).lower()}\npriority=100\n{logs}")
        (self.directory / "s.conf").write_text("\n".join(text) + "[program:broken]\n" * broken)

    def start(self) -> None:
        self.daemon = subprocess.Popen(
            [str(self.client.with_name("supervisord")), "-c", str(self.directory / "s.conf")], cwd=self.directory,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env=ENVIRONMENT,
        )  # fmt: skip
        until(self.socket.exists, 30, "supervisord to serve")

    def close(self) -> None:
        super().close()
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(30 * PATIENCE)  # it stops one program a second
            except subprocess.TimeoutExpired:
                for process in (*psutil.Process(self.daemon.pid).children(), self.daemon):
                    process.kill()
                self.daemon.wait(30)
        shutil.rmtree(self.runtime, ignore_errors=True)
