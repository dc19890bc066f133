"""A box for end-to-end tests: a real daemon with real workers in directories of its own, and fake boot files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
from tools import MEMORY_DIR, PATIENCE, ROOT

from supervisor.ctl.client import Client
from supervisor.ctl.outcome import DaemonRefused, Unreachable

HOOKS = ROOT / "bench" / "chaos" / "hooks"
TRAINER = ROOT / "tests" / "e2e" / "programs" / "trainer.py"
FLOOR_S = 2.0 * PATIENCE  # without progress for so long a worker has stalled, where a test waits for that
LONG_S = 30.0 * PATIENCE


def until(look: Callable[[], Any], timeout_s: float, what: str, more: Callable[[], str] = str) -> Any:
    """The first true answer of `look`, asked again until the deadline. `more` is said of a wait in vain.

    A long wait asks less often: eight waiting tests that ask 30 times a second would keep a core from those that compute.
    """
    begin = time.monotonic()
    while True:
        answer = look()
        if answer:
            return answer
        waited_s = time.monotonic() - begin
        if waited_s > timeout_s * PATIENCE:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what}; last answer: {answer!r}{more()}")
        time.sleep(min(0.1, 0.03 + waited_s / 50.0))


def remove(directory: Path) -> None:
    """As a person who repeats `rm -r`: a process that writes meanwhile adds a file behind the look at the names."""

    def removed() -> bool:
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:  # a file got another name between the look at the names and its turn
            return not directory.exists()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
        return True

    until(removed, 10, f"{directory} to be removed")


def service_manager(box: Box) -> socket.socket:
    """The end of a service manager whose watchdog wants a ping of the next daemon every three seconds."""
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(str(box.runtime / "systemd"))
    box.env |= {"NOTIFY_SOCKET": str(box.runtime / "systemd"), "WATCHDOG_USEC": "3000000"}
    return systemd


def await_ping(systemd: socket.socket) -> None:
    """Wait for a ping after those that are waiting to be read."""
    systemd.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            systemd.recv(4096)
    systemd.settimeout(20.0)
    while b"WATCHDOG=1" not in systemd.recv(4096):
        pass


class Box:
    """One state directory, one runtime directory, at most one daemon."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.runtime = Path(tempfile.mkdtemp(prefix="xl-", dir=MEMORY_DIR))
        self.boot_files = directory / "boot"
        self.boot_files.mkdir()
        self.set_boot(uuid.uuid4())
        self.config_file = directory / "extralife.toml"
        self.log = directory / "daemon.log"
        self.daemon: subprocess.Popen[bytes] | forked.Daemon | None = None
        self.home = {"XDG_STATE_HOME": str(directory / "home")}  # the user's own is left alone
        self.env: dict[str, str] = {}  # of the daemon, besides what it needs
        self.under: list[str] = []  # a command that executes the daemon, such as one that takes rights away
        self.daemons: list[subprocess.Popen[bytes] | forked.Daemon] = []

    # the world

    def set_boot(self, boot_id: uuid.UUID) -> None:
        """A boot that begins now: another boot id, and a pid 1 that has just been started."""
        ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        (self.boot_files / "boot_id").write_text(f"{boot_id}\n")
        (self.boot_files / "pid1_stat").write_text(f"1 (init) S {'0 ' * 18}{ticks} 0\n")

    def config(
        self, programs: str, *, slots: int = 4, extra: str = "", floor_s: float = LONG_S, start_s: float = LONG_S,
        continue_s: float = 0.5,
    ) -> None:  # fmt: skip
        """`floor_s`: FLOOR_S in a test of stalls. In the others no worker stalls that is only kept from its processor."""
        self.config_file.write_text(
            f"""
[daemon]
state_dir = "{self.state}"
runtime_dir = "{self.runtime}"
sample_period_s = 0.2
alive_period_s = 0.5
[level]
slots = {slots}
num_envs = 4
batch_size = 32
[stall]
floor_s = {floor_s}
start_s = {start_s}
live_s = {0.75 * floor_s}
continue_s = {continue_s}
grace_s = 0.5
settle_s = 0.0
{extra}
{programs}
"""
        )

    @staticmethod
    def trainer(name: str, fault: str = "none", *flags: str, keys: str = "") -> str:
        command = json.dumps([sys.executable, str(TRAINER), fault, *flags])
        grace_s = 3.0 if fault == "ignore-term" else LONG_S  # who leaves by itself is not killed on a busy machine
        return f'[program.{name}]\ncommand = {command}\nprogress = "beat"\nstop_grace_s = {grace_s}\n{keys}\n'

    @staticmethod
    def catch(least_s: float, most_s: float, more: str = "") -> str:
        """A small built-in program that saves so often."""
        training = "num_envs = 8\nbatch_size = 32\nlearning_starts = 200\nreplay_size = 2000\nthreads = 1"
        times = f"min_s = {least_s}\nfirst_s = {least_s}\nmax_s = {most_s}"
        return f"[training]\n{training}\n[checkpoint]\n{times}\n{more}\n[program.Catch]\nsteps = 100000000\n"

    def calm(self, step_s: float = 0.02) -> None:
        """Each step of a built-in game waits so long: a test that waits for something else leaves the cores to other tests."""
        none = self.directory / "orders"  # the hook of the chaos run finds no order to do more
        self.env |= {"PYTHONPATH": f"{HOOKS}:{ROOT}", "CHAOS_DIR": str(none), "CHAOS_STEP_PAUSE_S": str(step_s)}

    # the daemon

    def start(self, *, wait: bool = True) -> subprocess.Popen[bytes] | forked.Daemon:
        env = {**os.environ, "EXTRALIFE_BOOT_FILES": str(self.boot_files), "PYTHONPATH": str(ROOT), **self.home, **self.env}
        args = ["-c", str(self.config_file)]
        with self.log.open("ab") as log:
            if self.under or any(key.startswith(("LD_", "GLIBC_")) for key in self.env):  # it needs an image of its own
                self.daemon = subprocess.Popen(
                    [*self.under, sys.executable, "-m", "supervisor", *args],
                    cwd=ROOT, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
            else:
                self.daemon = forked.Daemon(args, env=env, cwd=ROOT, log=log)
        self.daemons.append(self.daemon)
        if wait:
            until(self._serves, 30, f"the daemon to serve; its log: {self.log.read_text()[-3000:]}")
        return self.daemon

    def _serves(self) -> bool:
        assert self.daemon is not None
        if self.daemon.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.daemon.returncode}: {self.log.read_text()[-3000:]}")
        with contextlib.suppress(Unreachable, DaemonRefused):
            return bool(self.asked("/api/v1/status")["daemon"]["pid"] == self.daemon.pid)
        return False

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()

    def stop_daemon(self, timeout_s: float = 30) -> int:
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        return self.daemon.wait(timeout_s * PATIENCE)

    def power_cut(self) -> None:
        """What a power cut leaves: no process, no tmpfs, another boot id at the next start."""
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
        self._end_all()
        shutil.rmtree(self.runtime)
        self.runtime.mkdir()
        self.set_boot(uuid.uuid4())

    def shims(self) -> list[int]:
        """Every live shim of this box."""
        return self._processes("cmdline", b"\0/proc/self/fd/", f"\0{self.state}/programs/".encode())

    def pids(self) -> list[int]:
        """Every live process of this box but the daemon: shims, workers, their children."""
        return sorted({*self.shims(), *self._processes("environ", f"EXTRALIFE_RUN_DIR={self.directory}".encode())})

    @staticmethod
    def _processes(file: str, *marks: bytes) -> list[int]:
        """Those whose file has all of these marks; that of a zombie is empty."""
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and int(entry) != os.getpid():
                    text = Path("/proc", entry, file).read_bytes()
                    found += [int(entry)] if all(mark in text for mark in marks) else []
        return found

    # what it says

    def ctl(self, *args: str, timeout_s: float = 30, check: bool = False) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "EXTRALIFE_BOOT_FILES": str(self.boot_files),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            **self.home,
        }
        done = forked.ctl(["-c", str(self.config_file), *args], env=env, cwd=ROOT, timeout_s=timeout_s * PATIENCE)
        if check:
            done.check_returncode()
        return done

    def asked(self, page: str) -> dict[str, Any]:
        """A page of the daemon, which must be there to answer."""
        found: dict[str, Any] = Client(str(self.runtime / "supervisor.sock")).get(page)
        return found

    def status(self) -> dict[str, Any]:
        """The page that `extralifectl status --json` prints. Asked without a process: tests ask until something has come."""
        with contextlib.suppress(Unreachable, DaemonRefused):
            return self.asked("/api/v1/status")
        done = self.ctl("status", "--json")  # of a dead daemon, too
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(f"status said {done}", error.doc, error.pos) from None

    def program(self, name: str) -> dict[str, Any]:
        return next((p for p in self.status()["programs"] if p["name"] == name), {})

    def wait_phase(self, name: str, phase: str, timeout_s: float = 30) -> dict[str, Any]:
        last: dict[str, Any] = {}

        def look() -> dict[str, Any] | None:
            last.update(self.program(name))
            return last if last.get("phase") == phase else None

        return until(look, timeout_s, f"{name} to be {phase}", lambda: f"{last}{self.tail()}")

    def named(self, name: str) -> list[int]:
        """Its processes that execute this program: between fork and exec a child is still a copy of its parent."""
        found = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == f"{name}\n":
                    found.append(pid)
        return found

    def written(self) -> list[bytes]:
        """The contents of all files of its state directory; a worker may rename one of its own meanwhile."""
        found = []
        for directory, _, names in os.walk(self.state):  # not rglob: that fails at a directory that has just gone
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    if (path := Path(directory, name)).is_file():
                        found.append(path.read_bytes())
        return found

    def facts(self, kind: str | None = None, program: str | None = None) -> list[dict[str, Any]]:
        """Straight from the journal, read-only."""
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/journal.sqlite?mode=ro", uri=True)) as db:
            question = "SELECT seq, at_s, kind, body FROM fact WHERE ? IN (kind, '') ORDER BY seq"
            rows = db.execute(question, [kind or ""]).fetchall()
        out = [{"seq": seq, "at_s": at_s, "kind": k, **json.loads(body)} for seq, at_s, k, body in rows]
        return [fact for fact in out if program in (None, fact.get("program"))]

    def wait_fact(self, kind: str, program: str | None = None, *, count: int = 1, timeout_s: float = 30) -> dict[str, Any]:
        """Wait for a fact, and for the status page that includes it: the daemon publishes the page after the fact."""

        def look() -> dict[str, Any] | None:
            found = self.facts(kind, program)
            return found[count - 1] if len(found) >= count else None

        fact: dict[str, Any] = until(look, timeout_s, f"fact {kind} of {program} (x{count})", self.tail)
        until(lambda: self._told(fact), timeout_s, f"the pages to tell of fact {kind} of {program}", self.tail)
        return fact

    def _told(self, fact: dict[str, Any]) -> bool:
        with contextlib.suppress(Unreachable, DaemonRefused):
            return bool(self.asked("/api/v1/status")["now_s"] > fact.get("at_s", 0.0))
        return True

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:] if self.log.exists() else []
        return "\n".join(["", *lines])

    def close(self) -> None:
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
        self._end_all()
        shutil.rmtree(self.runtime, ignore_errors=True)

    def _end_all(self) -> None:
        """Kill until nothing is left: between a look and its kill a shim may have started a worker."""

        def gone() -> bool:
            for pid in (found := [*self.shims(), *self.pids()]):  # shims first: no record of an end is left by a power cut
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found

        until(gone, 10, "every process of the box to be gone")
