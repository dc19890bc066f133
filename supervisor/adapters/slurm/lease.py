"""Ensures that only one daemon uses a state directory that several hosts share.

The lock of one machine (`adapters/singleton.py`) is valid on one machine: over a shared file system flock(2) may be local or
refused. So the daemon also writes its lease, the file `slurm/lease`, and increments its count every `RENEW_S`. A daemon on
another host that finds a lease watches it. While the count changes, that daemon refuses to start. When the count has not
changed for `DEAD_S`, it takes over. No clocks are compared. A daemon whose lease was taken exits at once, as if killed, and
touches no job: the jobs now belong to the other daemon.

Example: the daemon on login1 stops with its host. A daemon on login2 starts, watches for 45 s, takes over and adopts all
jobs. login1 comes back, and its daemon was only frozen. At its next renewal it finds login2's token and exits.

An orderly shutdown removes the lease. So a small job that runs the daemon and resubmits itself does not have to wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import structlog

from supervisor.adapters.files import read_bounded
from supervisor.adapters.process.processes import make_dir
from supervisor.adapters.singleton import Taken
from supervisor.adapters.slurm.node import write_in_place
from supervisor.records import dataclass

log = structlog.get_logger()

RENEW_S: Final = 10.0
DEAD_S: Final = 45.0
_LOOK_S: Final = 3.0
_SETTLE_S: Final = 2.0  # for two daemons that start at once: both then read the later write
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class DaemonClaim:
    """The owner of a lease. `count` changes while that daemon is alive."""

    host: str
    boot_id: str
    pid: int
    token: str
    count: int = 0


class DaemonLease:
    """The lease of this daemon."""

    def __init__(self, state_dir: str, boot_id: str, wait: Callable[[float], object] | None = None) -> None:
        """`wait` replaces the real wait in tests."""
        self._path, self._state_dir = Path(state_dir, "slurm", "lease"), state_dir
        self._mine = DaemonClaim(socket.gethostname(), boot_id, os.getpid(), secrets.token_hex(8))
        self._over = threading.Event()
        self._wait = wait or threading.Event().wait

    def take(self) -> None:
        """Take the lease. Raises Taken while a daemon on another host holds it, and OSError."""
        make_dir(self._path.parent)
        found = read(self._path)
        if found is not None and (found.host, found.boot_id) != (self._mine.host, self._mine.boot_id):
            self._watch(found)
        self._write()
        self._wait(_SETTLE_S)
        found = read(self._path)
        if found is not None and found.token != self._mine.token:
            raise Taken(self._words(found))

    def keep(self, lost: Callable[[], None]) -> None:
        """Renew the lease in a separate thread, which calls `lost` when another daemon has taken it."""
        threading.Thread(target=self._keep, args=(lost,), name="lease", daemon=True).start()

    def renew(self) -> bool:
        """Renew the lease. False: another daemon owns it. A file that is missing or cannot be read is written again."""
        found = read(self._path)
        if found is not None and found.token != self._mine.token:
            log.critical("lease_lost", to=found.host, pid=found.pid)
            return False
        self._mine = replace(self._mine, count=self._mine.count + 1)
        with contextlib.suppress(OSError):
            self._write()
        return True

    def release(self) -> None:
        """Remove the lease, if it is still ours, at an orderly shutdown."""
        self._over.set()
        found = read(self._path)
        if found is not None and found.token == self._mine.token:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _keep(self, lost: Callable[[], None]) -> None:
        while not self._over.wait(RENEW_S):
            if not self.renew():
                lost()
                return

    def _watch(self, found: DaemonClaim) -> None:
        waited_s = 0.0
        while waited_s < DEAD_S:
            self._wait(_LOOK_S)
            waited_s += _LOOK_S
            now = read(self._path)
            if now is None:
                return
            if now != found:
                raise Taken(self._words(now))
        log.warning("lease_taken_over", host=found.host, pid=found.pid, unmoved_s=waited_s)

    def _write(self) -> None:
        write_in_place(self._path, (json.dumps(asdict(self._mine)) + "\n").encode())

    def _words(self, other: DaemonClaim) -> str:
        who = f"pid {other.pid} on {other.host}"
        return f"another supervisord ({who}) runs on {self._state_dir}: stop that one first, or choose another state_dir"


def read(path: Path) -> DaemonClaim | None:
    """The claim in the file. None if there is none, or if it is being written at the moment."""
    try:
        found = DaemonClaim(**json.loads(read_bounded(str(path), _MOST_BYTES)))
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = tuple(type(value) for value in asdict(found).values())
    return found if kinds == (str, str, int, str, int) else None
