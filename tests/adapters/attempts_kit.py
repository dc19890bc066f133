"""What the tests of shim, launcher and evidence share: a world of real processes that cleans up after itself."""

import contextlib
import os
import queue
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TypeVar

from supervisor.adapters import procfs
from supervisor.adapters.process import cgroups, orphans
from supervisor.adapters.process.processes import LocalLauncher, kill_attempt
from supervisor.model.inputs import Input, SpawnSucceeded
from supervisor.model.settings import Paths, ProgramSpec
from workers import contract

REPO = Path(__file__).parent.parent.parent
PATIENCE_S = 30.0 * float(os.environ.get("EXTRALIFE_TEST_PATIENCE", "1"))
BOOT = contract.read_boot_id()
T = TypeVar("T", bound=Input)


class Inbox:
    """Remembers what was posted; `expect` waits for the next item of a kind."""

    def __init__(self):
        self._queue = queue.Queue()
        self._kept = []

    def post(self, item):
        self._queue.put(item)

    def expect(self, kind, token=None):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for item in self._kept:
                if isinstance(item, kind) and token in (None, getattr(item, "token", None)):
                    self._kept.remove(item)
                    return item
            self._kept.append(self._queue.get(timeout=max(0.01, deadline - time.monotonic())))

    def empty(self):
        return self._queue.empty() and not self._kept


class BootClock:
    def now_s(self):
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_s(self):
        return time.time()

    def from_boot_ns(self, at_ns):
        return at_ns / 1e9

    def to_boot_ns(self, at_s):
        return int(at_s * 1e9)


class Groups(cgroups.Cgroups):
    """Makes no cgroup, and remembers what it was asked for."""

    def __init__(self):
        super().__init__(cgroups.OwnCgroup(None, "of a test"), lambda _name: cgroups.Limits(None, None, 0, 0))
        self.asked = []
        self.first = threading.Event()  # set: the first start goes on
        self.first.set()
        self.error = None
        self.path = ""  # the cgroup of each attempt

    def begin(self, program, token, attempt_dir):
        self.asked.append(("begin", program, token, attempt_dir))
        if program == "Hangs":
            self.first.wait(60)
        if self.error is not None:
            raise self.error
        if self.path:
            cgroups._note(attempt_dir, cgroups.Confined(self.path, cgroups.Limits(1, 2, 3, 4), counts_oom=True))
        return self.path

    def adopt(self, program, token, attempt_dir):
        self.asked.append(("adopt", program, token, attempt_dir))

    def members(self, token):
        self.asked.append(("members", token))
        return []

    def kill(self, token, *, shim=False):
        self.asked.append(("kill with its shim" if shim else "kill", token))
        return False

    def end(self, token):
        self.asked.append(("end", token))


class World:
    """A launcher on directories of its own. `token` of each attempt is remembered, and its processes end with the test."""

    def __init__(self, root, groups=cgroups.NONE, home=orphans.NONE):
        self.groups, self.home = groups, home
        self.paths = Paths(str(root / "state"), str(root / "run"))
        Path(self.paths.state_dir).mkdir()
        Path(self.paths.runtime_dir).mkdir()
        self.inbox = Inbox()
        self.tokens = []
        self._launcher = None

    @property
    def launcher(self):
        if self._launcher is None:
            self._launcher = LocalLauncher(self.paths, BOOT, self.inbox, BootClock(), self.groups, self.home)
        return self._launcher

    def new_launcher(self):
        """As after a daemon's death: nothing is remembered."""
        if self._launcher is not None:
            self._launcher.close()
        self._launcher, self.inbox = None, Inbox()
        return self.launcher

    def token(self):
        self.tokens.append(secrets.token_hex(16))
        return self.tokens[-1]

    def begin(self, argv, name="Pong", attempt=1, **fields):
        token = self.token()
        self.launcher.spawn(spec(name, argv, **fields), attempt, token)
        return token

    def run(self, argv, name="Pong", attempt=1, **fields):
        return self.inbox.expect(SpawnSucceeded, self.begin(argv, name, attempt, **fields))

    def stdout(self, name="Pong"):
        return Path(self.paths.log(name, "stdout")).read_text()

    def close(self):
        if self._launcher is not None:
            self._launcher.close()
        for token in self.tokens:
            kill_attempt(token, None)


def spec(name, argv, **fields):
    return ProgramSpec(name, tuple(argv), digest="d", **fields)


def python(code):
    return [sys.executable, "-S", "-c", code]


def eventually(holds):
    """For what offers no event: true as soon as `holds()` is, within the patience."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pid):
    """No such process, or a zombie that pid 1 has not reaped yet."""
    stat = procfs.read_stat(pid)
    return stat is None or not stat.alive


def kill(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
