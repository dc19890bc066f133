"""The three compared daemons, each in a separate environment: extralife, PyPI supervisor 4.3.0, circus.

Ground truth is /proc, never the daemon under test. All run the same programs with their own default policies. Only settings
without which the benchmark cannot run are changed (descriptors for 200 programs, the path of a socket).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from environments import environment, stock_supervisor

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"

SUPERVISOR = ("supervisor", "supervisor==4.3.0", "setuptools<81")

Programs = dict[str, list[str]]

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` blocks close the daemons


def wait_for(look: Callable[[], Any], timeout_s: float, period_s: float = 0.005) -> Any:
    """The first true result of `look`; TimeoutError when it stays false."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(period_s)  # files and processes can only be polled
    return found


def pids_of(mark: str, program: str = "") -> list[int]:
    """Live processes (of a program) with the mark in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if mark.encode() in line and line.startswith(program.encode()) and state(int(name)) not in "ZX":
                    found.append(int(name))
    return found


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def end(mark: str) -> None:
    """Kill all processes that a side has left behind."""
    for _ in range(5):
        for pid in pids_of(mark):
            if pid != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)  # search again: some may be forked while others are killed


class Box(ABC):
    """One daemon with its programs. Subclasses write the configuration and define the commands."""

    name = ""

    def __init__(self, programs: Programs, directory: Path) -> None:
        self.programs, self.directory = programs, directory
        self.runtime = Path(tempfile.mkdtemp(prefix="xlb-", dir="/dev/shm"))  # short paths for sockets
        self.bin = self.prepare()
        self.start()

    @abstractmethod
    def prepare(self) -> Path: ...

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def client(self, *args: str) -> list[str]: ...

    def start(self) -> None:
        self.daemon = subprocess.Popen(
            self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.directory,
        )  # fmt: skip

    def ctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.client(*args), capture_output=True, text=True, check=False, cwd=self.directory)

    def stop_all(self) -> None:
        self.ctl("stop", "all")

    def stock_client(self, *_args: str) -> list[str] | None:
        """The command of Supervisor's own supervisorctl 4.3.0 for this daemon; None if it does not work."""
        return None

    def helpers(self) -> list[int]:
        """Extra processes of this side, besides the programs' own."""
        return []

    def close(self) -> None:
        if self.daemon.poll() is None:
            self.daemon.terminate()
        try:
            self.daemon.wait(60)
        except subprocess.TimeoutExpired:  # circusd sometimes does not end; it has its own session, so only it is killed
            print(f"{self.name}: still there 60 s after SIGTERM, killed", flush=True)
            os.killpg(self.daemon.pid, signal.SIGKILL)
            self.daemon.wait()
        shutil.rmtree(self.runtime, ignore_errors=True)


class Ours(Box):
    name = "extralife"
    tables = ""  # more of the configuration

    def prepare(self) -> Path:
        lines = [
            f'[daemon]\nstate_dir = "{self.directory}/state"\nruntime_dir = "{self.runtime}"',
            f"[level]\nslots = {len(self.programs)}",
            self.tables,
        ]
        lines += [f"[program.{n}]\ncommand = {json.dumps(c)}\n{self.options(n)}" for n, c in self.programs.items()]
        (self.directory / "x.toml").write_text("\n".join(lines))
        return Path(sys.executable).parent

    def options(self, _name: str) -> str:
        return 'progress = "none"'

    def command(self) -> list[str]:
        return [sys.executable, "-m", "supervisor", "-c", str(self.directory / "x.toml")]

    def client(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "supervisor.ctl", "-c", str(self.directory / "x.toml"), *args]

    def start(self) -> None:
        self.daemon = subprocess.Popen(
            self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=ROOT,
        )  # fmt: skip

    def ctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.client(*args), capture_output=True, text=True, check=False, cwd=ROOT)

    def stock_client(self, *args: str) -> list[str]:
        bin_dir = environment(*SUPERVISOR)
        (self.directory / "stock.conf").write_text(f"[supervisorctl]\nserverurl=unix://{self.runtime}/supervisor.sock\n")
        return [str(bin_dir / "supervisorctl"), "-c", str(self.directory / "stock.conf"), *args]

    def helpers(self) -> list[int]:
        return pids_of(f"{self.directory}/state/programs/")


class Supervisor(Box):
    name = "supervisor 4.3.0"

    def prepare(self) -> Path:
        bin_dir = stock_supervisor()
        text = (
            f"[supervisord]\nnodaemon=true\nlogfile={self.directory}/s.log\npidfile={self.directory}/s.pid\n"
            f"childlogdir={self.directory}\nminfds=4096\n[unix_http_server]\nfile={self.runtime}/s.sock\n"
            f"[supervisorctl]\nserverurl=unix://{self.runtime}/s.sock\n"
            "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        )
        for number, (name, command) in enumerate(self.programs.items()):
            text += (
                f"[program:{name}]\ncommand={script(self.directory, name, command)}\npriority={number}\nautorestart=true\n"
            )
        (self.directory / "s.conf").write_text(text)
        return bin_dir

    def command(self) -> list[str]:
        return [str(self.bin / "supervisord"), "-c", str(self.directory / "s.conf")]

    def client(self, *args: str) -> list[str]:
        return [str(self.bin / "supervisorctl"), "-c", str(self.directory / "s.conf"), *args]

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.runtime / "s.sock").unlink()
        super().start()

    def stock_client(self, *args: str) -> list[str]:
        return self.client(*args)


class Circus(Box):
    name = "circus 0.19.0"

    def prepare(self) -> Path:
        bin_dir = environment("circus", "circus==0.19.0", "psutil==7.2.2", "pyzmq==27.3.0", "tornado==6.6.1")
        text = f"[circus]\nendpoint = ipc://{self.runtime}/e\npubsub_endpoint = ipc://{self.runtime}/p\n"
        for name, command in self.programs.items():
            text += f"[watcher:{name}]\ncmd = {script(self.directory, name, command)}\ncopy_env = True\n"
            text += f"stdout_stream.class = FileStream\nstdout_stream.filename = {self.directory}/{name}.out\n"
            text += f"stderr_stream.class = FileStream\nstderr_stream.filename = {self.directory}/{name}.err\n"
        (self.directory / "c.ini").write_text(text)
        return bin_dir

    def command(self) -> list[str]:
        return [str(self.bin / "circusd"), str(self.directory / "c.ini")]

    def client(self, *args: str) -> list[str]:
        return [str(self.bin / "circusctl"), "--endpoint", f"ipc://{self.runtime}/e", "--timeout", "60", *args]

    def stop_all(self) -> None:
        self.ctl("stop")


def script(directory: Path, name: str, command: list[str]) -> Path:
    """A script that executes the command. It avoids the quoting rules of Supervisor and circus."""
    path = directory / f"{name}.sh"
    path.write_text("#!/bin/sh\nexec " + " ".join(_quote(part) for part in command) + "\n")
    path.chmod(0o755)
    return path


def _quote(part: str) -> str:
    return "'" + part.replace("'", "'\\''") + "'"


def table(rows: dict[str, dict[str, Any]], keys: list[str] | None = None) -> str:
    """Sides as columns, figures as rows; `-` means unknown."""
    keys = keys or list(dict.fromkeys(key for row in rows.values() for key in row))
    head = f"{'':36}" + "".join(f"{name:>20}" for name in rows)
    return "\n".join([head, *(f"{key:36}" + "".join(f"{_cell(row.get(key)):>20}" for row in rows.values()) for key in keys)])


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def write_json(name: str, value: Any) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(value, indent=1))
