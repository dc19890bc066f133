"""One daemon for a state directory that several hosts share: a lease in a file, told by its own movement alone.

The lock of one machine (`adapters/singleton.py`) holds on one machine: over a shared file system flock(2) may be local or
refused. So the daemon also writes its lease, `slurm/lease`, and counts it up every `RENEW_S`. Another host's daemon that
finds one watches it: while it moves, that daemon refuses to start; when it has not moved for `DEAD_S`, it takes over. No
clocks are compared. A daemon that finds its lease taken leaves at once as if killed, and touches no job: they are the other
one's now.

Example: the daemon on login1 dies with its host. One on login2 starts, watches for 45 s, takes over and adopts all jobs.
login1 comes back with a daemon that was only frozen: its next renewal finds login2's token, and it is gone.

An orderly end removes the lease, so a small job that runs the daemon and resubmits itself waits for nothing.
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
_SETTLE_S: Final = 2.0  # two daemons that start at once: the later write counts for both
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class DaemonClaim:
    """Whose lease it is. `count` moves while that daemon lives."""

    host: str
    boot_id: str
    pid: int
    token: str
    count: int = 0


class DaemonLease:
    """The lease of this daemon."""

    def __init__(self, state_dir: str, boot_id: str, wait: Callable[[float], object] | None = None) -> None:
        """`wait` is for tests."""
        self._path, self._state_dir = Path(state_dir, "slurm", "lease"), state_dir
        self._mine = DaemonClaim(socket.gethostname(), boot_id, os.getpid(), secrets.token_hex(8))
        self._over = threading.Event()
        self._wait = wait or threading.Event().wait

    def take(self) -> None:
        """Raises Taken while another host's daemon has it, and OSError."""
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
        """Renew it in a thread of its own; `lost` is called when another daemon has taken it."""
        threading.Thread(target=self._keep, args=(lost,), name="lease", daemon=True).start()

    def renew(self) -> bool:
        """False: it is another's. A file that cannot be read, or is gone, is not: it is written again."""
        found = read(self._path)
        if found is not None and found.token != self._mine.token:
            log.critical("lease_lost", to=found.host, pid=found.pid)
            return False
        self._mine = replace(self._mine, count=self._mine.count + 1)
        with contextlib.suppress(OSError):
            self._write()
        return True

    def release(self) -> None:
        """At an orderly end."""
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
    """None where there is none, or it is just being written."""
    try:
        found = DaemonClaim(**json.loads(read_bounded(str(path), _MOST_BYTES)))
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = tuple(type(value) for value in asdict(found).values())
    return found if kinds == (str, str, int, str, int) else None
