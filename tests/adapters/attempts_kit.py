"""What the tests of shim, launcher and evidence share: a world of real processes that cleans up after itself."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from supervisor.adapters import procfs
from supervisor.adapters.process import cgroups, orphans
from supervisor.adapters.process.processes import LocalLauncher, kill_attempt
from supervisor.model.inputs import Input, SpawnSucceeded
from supervisor.model.settings import Paths, ProgramSpec
from workers import contract

if TYPE_CHECKING:
    from collections.abc import Callable

REPO = Path(__file__).parent.parent.parent
PATIENCE_S = 30.0 * float(os.environ.get("EXTRALIFE_TEST_PATIENCE", "1"))
BOOT = contract.read_boot_id()
T = TypeVar("T", bound=Input)


class Inbox:
    """Remembers what was posted; `expect` waits for the next item of a kind."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Input] = queue.Queue()
        self._kept: list[Input] = []

    def post(self, item: Input) -> None:
        self._queue.put(item)

    def expect(self, kind: type[T], token: str | None = None) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for item in self._kept:
                if isinstance(item, kind) and token in (None, getattr(item, "token", None)):
                    self._kept.remove(item)
                    return item
            self._kept.append(self._queue.get(timeout=max(0.01, deadline - time.monotonic())))

    def empty(self) -> bool:
        return self._queue.empty() and not self._kept


class BootClock:
    def now_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_s(self) -> float:
        return time.time()

    def from_boot_ns(self, at_ns: int) -> float:
        return at_ns / 1e9

    def to_boot_ns(self, at_s: float) -> int:
        return int(at_s * 1e9)


class Groups(cgroups.Cgroups):
    """Makes no cgroup, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(cgroups.OwnCgroup(None, "of a test"), lambda _name: cgroups.Limits(None, None, 0, 0))
        self.asked: list[tuple[str, ...]] = []
        self.first = threading.Event()  # set: the first start goes on
        self.first.set()
        self.error: Exception | None = None
        self.path = ""  # the cgroup of each attempt

    def begin(self, program: str, token: str, attempt_dir: str) -> str:
        self.asked.append(("begin", program, token, attempt_dir))
        if program == "Hangs":
            self.first.wait(60)
        if self.error is not None:
            raise self.error
        if self.path:
            cgroups._note(attempt_dir, cgroups.Confined(self.path, cgroups.Limits(1, 2, 3, 4), counts_oom=True))
        return self.path

    def adopt(self, program: str, token: str, attempt_dir: str) -> None:
        self.asked.append(("adopt", program, token, attempt_dir))

    def members(self, token: str) -> list[int]:
        self.asked.append(("members", token))
        return []

    def kill(self, token: str, *, shim: bool = False) -> bool:
        self.asked.append(("kill with its shim" if shim else "kill", token))
        return False

    def end(self, token: str) -> None:
        self.asked.append(("end", token))


class World:
    """A launcher on directories of its own. `token` of each attempt is remembered, and its processes end with the test."""

    def __init__(self, root: Path, groups: cgroups.Cgroups = cgroups.NONE, home: orphans.Orphans = orphans.NONE) -> None:
        self.groups, self.home = groups, home
        self.paths = Paths(str(root / "state"), str(root / "run"))
        Path(self.paths.state_dir).mkdir()
        Path(self.paths.runtime_dir).mkdir()
        self.inbox = Inbox()
        self.tokens: list[str] = []
        self._launcher: LocalLauncher | None = None

    @property
    def launcher(self) -> LocalLauncher:
        if self._launcher is None:
            self._launcher = LocalLauncher(self.paths, BOOT, self.inbox, BootClock(), self.groups, self.home)
        return self._launcher

    def new_launcher(self) -> LocalLauncher:
        """As after a daemon's death: nothing is remembered."""
        if self._launcher is not None:
            self._launcher.close()
        self._launcher, self.inbox = None, Inbox()
        return self.launcher

    def token(self) -> str:
        self.tokens.append(secrets.token_hex(16))
        return self.tokens[-1]

    def begin(self, argv: list[str], name: str = "Pong", attempt: int = 1, **fields: object) -> str:
        token = self.token()
        self.launcher.spawn(spec(name, argv, **fields), attempt, token)
        return token

    def run(self, argv: list[str], name: str = "Pong", attempt: int = 1, **fields: object) -> SpawnSucceeded:
        return self.inbox.expect(SpawnSucceeded, self.begin(argv, name, attempt, **fields))

    def stdout(self, name: str = "Pong") -> str:
        return Path(self.paths.log(name, "stdout")).read_text()

    def close(self) -> None:
        if self._launcher is not None:
            self._launcher.close()
        for token in self.tokens:
            kill_attempt(token, None)


def spec(name: str, argv: list[str], **fields: object) -> ProgramSpec:
    return ProgramSpec(name, tuple(argv), digest="d", **fields)  # type: ignore[arg-type]


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def eventually(holds: Callable[[], object]) -> bool:
    """For what offers no event: true as soon as `holds()` is, within the patience."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    """No such process, or a zombie that pid 1 has not reaped yet."""
    stat = procfs.read_stat(pid)
    return stat is None or not stat.alive


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
