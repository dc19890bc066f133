"""Ensures that only one daemon uses a state directory that several hosts share: nodes of a cluster, or rented containers.

The lock of one machine (`adapters/singleton.py`) is valid on one machine: over a shared file system flock(2) may be local or
refused. So the daemon also writes its lease, the file `slurm/lease`, and increments its count every `RENEW_S`. A daemon on
another host that finds a lease watches it. While the count changes, that daemon refuses to start. When the count has not
changed for `DEAD_S`, it takes over. No clocks are compared. A daemon whose lease was taken exits at once, as if killed. It
touches no job: the jobs now belong to the other daemon. Workers on its own host end with it.

Example: the daemon on login1 stops with its host. A daemon on login2 starts, watches for 45 s, takes over and adopts all
jobs. login1 comes back, and its daemon was only frozen. At its next renewal it finds login2's token and exits.

A file that cannot be read, or not whole, proves nothing: the file system may fail for a moment, or the other daemon is just
writing. Only a file that is gone means that its daemon has left. Taking an unreadable lease for a removed one would let two
daemons run.

An orderly shutdown removes the lease. So a small job that runs the daemon and resubmits itself does not have to wait.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from supervisor import files
from supervisor.adapters import durable
from supervisor.adapters.process.processes import make_dir
from supervisor.adapters.singleton import Taken, taken
from supervisor.adapters.threads import Lasting
from supervisor.lack import is_lack
from supervisor.records import Record

log = structlog.get_logger()

RENEW_S: Final = 10.0
DEAD_S: Final = 45.0
_LOOK_S: Final = 3.0
_SETTLE_S: Final = 2.0  # for two daemons that start at once: both then read the later write
_READ_BACKS: Final = 5


class DaemonClaim(Record):
    """The owner of a lease. `count` changes while that daemon is alive."""

    host: str
    boot_id: str
    pid: int
    token: str
    count: int = 0


class Unclear(enum.Enum):
    """There is a lease, and nobody can say at the moment whose it is."""

    UNCLEAR = "unclear"


UNCLEAR: Final = Unclear.UNCLEAR


class DaemonLease:
    def __init__(self, state_dir: str, boot_id: str, wait: Callable[[float], object] | None = None) -> None:
        """`wait` replaces the real wait in tests."""
        self._path, self._state_dir = Path(state_dir, "slurm", "lease"), state_dir
        self._mine = DaemonClaim(socket.gethostname(), boot_id, os.getpid(), secrets.token_hex(8))
        self._unclear = False  # the last look
        self._fd = -1  # of the lease, for a lack of descriptors
        self._over = threading.Event()
        self._wait = wait or threading.Event().wait

    def take(self) -> None:
        """Take the lease. Raises Taken while a daemon on another host holds it, and OSError."""
        make_dir(self._path.parent)
        files.make_room(self._path)
        found = read(self._path)
        if found is not None and not self._is_of_this_boot(found):
            self._watch(found)
        self._write()
        self._wait(_SETTLE_S)
        found = self._read_back()
        if found is not None and found.token != self._mine.token:
            raise self._taken_by(found)
        self._fd = files.open_regular(self._path, os.O_WRONLY | os.O_CREAT)

    def keep(self, lost: Callable[[], None]) -> None:
        """Renew the lease in a separate thread, which calls `lost` when another daemon has taken it."""
        Lasting("lease", partial(self._keep, lost), self._over.is_set, vital=True).start()

    def renew(self) -> bool:
        """Renew the lease: a missing file again, an unreadable one at the second look. False: another daemon owns it."""
        found = read(self._path)
        if isinstance(found, DaemonClaim) and found.token != self._mine.token:
            log.critical("lease_lost", to=found.host, pid=found.pid)
            return False
        was_unclear, self._unclear = self._unclear, found is UNCLEAR
        if self._unclear and not was_unclear:
            return True  # another daemon may be writing: the next look shows whose lease it is
        self._mine = replace(self._mine, count=self._mine.count + 1)
        with contextlib.suppress(OSError):
            self._write()
        return True

    def release(self) -> None:
        """Remove the lease, if it is still ours, at an orderly shutdown."""
        self._over.set()
        found = read(self._path)
        if isinstance(found, DaemonClaim) and found.token == self._mine.token:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _keep(self, lost: Callable[[], None]) -> None:
        if not self._over.wait(RENEW_S) and not self.renew():
            self._over.set()
            lost()

    def _watch(self, found: DaemonClaim | Unclear) -> None:
        """Wait until the owner has not renewed its lease for `DEAD_S`. Raises Taken as soon as it does."""
        unmoved_s = 0.0
        while unmoved_s < DEAD_S:
            self._wait(_LOOK_S)
            unmoved_s += _LOOK_S
            now = read(self._path)
            if now is None or self._is_of_this_boot(now):
                return
            if now is UNCLEAR or now == found:
                continue
            if found is not UNCLEAR:
                raise self._taken_by(now)
            found, unmoved_s = now, 0.0  # the first look that shows whose lease it is
        log.warning("lease_taken_over", owner=found, unmoved_s=unmoved_s)

    def _read_back(self) -> DaemonClaim | None:
        """The claim after our own write. Raises OSError if it stays unreadable: nobody knows then who holds the lease."""
        for _ in range(_READ_BACKS):
            found = read(self._path)
            if not isinstance(found, Unclear):
                return found
            self._wait(_SETTLE_S)
        raise OSError(errno.EIO, "the lease of this daemon cannot be read back", str(self._path))

    def _is_of_this_boot(self, found: DaemonClaim | Unclear) -> bool:
        """Whether a daemon of this boot wrote it: the lock of this machine has decided between the two."""
        return isinstance(found, DaemonClaim) and (found.host, found.boot_id) == (self._mine.host, self._mine.boot_id)

    def _write(self) -> None:
        data = (json.dumps(asdict(self._mine)) + "\n").encode()
        try:
            # In place: after a rename, other hosts may keep the old name for a minute.
            with files.held(files.open_regular(self._path, os.O_WRONLY | os.O_CREAT)) as fd:
                os.pwrite(fd, data, 0)
                os.ftruncate(fd, len(data))
        except OSError as error:
            if self._fd < 0 or not is_lack(error):
                raise
            os.pwrite(self._fd, data, 0)
            os.fsync(self._fd)

    def _taken_by(self, other: DaemonClaim) -> Taken:
        return taken(f"pid {other.pid} on {other.host}", self._state_dir)


def read(path: Path) -> DaemonClaim | Unclear | None:
    """The claim in the file. None if there is no file. UNCLEAR if it cannot be read, or is being written at the moment."""
    try:
        found = DaemonClaim(**durable.read_json(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return UNCLEAR
    kinds = tuple(type(value) for value in asdict(found).values())
    return found if kinds == (str, str, int, str, int) else UNCLEAR
